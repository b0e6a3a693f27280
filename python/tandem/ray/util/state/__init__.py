# SPDX-License-Identifier: Apache-2.0
"""ray.util.state: the actors of the cluster and their states."""
from tandem.ray.util.state.api import get_actor, list_actors

__all__ = ["get_actor", "list_actors"]
