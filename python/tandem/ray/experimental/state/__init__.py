# SPDX-License-Identifier: Apache-2.0
"""ray.experimental.state, an old name of ray.util.state."""
