# SPDX-License-Identifier: Apache-2.0
"""Collective operations between actors."""
import os

import numpy
import pytest

from tandem import ray


@ray.remote
class Member:
    """A member of a group, which calls what the test asks for."""

    def __init__(self, name, rank, ranks_count, timeout):
        from tandem import group
        self.group = group.join(name, rank, ranks_count, timeout=timeout)

    def numbers(self):
        """Return what the operations on arrays give."""
        group = self.group
        rank, count = group.rank, group.ranks_count
        group.barrier()
        single = group.all_reduce(numpy.full(5, rank + 1, "float32"))
        double = group.all_reduce(numpy.full((2, 2), rank * 1.5), op="max")
        part = group.reduce_scatter(numpy.arange(2 * count, dtype="float32"), numpy.zeros(2, "float32"))
        text = group.broadcast(bytearray(b"from %d" % rank), root=1)
        return single.tolist(), double.tolist(), part.tolist(), bytes(text)

    def bytes(self):
        """Return what gathers of different sizes give."""
        own = b"x" * (3 * self.group.rank)
        return self.group.all_gather(own), self.group.gather(own + b"!", root=1), self.group.all_gather(b"")

    def tensors(self):
        """Return sums over a part of a tensor of PyTorch that is not contiguous."""
        import torch
        tensor = torch.ones(3, 4)
        self.group.all_reduce(tensor[:, 1])
        half = self.group.broadcast(torch.full((2,), float(self.group.rank), dtype=torch.bfloat16), root=1)
        return tensor.tolist(), half.tolist()

    def mistakes(self):
        """Return the exceptions of calls that reach no other member."""
        found = []
        for data, op in ((numpy.zeros(2, "int32"), "sum"), (numpy.zeros(2), "mean"), (b"1234", "sum"),
                         (numpy.zeros((4, 4))[:, 1], "sum")):
            try:
                self.group.all_reduce(data, op=op)
            except (TypeError, ValueError) as error:
                found.append(str(error))
        return found

    def barrier(self):
        self.group.barrier()

    def leave(self):
        with self.group:
            pass
        try:
            self.group.barrier()
        except Exception as error:
            return str(error)

    def die(self):
        os._exit(1)


def members(name, count, timeout=20.0):
    return [Member.remote(name, rank, count, timeout) for rank in range(count)]


@pytest.fixture
def three():
    actors = members("three", 3)
    yield actors
    for actor in actors:
        ray.kill(actor)


def test_numbers(three):
    for rank, result in enumerate(ray.get([actor.numbers.remote() for actor in three])):
        single, double, part, text = result
        assert single == [6.0] * 5 and double == [[3.0, 3.0]] * 2
        assert part == [6.0 * rank, 6.0 * rank + 3] and text == b"from 1"


def test_gathers_accept_different_sizes(three):
    for rank, result in enumerate(ray.get([actor.bytes.remote() for actor in three])):
        everywhere, at_root, nothing = result
        assert everywhere == [b"", b"xxx", b"xxxxxx"] and nothing == [b""] * 3
        assert at_root == ([b"!", b"xxx!", b"xxxxxx!"] if rank == 1 else None)


def test_tensors(three):
    pytest.importorskip("torch")
    for tensor, half in ray.get([actor.tensors.remote() for actor in three]):
        assert tensor == [[1, 3, 1, 1]] * 3 and half == [1, 1]


def test_mistakes_are_exceptions(three):
    kind, op, readonly, shape = ray.get(three[0].mistakes.remote())
    assert "float32 or float64" in kind and "'mean' is not one of sum, max" in op
    assert "cannot be written" in readonly and "not contiguous" in shape
    assert "another" not in ray.get([actor.leave.remote() for actor in three])[0]


def test_a_member_that_does_not_come_is_named():
    actors = members("late", 2, timeout=4)  # Also for joining: on a busy machine one may start seconds later.
    ray.get([actor.mistakes.remote() for actor in actors])  # Both have joined.
    with pytest.raises(ray.exceptions.RayError, match="rank 1"):
        ray.get(actors[0].barrier.remote())


def test_a_member_that_dies_is_named():
    actors = members("dying", 2)
    ray.get([actor.mistakes.remote() for actor in actors])
    waiting = actors[0].barrier.remote()
    actors[1].die.remote()
    with pytest.raises(ray.exceptions.RayError, match="rank 1"):
        ray.get(waiting)
