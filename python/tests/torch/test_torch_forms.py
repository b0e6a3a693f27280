# SPDX-License-Identifier: Apache-2.0
"""Buckets that PyTorch in another process opens, and the forms that SGLang and vLLM read."""
import base64
import inspect
import io
import json
import pickle
import subprocess
import sys
import textwrap
import typing

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.multiprocessing")

from torch.multiprocessing import reductions  # noqa: E402

import engine_wheels  # noqa: E402
from tandem import torch_forms  # noqa: E402

NAMED = [("weight", torch.arange(12, dtype=torch.float32).reshape(3, 4)),
         ("half", torch.arange(8, dtype=torch.bfloat16).reshape(2, 2, 2)),
         ("bytes", torch.arange(5, dtype=torch.uint8))]


def run_reader(program, *arguments):
    """Run a program in another process, which is no child of multiprocessing; return its output."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program), *arguments], capture_output=True, text=True,
                          timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- the CPU ----------------------------------------------------------------------------------------------------------

def test_another_process_views_the_tensors_of_a_bucket():
    bucket = torch_forms.Bucket(4096)
    packed = bucket.pack(NAMED)
    assert all(torch.equal(tensor, wanted[1]) for (_, tensor), wanted in zip(packed, NAMED))
    handles = {name: torch_forms.handle_of(tensor) for name, tensor in packed}
    handles["transposed"] = torch_forms.handle_of(packed[0][1].t())
    output = run_reader("""
        import json, sys
        import torch
        from tandem.torch_forms import tensor_of
        found = {name: tensor_of(handle) for name, handle in json.loads(sys.argv[1]).items()}
        print(json.dumps({name: tensor.tolist() for name, tensor in found.items()}))
        assert found["half"].dtype == torch.bfloat16 and found["transposed"].stride() == (1, 4)
        found["weight"][0, 0] = 77.0
    """, json.dumps(handles))
    found = json.loads(output)
    assert found == {**{name: tensor.tolist() for name, tensor in NAMED}, "transposed": NAMED[0][1].t().tolist()}
    assert packed[0][1][0, 0] == 77.0  # The other process had no copy.
    assert NAMED[0][1][0, 0] == 0.0


def test_handles_without_a_bucket_are_refused():
    with pytest.raises(ValueError, match="lies in no Bucket"):
        torch_forms.handle_of(torch.zeros(3))
    with pytest.raises(ValueError, match="ends at byte 48 of a bucket of 40 bytes"):
        torch_forms.Bucket(40).pack(NAMED)
    bucket = torch_forms.Bucket(4096)
    handle = torch_forms.handle_of(bucket.pack(NAMED)[0][1])
    with pytest.raises(RuntimeError, match="is another file than that of the bucket"):
        torch_forms.tensor_of({**handle, "inode": handle["inode"] + 1})
    with pytest.raises(RuntimeError, match="/proc/1999999999/fd/.* cannot be opened"):
        torch_forms.tensor_of({**handle, "pid": 1999999999})
    with pytest.raises(ValueError, match="known are 'descriptor' and 'cuda'"):
        torch_forms.tensor_of({**handle, "kind": "pickle"})


def test_tensors_of_a_region_are_viewed_without_a_bucket():
    """A region of an actor, and a Bucket over it, whose tensors another process opens."""
    from tandem import ray
    reader = """
        import json, sys
        import torch
        from tandem.torch_forms import tensor_of
        found = {name: tensor_of(handle) for name, handle in json.loads(sys.argv[1]).items()}
        print(json.dumps({name: tensor.tolist() for name, tensor in found.items()}))
        found["weight"][0, 0] = 77.0
    """

    @ray.remote(num_gpus=1)
    class Owner:
        def make(self):
            from tandem import memory
            from tandem.job import Memory
            self.region = memory.allocate("weights", 4 << 20)
            self.bucket = torch_forms.Bucket(4096, memory=self.region)
            self.named = self.bucket.pack(NAMED)
            tensors = {"second": self.region.tensor((2, 2), torch.float32, 2 << 20), **dict(self.named)}
            tensors["second"].fill_(3)
            tensors["transposed"] = tensors["weight"].t()
            shown = Memory("weights", self.region.tensor().data_ptr(), self.region.size_bytes)
            tensors["shown"] = torch.frombuffer(shown.buffer, dtype=torch.float32)[:2]
            return {name: torch_forms.handle_of(tensor) for name, tensor in tensors.items()}

        def first(self):
            return float(self.named[0][1][0, 0])

        def refused(self):
            large = self.region.__class__("large", 130 << 20)  # Three blocks of at most 64 MiB.
            self.region.pause()
            texts = []
            for wrong in (lambda: torch_forms.Bucket(4096, memory=self.region),
                          lambda: torch_forms.handle_of(self.named[0][1]),
                          lambda: torch_forms.Bucket(131 << 20, memory=large),
                          lambda: torch_forms.handle_of(large.tensor())):
                try:
                    wrong()
                except Exception as error:
                    texts.append(str(error))
            return texts

    ray.init(num_cpus=2, num_gpus=1, log_to_driver=False)
    try:
        owner = Owner.remote()
        handles = ray.get(owner.make.remote())
        found = json.loads(run_reader(reader, json.dumps(handles)))
        names = dict(NAMED)
        assert found == {"second": [[3.0, 3.0], [3.0, 3.0]], "transposed": names["weight"].t().tolist(),
                         "shown": [0.0, 1.0], **{name: tensor.tolist() for name, tensor in names.items()}}
        assert ray.get(owner.first.remote()) == 77.0  # The other process had no copy.
        paused, nothing, small, parts = ray.get(owner.refused.remote())
    finally:
        ray.shutdown()
    assert "the region weights is paused" in paused
    assert "the region weights is paused: it has no memory to open" in nothing
    assert "a bucket of 137363456 bytes in memory of 136314880" in small
    assert "lie in two of its blocks" in parts and "region of at most 64 MiB" in parts


# ---- CUDA, without a GPU: the fields are those of the installed PyTorch -----------------------------------------------

def test_the_cuda_fields_are_those_of_this_pytorch():
    assert tuple(inspect.signature(reductions.rebuild_cuda_tensor).parameters) == torch_forms.CUDA_FIELDS
    assert len(torch_forms.CUDA_FIELDS) == 15 and torch_forms.CUDA_FIELDS[6] == "storage_device"
    text = inspect.getsource(reductions.reduce_tensor)
    fields = text[text.index("rebuild_cuda_tensor,"):]
    order = ["type(tensor)", "tensor.size()", "tensor.stride()", "tensor_offset", "type(storage)", "tensor.dtype",
             "device", "handle", "storage_size_bytes", "storage_offset_bytes", "tensor.requires_grad",
             "ref_counter_handle", "ref_counter_offset", "event_handle", "event_sync_required"]
    positions = [fields.index(f"{name},") for name in order]
    assert positions == sorted(positions)


class FakeGpus:
    """What PyTorch says of two GPUs that are not there, and what it was asked to export and to open."""

    UUIDS = ("8a0b", "77cc")
    FIELDS = (torch.Tensor, torch.Size([3, 4]), (4, 1), 0, torch.storage.TypedStorage, torch.bfloat16, 1, b"\0handle",
              1024, 512, False, b"ref", 8, b"event", True)

    def __init__(self, monkeypatch):
        self.checked, self.opened = [], []
        properties = [type("Properties", (), {"uuid": uuid}) for uuid in self.UUIDS]
        monkeypatch.setattr(torch.cuda, "get_device_properties", properties.__getitem__)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(properties))
        monkeypatch.setattr(torch_forms, "check_export", self.checked.append)
        monkeypatch.setattr(reductions, "reduce_tensor", lambda tensor: (reductions.rebuild_cuda_tensor, self.FIELDS))
        monkeypatch.setattr(reductions, "rebuild_cuda_tensor", lambda *fields: self.opened.append(fields))


class CudaTensor:
    """Stands for a tensor of a GPU."""

    is_cuda = True


def test_a_cuda_handle_has_the_uuid_and_opens_on_the_gpu_of_that_uuid(monkeypatch):
    gpus = FakeGpus(monkeypatch)
    tensor = CudaTensor()
    handle = json.loads(json.dumps(torch_forms.handle_of(tensor)))
    assert gpus.checked == [tensor]  # Before the export.
    assert handle["storage_device"] == "77cc" and handle["kind"] == "cuda"
    gpus.UUIDS = None
    properties = [type("Properties", (), {"uuid": uuid}) for uuid in ("77cc", "8a0b")]  # Another order there.
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties.__getitem__)
    torch_forms.tensor_of(handle)
    assert gpus.opened == [(*gpus.FIELDS[:6], 0, *gpus.FIELDS[7:])]
    with pytest.raises(ValueError, match="on the GPU 1234; this process sees 77cc, 8a0b"):
        torch_forms.tensor_of({**handle, "storage_device": "1234"})


def test_sglang_reads_the_uuid_as_its_own_patch_writes_it(monkeypatch):
    common = engine_wheels.module_of("sglang.srt.utils.common", monkeypatch)
    common.is_npu = common.is_musa = lambda: False
    common.torch_release = (2, 13)
    patch = engine_wheels.load("sglang/srt/utils/patch_torch.py", monkeypatch)
    gpus = FakeGpus(monkeypatch)
    reductions_of_sglang = patch.reductions
    monkeypatch.setattr(reductions_of_sglang, "_reduce_tensor_original", reductions.reduce_tensor, raising=False)
    monkeypatch.setattr(reductions_of_sglang, "_rebuild_cuda_tensor_original", reductions.rebuild_cuda_tensor,
                        raising=False)
    theirs = patch._reduce_tensor_modified(CudaTensor())[1]
    assert torch_forms._reduce_cuda(CudaTensor()) == theirs
    # Also if the patch was applied before.
    monkeypatch.setattr(reductions, "reduce_tensor", patch._reduce_tensor_modified)
    assert torch_forms._reduce_cuda(CudaTensor()) == theirs
    patch._rebuild_cuda_tensor_modified(*theirs)
    assert gpus.opened == [gpus.FIELDS]


def test_memory_that_cannot_be_exported_is_refused_before_the_export(monkeypatch):
    asked = []

    class Storage:
        def data_ptr(self):
            return 4096

        def nbytes(self):
            return 100

    class Tensor(CudaTensor):
        device = "cuda:0"

        def untyped_storage(self):
            return Storage()

    class Nothing:
        def __init__(self, *_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def synchronize(self):
            pass

    def refuse(address, size_bytes):
        asked.append((address, size_bytes))
        raise RuntimeError("memory of cuMemCreate")

    monkeypatch.setattr(torch.cuda, "device", Nothing)
    monkeypatch.setattr(torch.cuda, "current_stream", Nothing)
    monkeypatch.setattr(torch_forms._tandem, "check_ipc", refuse)
    monkeypatch.setattr(reductions, "reduce_tensor", lambda tensor: pytest.fail("exported"))
    with pytest.raises(RuntimeError, match="cuMemCreate"):
        torch_forms.handle_of(Tensor())
    assert asked == [(4096, 100)]


# ---- SGLang -----------------------------------------------------------------------------------------------------------

@pytest.fixture
def sglang(monkeypatch):
    """The classes of SGLang that read what a trainer sends."""
    common = engine_wheels.load_names(
        "sglang/srt/utils/common.py",
        {"SafeUnpickler", "MultiprocessingSerializer", "_safe_load_torch_storage"},
        monkeypatch, pickle=pickle, io=io, torch=torch, ForkingPickler=torch_forms.ForkingPickler)
    updater = engine_wheels.load_names(
        "sglang/srt/model_executor/model_runner_components/weight_updater.py", {"LocalSerializedTensor"}, monkeypatch,
        List=typing.List, MultiprocessingSerializer=common.MultiprocessingSerializer)
    bucket = engine_wheels.load("sglang/srt/weight_sync/tensor_bucket.py", monkeypatch)
    return type("SGLang", (), {"deserialize": staticmethod(common.MultiprocessingSerializer.deserialize),
                               "LocalSerializedTensor": updater.LocalSerializedTensor,
                               "FlattenedTensorBucket": bucket.FlattenedTensorBucket,
                               "FlattenedTensorMetadata": bucket.FlattenedTensorMetadata})


def test_sglang_reads_a_flattened_bucket(sglang):
    bucket = torch_forms.Bucket(4096)
    found = sglang.deserialize(torch_forms.sglang_flattened_payload(bucket, NAMED))
    assert set(found) == {"flattened_tensor", "metadata"}
    assert all(type(entry) is sglang.FlattenedTensorMetadata for entry in found["metadata"])
    tensors = sglang.FlattenedTensorBucket(**found).reconstruct_tensors()
    assert [name for name, _ in tensors] == [name for name, _ in NAMED]
    assert all(torch.equal(tensor, wanted[1]) for (_, tensor), wanted in zip(tensors, NAMED))
    theirs = sglang.FlattenedTensorBucket(named_tensors=NAMED)
    assert found["metadata"] == theirs.metadata
    assert torch.equal(found["flattened_tensor"], theirs.flattened_tensor)


def test_a_flattened_bucket_with_types_in_the_wrong_order_is_refused():
    with pytest.raises(ValueError, match="weight of torch.float32 would begin at byte 5 .* no multiple of 4"):
        torch_forms.sglang_flattened_payload(torch_forms.Bucket(4096), [NAMED[2], NAMED[0]])


def test_sglang_reads_the_tensor_of_its_own_rank(sglang):
    ranks = [[(name, torch_forms.sglang_serialize(tensor + rank)) for name, tensor in NAMED] for rank in range(2)]
    entries = torch_forms.sglang_payloads(ranks)
    assert len(entries) == 2
    for rank, entry in enumerate(entries):
        found = sglang.deserialize(entry)
        assert all(type(value) is sglang.LocalSerializedTensor for _, value in found)
        assert [name for name, _ in found] == [name for name, _ in NAMED]
        assert all(torch.equal(value.get(rank), wanted[1] + rank) for (_, value), wanted in zip(found, NAMED))
    with pytest.raises(ValueError, match="different tensors at the same place: bytes, weight"):
        torch_forms.sglang_payloads([[ranks[0][0]], [ranks[1][2]]])


def test_cpu_tensors_for_sglang_are_read_by_a_process_that_is_no_child_of_multiprocessing():
    payload = torch_forms.sglang_serialize(NAMED)
    output = run_reader("""
        import base64, json, pickle, sys
        import torch.multiprocessing
        print(json.dumps([[name, tensor.tolist()] for name, tensor in pickle.loads(base64.b64decode(sys.argv[1]))]))
    """, base64.b64encode(payload).decode())
    assert json.loads(output) == [[name, tensor.tolist()] for name, tensor in NAMED]


def test_sglang_reads_cuda_handles_by_the_function_that_it_patches(sglang, monkeypatch):
    gpus = FakeGpus(monkeypatch)
    # A class of PyTorch's own, so that pickle finds the function by its name.
    monkeypatch.setattr(reductions, "rebuild_cuda_tensor", lambda *fields: gpus.opened.append(fields))
    reductions.rebuild_cuda_tensor.__module__ = reductions.__name__
    reductions.rebuild_cuda_tensor.__qualname__ = "rebuild_cuda_tensor"
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    payload = torch_forms.sglang_serialize(torch.zeros(3, 4))
    sglang.deserialize(payload)
    assert gpus.opened == [(*gpus.FIELDS[:6], "77cc", *gpus.FIELDS[7:])]


# ---- vLLM -------------------------------------------------------------------------------------------------------------

def test_vllm_reads_a_packed_bucket(monkeypatch):
    packed_tensor = engine_wheels.load("vllm/distributed/weight_transfer/packed_tensor.py", monkeypatch)
    bucket = torch_forms.Bucket(4096)
    fields = torch_forms.pack_vllm(bucket, NAMED)
    found = packed_tensor.unpack_tensor(bucket.flat[:sum(fields["tensor_sizes"])], fields["names"], fields["shapes"],
                                        [getattr(torch, name) for name in fields["dtype_names"]],
                                        fields["tensor_sizes"])
    assert [name for name, _ in found] == [name for name, _ in NAMED]
    assert all(torch.equal(tensor, wanted[1]) for (_, tensor), wanted in zip(found, NAMED))
    theirs = packed_tensor.pack_tensors(iter(NAMED), lambda item: item[1], 4096)
    assert (theirs.names, theirs.shapes, theirs.tensor_sizes) == (fields["names"], fields["shapes"],
                                                                  fields["tensor_sizes"])
    assert torch.equal(theirs.packed_tensor, bucket.flat[:sum(fields["tensor_sizes"])])


def test_the_packed_fields_are_those_of_vllms_update(monkeypatch):
    base = engine_wheels.module_of("vllm.distributed.weight_transfer.base", monkeypatch)
    base.WeightTransferUpdateInfo = type("WeightTransferUpdateInfo", (), {})
    info = engine_wheels.load_names("vllm/distributed/weight_transfer/ipc_engine.py", {"IPCWeightTransferUpdateInfo"},
                                   monkeypatch, WeightTransferUpdateInfo=base.WeightTransferUpdateInfo)
    gpus = FakeGpus(monkeypatch)
    bucket = torch_forms.Bucket(4096)
    fields = torch_forms.pack_vllm(bucket, NAMED)
    assert "ipc_handles" not in fields  # On the CPU vLLM has no such transfer.
    bucket.device = torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: type("Stream", (), {"synchronize": int}))
    fields = torch_forms.pack_vllm(bucket, NAMED)
    update = info.IPCWeightTransferUpdateInfo(**fields)
    assert update.ipc_handles == {"77cc": (*gpus.FIELDS[:6], 0, *gpus.FIELDS[7:])}
    assert torch_forms.pack_vllm(bucket, NAMED[:1])["ipc_handles"] is fields["ipc_handles"]
    assert len(gpus.checked) == 1  # One export for all chunks.
