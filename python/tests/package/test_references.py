# SPDX-License-Identifier: Apache-2.0
"""References and handles outside of calls, many results, and names: what Tandem adds to Ray's behaviour or limits."""
import gc
import pickle
import time

import pytest

from tandem import ray
from tandem.ray import exceptions


@ray.remote
class Borrower:
    def pickle(self, refs):
        return pickle.dumps(refs)

    def exports_handle(self):
        return pickle.dumps(Borrower.remote())

    def answer(self):
        return 42


def test_a_reference_that_a_borrower_has_pickled_outlives_the_borrower():
    borrower = Borrower.remote()
    ref = ray.put("kept by its owner")
    text = ref.hex()
    data = ray.get(borrower.pickle.remote([ref]))
    del ref
    ray.kill(borrower)
    gc.collect()
    time.sleep(0.2)
    again, = pickle.loads(data)
    assert again.hex() == text and ray.get(again) == "kept by its owner"


def test_an_actor_lives_while_its_creator_does_once_its_handle_was_pickled():
    creator = Borrower.remote()
    data = ray.get(creator.exports_handle.remote())
    time.sleep(0.5)
    handle = pickle.loads(data)
    assert ray.get(handle.answer.remote()) == 42
    ray.kill(creator)
    with pytest.raises(exceptions.RayActorError):
        for _ in range(100):
            ray.get(handle.answer.remote(), timeout=30)
            time.sleep(0.1)


@pytest.mark.parametrize("change", [lambda form: form[:-1], lambda form: b"", lambda form: b"\xc0", lambda form: form * 2])
def test_wrong_bytes_raise(change):
    load, (form,) = ray.put(1).__reduce__()
    assert ray.get(load(form)) == 1
    with pytest.raises(exceptions.RayError):
        load(change(form))


def test_results_of_one_call_are_limited():
    @ray.remote
    def make(count):
        return range(count)

    assert ray.get(make.options(num_returns=4096).remote(4096))[-1] == 4095
    with pytest.raises(ValueError, match="4097.*4096"):
        make.options(num_returns=4097).remote(4097)


@pytest.mark.parametrize("name", ["n" * 256, "tab\t", "nul\0"])
def test_names_are_limited(name):
    with pytest.raises(ValueError):
        Borrower.options(name=name).remote()
    with pytest.raises(ValueError):
        Borrower.options(name="any", namespace=name).remote()


def test_a_limit_of_names_tells_both_numbers():
    with pytest.raises(ValueError, match="300 bytes, at most 255"):
        Borrower.options(name="ö" * 150).remote()


def test_classes_and_methods_have_names_in_any_language():
    """Ray's workers cannot encode the name of such a class."""
    @ray.remote
    class Größe:
        def länge(self):
            return 5

        def fail(self):
            raise ValueError("größer")

    actor = Größe.options(name="Größe").remote()
    assert ray.get(actor.länge.remote()) == 5
    assert ray.get(ray.get_actor("Größe").länge.remote()) == 5
    with pytest.raises(ValueError, match="Größe.fail"):
        ray.get(actor.fail.remote())
    assert ray.get(ray.remote(type("B" * 100, (), {"answer": lambda self: 6})).remote().answer.remote()) == 6
