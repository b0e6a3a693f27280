# SPDX-License-Identifier: Apache-2.0
"""ray.util.state.api: the actors of the cluster and their states."""
import operator

from tandem import _tandem
from tandem.ray import _runtime
from tandem.ray.util.state.common import ActorState

# Ray's name of a state for Tandem's where they differ.
_RAY_STATES = {"PENDING": "PENDING_CREATION", "STARTING": "PENDING_CREATION"}
_PREDICATES = {"=": operator.eq, "!=": operator.ne}


def _states():
    """Return the states of all actors that live, and of the last ones that died."""
    _runtime.ensure_initialized()
    return [ActorState(actor["id"], actor["class_name"], _RAY_STATES.get(actor["state"], actor["state"]),
                       actor["name"], actor["node_id"], actor["pid"], actor["namespace"], bool(actor["detached"]),
                       actor["death_cause"] or None)
            for actor in _tandem.list_actors()]


def get_actor(id, address=None, timeout=30, _explain=False):
    """Return the state of the actor with this ID as hexadecimal digits, or None if there is none."""
    return next((state for state in _states() if state.actor_id == id), None)


def list_actors(address=None, filters=None, limit=100, timeout=30, detail=False, raise_on_missing_output=True,
                _explain=False):
    """Return the states of the actors for which all filters hold: (field, "=" or "!=", value)."""
    def holds(state, field, predicate, value):
        if predicate not in _PREDICATES:
            raise ValueError(f"Unsupported filter predicate {predicate!r}: use = or !=")
        return _PREDICATES[predicate](str(state[field]).lower(), str(value).lower())

    return [state for state in _states() if all(holds(state, *one) for one in filters or ())][:limit]
