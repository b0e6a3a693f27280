# SPDX-License-Identifier: Apache-2.0
"""ray.internal."""


def free(object_refs, local_only=False):
    """Free values although there are references to them."""
    for ref in object_refs if isinstance(object_refs, (list, tuple)) else [object_refs]:
        ref._free()
