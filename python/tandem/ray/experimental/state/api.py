# SPDX-License-Identifier: Apache-2.0
"""ray.experimental.state.api, an old name of ray.util.state.api."""
from tandem.ray.util.state.api import get_actor, list_actors  # noqa: F401
