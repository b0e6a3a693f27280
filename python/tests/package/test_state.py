# SPDX-License-Identifier: Apache-2.0
"""ray.util.state: Ray has it only with its dashboard, so that the suite for both does not start it."""
import time

import pytest

from tandem import ray
from tandem.ray.experimental.state import api as old_api
from tandem.ray.util.state import get_actor, list_actors


@ray.remote(num_cpus=0)
class Idle:
    def ready(self):
        return True


def eventually(condition):
    """Wait until a condition is true, 20 s at most."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_state_of_an_actor_is_found_by_its_id():
    actor = Idle.options(name="known").remote()
    ray.get(actor.ready.remote())
    eventually(lambda: get_actor(actor._actor_id.hex()).state == "ALIVE")
    state = old_api.get_actor(actor._actor_id.hex())
    assert (state["class_name"], state.get("name"), state.is_detached) == ("Idle", "known", False)
    assert state.get("nothing", 7) == 7 and state.pid > 0 and state.asdict()["death_cause"] is None
    ray.kill(actor)
    eventually(lambda: get_actor(actor._actor_id.hex()).state == "DEAD")
    assert "killed" in get_actor(actor._actor_id.hex()).death_cause


def test_an_unknown_id_has_no_state():
    assert get_actor("0" * 32) is None


def test_a_field_that_is_missing_is_no_key():
    actor = Idle.remote()
    ray.get(actor.ready.remote())
    with pytest.raises(KeyError):
        get_actor(actor._actor_id.hex())["nothing"]


def test_lists_of_actors_are_filtered():
    actors = [Idle.remote() for _ in range(3)]
    ray.get([actor.ready.remote() for actor in actors])
    found = {state.actor_id for state in list_actors(filters=[("class_name", "=", "idle"), ("state", "!=", "DEAD")])}
    assert {actor._actor_id.hex() for actor in actors} <= found
    assert len(list_actors(limit=2)) == 2
    with pytest.raises(ValueError, match="predicate"):
        list_actors(filters=[("state", ">", "ALIVE")])
