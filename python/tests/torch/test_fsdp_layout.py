# SPDX-License-Identifier: Apache-2.0
"""tandem.torch.layout() reads what FSDP2 and other users of DTensor have made of a model."""
import functools

import pytest

torch = pytest.importorskip("torch", reason="skipped: the Python package torch is missing")
import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor  # noqa: E402

import tandem.torch  # noqa: E402
from ranks import run  # noqa: E402
from tandem.layout import Layout, Slice, Tensor, join  # noqa: E402


class Model(torch.nn.Module):
    """Rows that divide, rows that do not, one and four rows (which the last ranks lack), a vector, a buffer, and tied
    parameters."""
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(15, 6)
        self.even = torch.nn.Linear(6, 12)
        self.uneven = torch.nn.Linear(12, 7)
        self.row = torch.nn.Linear(7, 1)
        self.short = torch.nn.Linear(1, 4)
        self.head = torch.nn.Linear(6, 15, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.arange(3.0))


def described(layout):
    """Return a layout with the elements in place of the memory, which can be sent to another process."""
    return layout.tensors, [(part.name, part.memory.clone(), part.offset, part.extent, part.replica, part.replicas,
                             part.is_sent) for part in layout.slices]


def shard_and_describe(rank, ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    model = Model()
    for child in (model.even, model.uneven, model.row, model.short):
        fully_shard(child, mesh=mesh)
    fully_shard(model, mesh=mesh)
    layout = tandem.torch.layout(model)
    of_state_dict = tandem.torch.layout(model.state_dict())
    storages = {part.name: part.memory.untyped_storage().nbytes() // 4 for part in layout.slices}
    for part in layout.slices:
        assert part.address == part.memory.data_ptr() and tuple(part.memory.shape) == part.extent
    # The slices are views of the parameters: a change of a parameter is a change of the slice.
    with torch.no_grad():
        model.even.weight.to_local().add_(1)
    rows = {name: parameter.to_local().shape[0] for name, parameter in model.named_parameters()}
    return *described(layout), storages, described(of_state_dict), rows


@functools.cache
def results_of(ranks):
    """Return what shard_and_describe() returns on each rank; the processes run once."""
    return run(shard_and_describe, ranks)


def assemble(tensors, slices_of_ranks, only_sent):
    """Return the whole tensors, and check that the slices have each element, once if `only_sent`."""
    found = {}
    for tensor in tensors:
        whole, count = torch.zeros(tensor.shape), torch.zeros(tensor.shape, dtype=torch.int64)
        for parts in slices_of_ranks:
            for name, elements, offset, extent, _, _, is_sent in parts:
                if name == tensor.name and (is_sent or not only_sent):
                    box = tuple(slice(first, first + length) for first, length in zip(offset, extent))
                    whole[box] = elements
                    count[box] += 1
        assert (count == 1).all() if only_sent else (count >= 1).all(), tensor.name
        found[tensor.name] = whole
    return found


@pytest.mark.parametrize("takes_state_dict", [False, True], ids=["module", "state_dict"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_shards_of_all_ranks_are_the_model(ranks, takes_state_dict):
    results = [result[3] if takes_state_dict else result for result in results_of(ranks)]
    model = Model()
    with torch.no_grad():
        model.even.weight.add_(1)
    wanted = model.state_dict()
    if not takes_state_dict:
        del wanted["head.weight"]  # Tied, so the module lists it once.
    tensors = results[0][0]
    assert all(result[0] == tensors for result in results), "the list of tensors is the same on every rank"
    assert [(tensor.name, tensor.dtype, tensor.shape) for tensor in tensors] == [
        (name, "float32", tuple(value.shape)) for name, value in wanted.items()]
    for only_sent in (False, True):
        found = assemble(tensors, [result[1] for result in results], only_sent)
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_a_rank_without_rows_has_no_slice_and_the_others_have_all_rows():
    """Four rows over three ranks: FSDP gives two to each of the first, so that the last one has an empty shard."""
    results = results_of(3)
    for name, rest in (("short.weight", (1,)), ("short.bias", ())):
        parts = [[part for part in result[1] if part[0] == name] for result in results]
        assert [[(part[2], part[3]) for part in found] for found in parts] == [
            [((first, *(0 for _ in rest)), (2, *rest))] for first in (0, 2)] + [[]]
        assert results[2][4][name] == 0 and name in [tensor.name for tensor in results[2][0]]


def test_uneven_shards_have_their_local_shape_and_padded_storage():
    results = results_of(3)
    shapes = [{part[0]: (part[2], part[3]) for part in result[1]} for result in results]
    assert [shape.get("uneven.weight") for shape in shapes] == [((0, 0), (3, 12)), ((3, 0), (3, 12)), ((6, 0), (1, 12))]
    assert results[2][2]["uneven.weight"] == 3 * 12, "FSDP pads the storage to the first rank's rows"
    assert [shape.get("row.weight") for shape in shapes] == [((0, 0), (1, 7)), None, None]
    assert [part[4:6] for part in results[1][1] if part[0] == "scale"] == [(1, 3)], "a buffer is on every rank"


def describe_meshes(rank, ranks):
    values = torch.arange(24.0).view(4, 6)
    flat = init_device_mesh("cpu", (ranks,))
    hybrid = init_device_mesh("cpu", (2, ranks // 2))
    state = {"columns": distribute_tensor(values, flat, [Shard(1)]),
             "copies": distribute_tensor(values, flat, [Replicate()]),
             "hybrid": distribute_tensor(values, hybrid, [Replicate(), Shard(0)]),
             "scalar": torch.tensor(3.0)}
    texts = []
    for name, tensor in (("partial", DTensor.from_local(values, flat, [Partial()])),
                         ("other", DTensor.from_local(values[:, :3], flat, [Shard(0)], shape=(16, 6), stride=(6, 1))),
                         ("strided", values.t())):
        with pytest.raises(ValueError) as failure:
            tandem.torch.layout({name: tensor})
        texts.append(str(failure.value))
    return *described(tandem.torch.layout(state)), texts


def test_placements_on_meshes():
    results = run(describe_meshes, 4)
    places = [{part[0]: part[2:6] for part in result[1]} for result in results]
    # Six columns in chunks of two: the fourth rank has none.
    assert [place.get("columns") for place in places] == [
        ((0, 0), (4, 2), 0, 1), ((0, 2), (4, 2), 0, 1), ((0, 4), (4, 2), 0, 1), None]
    assert [place["copies"] for place in places] == [((0, 0), (4, 6), rank, 4) for rank in range(4)]
    assert [place["hybrid"] for place in places] == [((rank % 2 * 2, 0), (2, 6), rank // 2, 2) for rank in range(4)]
    assert [place["scalar"] for place in places] == [((), (), rank, 4) for rank in range(4)]
    wanted = torch.arange(24.0).view(4, 6)
    found = assemble(results[0][0], [result[1] for result in results], only_sent=True)
    assert torch.equal(found["columns"], wanted) and torch.equal(found["hybrid"], wanted)
    for text, words in zip(results[0][2], (("partial", "only Shard and Replicate"), ("other", "(4, 3)", "(4, 6)"),
                                           ("strided", "not contiguous", "(6, 4)"))):
        assert all(word in text for word in words), text


def test_layout_without_a_group():
    assert not dist.is_initialized()
    layout = tandem.torch.layout(Model())
    assert [part.replicas for part in layout.slices] == [1] * len(layout.tensors)
    assert layout.sent() == layout.slices


def test_what_updates_cannot_move_is_refused_by_name():
    with pytest.raises(TypeError, match="wave has the type complex64"):
        tandem.torch.layout({"wave": torch.zeros(2, dtype=torch.complex64)})
    with pytest.raises(ValueError, match="deep has 5 dimensions"):
        tandem.torch.layout({"deep": torch.zeros(1, 1, 1, 1, 1)})
    with pytest.raises(ValueError, match="96 bytes"):
        Tensor("n" * 96, "float32", (1,))


def test_join_of_stages():
    first, second = Tensor("a", "float32", (2,)), Tensor("b", "float32", (3,))
    assert join([[first], [first, second]]) == [first, second]
    with pytest.raises(ValueError, match=r"a is float32 \(4,\) on rank 1, and float32 \(2,\)"):
        join([[first], [Tensor("a", "float32", (4,))]])
    part = Slice("a", torch.zeros(2), (0,), (2,), replica=1, replicas=2)
    assert Layout([first], [part]).sent() in ([], [part])
