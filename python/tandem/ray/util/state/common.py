# SPDX-License-Identifier: Apache-2.0
"""ray.util.state.common: what the functions of ray.util.state return."""
import dataclasses


@dataclasses.dataclass
class ActorState:
    """The state of an actor. Its fields can be read as attributes, and by keys as in a dictionary."""

    actor_id: str
    class_name: str
    state: str
    name: str
    node_id: str
    pid: int
    ray_namespace: str
    is_detached: bool
    death_cause: str | None

    def __getitem__(self, key):
        try:
            return getattr(self, key)
        except AttributeError:
            raise KeyError(key) from None

    def get(self, key, default=None):
        """Return a field, or the default if there is none of this name."""
        return getattr(self, key, default)

    def asdict(self):
        """Return the fields as a dictionary."""
        return dataclasses.asdict(self)
