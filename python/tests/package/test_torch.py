# SPDX-License-Identifier: Apache-2.0
"""CPU tensors of PyTorch in values: out of the pickle, private by default, in place on request."""
import copy
import os
import pathlib

import cloudpickle
import pytest

from tandem import ray
from tandem.ray import _serialization

torch = pytest.importorskip("torch", reason="skipped: the Python package torch is missing")

DTYPES = [getattr(torch, name) for name in (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
    "complex128", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
    "float8_e5m2fnuz", "float8_e8m0fnu") if hasattr(torch, name)]
ZERO_COPY = "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS"


@ray.remote
class Keeper:
    def same(self, value):
        return value

    def add(self, tensor):
        tensor += 1
        return tensor

    def sum_in_place(self, tensor):
        self.tensor = tensor
        return float(tensor.sum()), _is_shared(tensor)

    def threads_count(self, _):
        return len(os.listdir("/proc/self/task"))

    def sum_of_kept(self):
        return float(self.tensor.sum())


def _is_shared(tensor):
    """Return whether the tensor lies in memory that several processes map."""
    for line in pathlib.Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        ends, rights = line.split()[:2]
        first, last = (int(end, 16) for end in ends.split("-"))
        if first <= tensor.data_ptr() < last:
            return rights.endswith("s")
    return False


@pytest.fixture(scope="module")
def keeper():
    return Keeper.remote()


def bytes_of(tensor):
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_types_come_back(keeper, dtype):
    tensor = torch.randint(0, 2, (7, 16)).to(torch.uint8).repeat(1, 2).to(torch.float32).to(dtype)
    for back in (ray.get(ray.put(tensor)), ray.get(keeper.same.remote(tensor))):
        assert back.dtype == dtype and back.shape == tensor.shape and bytes_of(back) == bytes_of(tensor)


@pytest.mark.parametrize("make", [
    lambda x: x, lambda x: x.t(), lambda x: x[1:, ::2], lambda x: x[0, 0], lambda x: x[:0], lambda x: x.sum(),
    lambda x: x.expand(3, 4, 6), lambda x: torch.empty(0, 5), lambda x: x.to_sparse(), lambda x: x.conj()])
def test_shapes_and_strides_come_back(keeper, make):
    tensor = make(torch.arange(24, dtype=torch.float32).reshape(4, 6))
    back = ray.get(keeper.same.remote([tensor]))[0]
    assert back.shape == tensor.shape and back.layout == tensor.layout
    assert torch.equal(back.to_dense(), tensor.to_dense())
    if tensor.layout == torch.strided:
        assert back.stride() == tensor.stride()


def test_contents_are_not_in_the_pickle():
    tensor = torch.ones(1 << 20)
    for value in (tensor, {"a": [tensor]}, torch.nn.Parameter(tensor)):
        head, buffers, _ = _serialization.dump(value)
        assert len(head) < 1000 and sum(buffer.nbytes for buffer in buffers) == 4 << 20


def test_tensors_that_share_memory_still_share_it(keeper):
    whole = torch.zeros(1000)
    value = {"whole": whole, "half": whole[500:], "again": whole, "bits": whole.view(torch.int32)}
    head, buffers, _ = _serialization.dump(value)
    assert len(buffers) == 1
    back = ray.get(keeper.same.remote(value))
    back["half"][0] = 1
    assert back["whole"][500] == 1 and back["again"] is back["whole"] and back["bits"][500] != 0


def test_parameters_and_gradients(keeper):
    frozen = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    value = [torch.nn.Parameter(torch.ones(2)), frozen, torch.ones(2, requires_grad=True), torch.ones(2)]
    back = ray.get(keeper.same.remote(value))
    assert [type(tensor) for tensor in back] == [type(tensor) for tensor in value]
    assert [tensor.requires_grad for tensor in back] == [True, False, True, False]
    (back[0] * 2).sum().backward()
    assert torch.equal(back[0].grad, torch.full((2,), 2.0))


def test_state_dict_and_module(keeper):
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8))
    model[0].weight.requires_grad_(False)
    state = ray.get(keeper.same.remote(model.state_dict()))
    other = copy.deepcopy(model)
    for parameter in other.parameters():
        parameter.data.zero_()
    other.load_state_dict(state)
    back = ray.get(keeper.same.remote(model))
    inputs = torch.ones(2, 8)
    assert torch.equal(other(inputs), model(inputs)) and torch.equal(back(inputs), model(inputs))
    torch.optim.SGD(back.parameters(), lr=0.1).step()


def test_received_tensors_can_be_written_and_are_private(keeper):
    tensor = torch.zeros(1 << 18)
    ref = ray.put(tensor)
    first = ray.get(ref)
    first += 1
    assert not _is_shared(first)
    assert float(ray.get(ref).sum()) == 0 and float(tensor.sum()) == 0
    assert float(ray.get(keeper.add.remote(tensor)).sum()) == 1 << 18 and float(tensor.sum()) == 0


def test_reading_starts_no_threads(keeper):
    """A process that only receives tensors can fork, which the threads of OpenMP would break."""
    tensor = torch.ones(1 << 22)
    assert ray.get([keeper.threads_count.remote(tensor) for _ in range(2)]) == [ray.get(
        Keeper.remote().threads_count.remote(None))] * 2


def test_in_place_on_request(monkeypatch):
    tensor = torch.ones(1 << 20, dtype=torch.bfloat16)
    reader = Keeper.options(runtime_env={"env_vars": {ZERO_COPY: "1"}}).remote()
    assert ray.get(reader.sum_in_place.remote(tensor)) == (1 << 20, True)
    for _ in range(4):
        ray.get(ray.put(torch.zeros(1 << 20, dtype=torch.bfloat16)))
    assert ray.get(reader.sum_of_kept.remote()) == 1 << 20
    monkeypatch.setenv(ZERO_COPY, "true")
    back = ray.get(ray.put([tensor, tensor[7:]]))
    assert _is_shared(back[0]) and back[1].data_ptr() == back[0].data_ptr() + 14 and torch.equal(back[0], tensor)
    monkeypatch.setenv(ZERO_COPY, "0")
    assert not _is_shared(ray.get(ray.put(tensor)))


def test_tensors_of_other_devices_are_left_to_torch(keeper):
    back = ray.get(keeper.same.remote([torch.empty(5, device="meta"), torch.ones(1)]))
    assert back[0].device.type == "meta" and back[0].shape == (5,) and back[1].item() == 1


def test_tensors_among_arguments_results_and_items(keeper):
    @ray.remote
    class Source:
        def items(self, count):
            for index in range(count):
                yield torch.full((3,), index)

        @ray.method(num_returns=2)
        def pair(self):
            return torch.ones(2), {"x": torch.zeros(2)}

    source = Source.remote()
    items = [ray.get(ref) for ref in source.items.options(num_returns="streaming").remote(3)]
    assert [int(item.sum()) for item in items] == [0, 3, 6]
    first, second = ray.get(list(source.pair.remote()))
    assert float(first.sum()) == 2 and float(second["x"].sum()) == 0
    assert float(ray.get(keeper.same.remote(ray.put(torch.ones(4)))).sum()) == 4


def test_ordinary_pickles_are_still_those_of_torch():
    tensor = torch.arange(5)
    assert torch.equal(cloudpickle.loads(cloudpickle.dumps(tensor)), tensor)
    assert torch.equal(ray.cloudpickle.loads(ray.cloudpickle.dumps(tensor)), tensor)
