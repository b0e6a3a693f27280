# SPDX-License-Identifier: Apache-2.0
"""Tensors that PyTorch in another process opens: buckets, and the forms in which their handles travel.

A process that has tensors packs them into a Bucket, which other processes of the node can open, and sends the handle
of each. A handle is a dictionary of numbers and texts, so that json.dumps() makes the bytes that Trainer.attach() of
tandem.job returns; no pickle is needed.

    bucket = Bucket(64 << 20, "cuda")                        # or "cpu"
    named = bucket.pack([("weight", model.weight)])          # the same tensors, but in the bucket
    handles = [handle_of(tensor) for _, tensor in named]     # in the other process: tensor_of(handle)

On the CPU a bucket is a descriptor (a memfd), of which PyTorch's storages are views; it may be that of a region of
Tandem, and tensors that lie in a region, or in the bucket of a weight update, need not be packed. On CUDA a bucket is
memory of torch.empty(), and its handles are the 15 fields of PyTorch's own reduce_tensor(), but with the UUID of the GPU instead
of its number, which differs between processes. CUDA exports memory of cudaMalloc only: expandable segments, Tandem's
regions and the memory of torch_memory_saver are refused by name.

pack_vllm() makes the fields of vLLM's packed transfer. For SGLang's /update_weights_from_tensor there are three ways:
sglang_custom_payload(), which sglang_load() of this module reads in the server (--custom-weight-loader), and
sglang_flattened_payload() and sglang_payloads(), which SGLang's own classes read. None of these projects need be
installed here.
"""
import base64
import io
import json
import os
import pickle

import torch
from multiprocessing.reduction import ForkingPickler
from torch.multiprocessing import reductions

from tandem import _tandem

__all__ = ["ALIGNMENT", "CUDA_FIELDS", "Bucket", "check_export", "handle_of", "pack_vllm", "sglang_custom_payload",
           "sglang_flattened_payload", "sglang_load", "sglang_pairs", "sglang_payloads", "sglang_serialize", "tensor_of"]

# The arguments of PyTorch's rebuild_cuda_tensor(), which are the fields that reduce_tensor() gives.
CUDA_FIELDS = ("tensor_cls", "tensor_size", "tensor_stride", "tensor_offset", "storage_cls", "dtype", "storage_device",
               "storage_handle", "storage_size_bytes", "storage_offset_bytes", "requires_grad", "ref_counter_handle",
               "ref_counter_offset", "event_handle", "event_sync_required")
_DEVICE = CUDA_FIELDS.index("storage_device")
# Tensors begin at multiples of this in a bucket, as in the buckets of a job's updates.
ALIGNMENT = 256


class Bucket:
    """Memory of tensors that PyTorch in other processes of this node can open; device is "cpu" or a CUDA device.

    flat is all of the memory, as a tensor of uint8; on the CPU it is a view of a descriptor. The bucket must live until
    the other processes have done what they do with its tensors. With memory it lies in a tandem.memory.Region or a
    tandem.job.Memory of the host, which must not be paused meanwhile. A region of CUDA is refused by name: cudaIpc
    cannot export it.
    """

    def __init__(self, size_bytes, device="cpu", memory=None):
        self.device = torch.device(device)
        self.size_bytes = size_bytes
        if memory is not None:
            flat = torch.from_dlpack(memory)
            if size_bytes > flat.numel():
                raise ValueError(f"a bucket of {size_bytes} bytes in memory of {flat.numel()}: make the region larger")
            self.flat = flat[:size_bytes]
            self.device = flat.device
            check_export(self.flat)
        elif self.device.type == "cpu":
            fd = os.memfd_create("tandem-bucket", os.MFD_CLOEXEC)
            try:
                os.ftruncate(fd, size_bytes)
                self.flat = _view_of_descriptor(fd, size_bytes)
            finally:
                os.close(fd)
        else:
            self.flat = torch.empty(size_bytes, dtype=torch.uint8, device=self.device)
            check_export(self.flat)

    def pack(self, named_tensors, aligned=True):
        """Copy (name, tensor) pairs into the bucket and return them as pairs whose tensors lie there.

        With aligned=False each begins where the one before ends, as vLLM and SGLang want it. On CUDA the copies are
        complete when this returns.
        """
        packed, end = [], 0
        for name, tensor in named_tensors:
            begin = -(-end // ALIGNMENT) * ALIGNMENT if aligned else end
            end = begin + tensor.numel() * tensor.element_size()
            if end > self.size_bytes:
                raise ValueError(f"the tensor {name} ends at byte {end} of a bucket of {self.size_bytes} bytes: "
                                 "use a larger bucket, or pack fewer tensors at once")
            place = self.flat[begin:end]
            place.copy_(tensor.detach().contiguous().reshape(-1).view(torch.uint8))
            if begin % tensor.element_size() == 0:
                packed.append((name, place.view(tensor.dtype).reshape(tensor.shape)))
            else:
                packed.append((name, None))  # PyTorch has no tensors at such places; the bytes are right.
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        return packed


def check_export(tensor):
    """Raise an exception that names the kind of memory if PyTorch cannot export a CUDA tensor's storage."""
    if tensor.is_cuda:
        storage = tensor.untyped_storage()
        with torch.cuda.device(tensor.device):
            torch.cuda.current_stream().synchronize()  # Makes the context current, which the check needs.
            _tandem.check_ipc(storage.data_ptr(), storage.nbytes())


def handle_of(tensor):
    """Return the handle of a tensor in a Bucket or a region, or of any CUDA tensor: a dictionary for json.dumps().

    On CUDA each handle must be opened exactly once, by tensor_of() or a framework: PyTorch counts them.
    """
    if tensor.is_cuda:
        return _json_of_cuda(_reduce_cuda(tensor))
    if tensor.device.type != "cpu":
        raise ValueError(f"a tensor of {tensor.device} has no handle: only those of the CPU and of CUDA have")
    storage = tensor.untyped_storage()
    if storage.is_shared():  # Otherwise _share_fd_cpu_() would move it to shared memory.
        fd, size_bytes = storage._share_fd_cpu_()  # The storage's own descriptor.
        offset = tensor.storage_offset()
    else:
        fd, begin, size_bytes = _file_of(tensor)
        offset = begin // tensor.element_size()
    found = os.fstat(fd)
    return {"kind": "descriptor", "pid": os.getpid(), "fd": fd, "device": found.st_dev, "inode": found.st_ino,
            "storage_bytes": size_bytes, "dtype": str(tensor.dtype).removeprefix("torch."),
            "offset": offset, "shape": list(tensor.shape), "stride": list(tensor.stride()),
            "requires_grad": tensor.requires_grad}


def _file_of(tensor):
    """Return the descriptor of the region in which a tensor lies, its first byte there, and the byte behind its last."""
    span_bytes = _span_bytes(tensor)
    found = _tandem.descriptor(tensor.data_ptr(), span_bytes)
    if found is None:
        raise ValueError("a tensor of the CPU that lies in no Bucket and in no region has no handle: pack it into a "
                         "Bucket")
    fd, begin = found
    if begin % tensor.element_size() != 0:
        raise ValueError(f"a tensor of {tensor.dtype} at byte {begin} of its region has no handle: such tensors begin at "
                         f"multiples of {tensor.element_size()} bytes")
    return fd, begin, begin + span_bytes


def _span_bytes(tensor):
    """Return the bytes from a tensor's first element to its last."""
    if tensor.numel() == 0:
        return 0
    return (sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride())) + 1) * tensor.element_size()


def tensor_of(handle):
    """Return the tensor of a handle of this node: a view of the other process's memory, without a copy."""
    if handle["kind"] == "cuda":
        return reductions.rebuild_cuda_tensor(*_cuda_of_json(handle))
    if handle["kind"] != "descriptor":
        raise ValueError(f"a handle of the kind {handle['kind']!r}; known are 'descriptor' and 'cuda'")
    path = f"/proc/{handle['pid']}/fd/{handle['fd']}"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise RuntimeError(f"{path} cannot be opened ({error.strerror}): the process that made the bucket has ended or "
                           "dropped it, or runs as another user or on another node") from None
    try:
        found = os.fstat(fd)
        if (found.st_dev, found.st_ino) != (handle["device"], handle["inode"]):
            raise RuntimeError(f"{path} is another file than that of the bucket, which its process has dropped: keep the "
                               "Bucket until its tensors were read")
        flat = _view_of_descriptor(fd, handle["storage_bytes"])
    finally:
        os.close(fd)
    metadata = (handle["offset"], torch.Size(handle["shape"]), tuple(handle["stride"]), handle["requires_grad"])
    storage = torch.storage.TypedStorage(wrap_storage=flat.untyped_storage(), dtype=_dtype(handle["dtype"]),
                                         _internal=True)
    return reductions.rebuild_tensor(torch.Tensor, storage, metadata)


def _view_of_descriptor(fd, size_bytes):
    """Return a tensor of uint8 that is a view of a descriptor, which PyTorch duplicates."""
    if size_bytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    storage = torch.UntypedStorage._new_shared_fd_cpu(fd, size_bytes)
    return torch.empty(0, dtype=torch.uint8).set_(storage)


def _reduce_cuda(tensor):
    """Return PyTorch's 15 fields of a CUDA tensor, the device as its UUID."""
    check_export(tensor)
    _, fields = reductions.reduce_tensor(tensor)
    if len(fields) != len(CUDA_FIELDS):
        raise RuntimeError(f"reduce_tensor() of PyTorch {torch.__version__} gives {len(fields)} fields, "
                           f"{len(CUDA_FIELDS)} are known: this version is not supported")
    device = fields[_DEVICE]
    if isinstance(device, int):  # SGLang's monkey_patch_torch_reductions() has already put the UUID there.
        device = str(torch.cuda.get_device_properties(device).uuid)
    return (*fields[:_DEVICE], device, *fields[_DEVICE + 1:])


def _device_of_uuid(uuid):
    """Return the number in this process of the GPU with this UUID."""
    seen = [str(torch.cuda.get_device_properties(number).uuid) for number in range(torch.cuda.device_count())]
    if uuid not in seen:
        raise ValueError(f"the tensor is on the GPU {uuid}; this process sees {', '.join(seen) or 'none'}: "
                         "open it in a process on the same GPU")
    return seen.index(uuid)


def _dtype(name):
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name!r} is no dtype of PyTorch {torch.__version__}")
    return dtype


def _json_of_cuda(fields):
    """Return the 15 fields as a dictionary of numbers and texts."""
    handle = dict(zip(CUDA_FIELDS, fields), kind="cuda")
    del handle["tensor_cls"], handle["storage_cls"]  # Always those of PyTorch; see _cuda_of_json().
    handle["dtype"] = str(handle["dtype"]).removeprefix("torch.")
    for name in ("tensor_size", "tensor_stride"):
        handle[name] = list(handle[name])
    for name in ("storage_handle", "ref_counter_handle", "event_handle"):
        handle[name] = None if handle[name] is None else base64.b64encode(handle[name]).decode()
    return handle


def _cuda_of_json(handle):
    """Return the arguments of rebuild_cuda_tensor() in this process."""
    fields = dict(handle, tensor_cls=torch.Tensor, storage_cls=torch.storage.TypedStorage)
    fields["tensor_size"] = torch.Size(handle["tensor_size"])
    fields["tensor_stride"] = tuple(handle["tensor_stride"])
    fields["dtype"] = _dtype(handle["dtype"])
    fields["storage_device"] = _device_of_uuid(handle["storage_device"])
    for name in ("storage_handle", "ref_counter_handle", "event_handle"):
        fields[name] = None if handle[name] is None else base64.b64decode(handle[name])
    return tuple(fields[name] for name in CUDA_FIELDS)


# ---- vLLM -------------------------------------------------------------------------------------------------------------

def pack_vllm(bucket, named_tensors):
    """Pack (name, tensor) pairs into a CUDA bucket and return the fields of vLLM's IPCWeightTransferUpdateInfo, packed.

    The fields of several ranks become those of one call when their ipc_handles are merged: a dictionary from the UUID
    of each GPU to PyTorch's 15 fields. A bucket's memory is exported once, with its first pack: vLLM keeps it open
    through all chunks of an update, and compares the fields to know it again. Only packed=True of vLLM reads this.
    """
    named_tensors = list(named_tensors)
    bucket.pack(named_tensors, aligned=False)
    fields = {"names": [name for name, _ in named_tensors],
              "dtype_names": [str(tensor.dtype).removeprefix("torch.") for _, tensor in named_tensors],
              "shapes": [list(tensor.shape) for _, tensor in named_tensors],
              "tensor_sizes": [tensor.numel() * tensor.element_size() for _, tensor in named_tensors]}
    if bucket.device.type == "cuda":
        if not hasattr(bucket, "_vllm_handles"):
            reduced = _reduce_cuda(bucket.flat)
            # vLLM looks the fields up by the UUID, and puts the number of its own device in.
            bucket._vllm_handles = {reduced[_DEVICE]: (*reduced[:_DEVICE], 0, *reduced[_DEVICE + 1:])}
        fields["ipc_handles"] = bucket._vllm_handles
    return fields


# ---- SGLang -----------------------------------------------------------------------------------------------------------

_HANDLES = "tandem.handles"  # Name of the one tensor of a custom payload: the handles, as JSON in uint8.


def _places(named_tensors):
    """Return a tensor of uint8 from the first byte of contiguous tensors of the CPU to the last, and their first bytes
    in it. The tensors lie in one region, such as the bucket of an update."""
    named_tensors = list(named_tensors)
    wrong = [name for name, tensor in named_tensors if tensor.is_cuda or not tensor.is_contiguous()]
    if wrong:
        raise ValueError(f"the tensors {', '.join(wrong)} are not contiguous tensors of the CPU: pack them into a Bucket")
    filled = [tensor for _, tensor in named_tensors if tensor.numel() > 0]
    if not filled:
        return torch.empty(0, dtype=torch.uint8), [0] * len(named_tensors)
    begin = min(tensor.data_ptr() for tensor in filled)
    end = max(tensor.data_ptr() + _span_bytes(tensor) for tensor in filled)
    flat = torch.frombuffer(_tandem.Memory(begin, end - begin), dtype=torch.uint8)
    return flat, [tensor.data_ptr() - begin if tensor.numel() > 0 else 0 for _, tensor in named_tensors]


def sglang_custom_payload(bucket, named_tensors):
    """Pack (name, tensor) pairs and return one rank's entry for load_format "tandem.torch_forms.sglang_load".

    The entry has the handle of the bucket and the place of each tensor, as JSON in a tensor, which is the only kind of
    value that SGLang gives to a custom loader. With None as the bucket nothing is copied: the tensors lie in one block
    of a region already, such as the bucket of a job's update on the host.
    """
    named_tensors = list(named_tensors)
    if bucket is None:
        flat, begins = _places(named_tensors)
    else:
        flat = bucket.flat
        begins = [tensor.data_ptr() - flat.data_ptr() for _, tensor in bucket.pack(named_tensors)]
    places = [[name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), begin]
              for (name, tensor), begin in zip(named_tensors, begins)]
    text = json.dumps({"bucket": handle_of(flat) if flat.numel() > 0 else None, "tensors": places}).encode()
    return pickle.dumps([(_HANDLES, torch.frombuffer(bytearray(text), dtype=torch.uint8))])


def sglang_load(model, named_tensors):
    """Load the tensors of custom payloads into an SGLang model: the server's --custom-weight-loader.

    Runs in the scheduler of an SGLang server, which calls it with its model.
    """
    for name, tensor in named_tensors:
        if name != _HANDLES:
            raise ValueError(f"the tensor {name} is no handle of a bucket: send it without this load_format")
        payload = json.loads(bytes(tensor.cpu().numpy()))
        handle = payload["bucket"]
        flat = torch.empty(0, dtype=torch.uint8) if handle is None else tensor_of(handle)
        tensors = []
        for place_name, dtype_name, shape, begin in payload["tensors"]:
            dtype = _dtype(dtype_name)
            size = torch.Size(shape)
            place = flat[begin:begin + size.numel() * dtype.itemsize]
            tensors.append((place_name, place.view(dtype).reshape(size)))
        model.load_weights(tensors)
        if flat.is_cuda:
            torch.cuda.current_stream(flat.device).synchronize()  # The sender's bucket is written again after this.


class _Global:
    """A class of a project that need not be installed here; calling it in a pickle makes an object."""

    def __init__(self, module, name):
        self.module = module
        self.name = name

    def __call__(self, *args):
        return _Call(self, args)


class _Call:
    """An object that the reader of a pickle makes by calling a _Global."""

    def __init__(self, function, args):
        self.function = function
        self.args = args

    def __reduce__(self):
        return self.function, self.args


_FlattenedTensorMetadata = _Global("sglang.srt.weight_sync.tensor_bucket", "FlattenedTensorMetadata")
_LocalSerializedTensor = _Global("sglang.srt.model_executor.model_runner_components.weight_updater",
                                 "LocalSerializedTensor")


class _Pickler(pickle._Pickler):
    """PyTorch's pickler of handles (ForkingPickler with the reductions), with UUIDs and foreign classes."""

    def __init__(self, file):
        super().__init__(file)
        self.dispatch_table = {**ForkingPickler(file).dispatch_table, torch.Tensor: self._reduce_tensor,
                               torch.nn.Parameter: self._reduce_tensor}

    @staticmethod
    def _reduce_tensor(tensor):
        if tensor.is_cuda:
            return reductions.rebuild_cuda_tensor, _reduce_cuda(tensor)
        return reductions.reduce_tensor(tensor.detach().clone())  # It moves the memory of what it is given.

    def save(self, obj, save_persistent_id=True):
        if isinstance(obj, _Global):
            self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())
            return None
        return super().save(obj, save_persistent_id)


def sglang_serialize(value):
    """Return what SGLang's MultiprocessingSerializer.serialize() returns: a pickle with handles of its tensors.

    CPU tensors travel as names of shared memory (PyTorch's strategy file_system), which processes can read that are not
    children of each other: their contents are copied there.
    """
    strategy = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy("file_system")
    try:
        file = io.BytesIO()
        _Pickler(file).dump(value)
    finally:
        torch.multiprocessing.set_sharing_strategy(strategy)
    return file.getvalue()


def sglang_flattened_payload(bucket, named_tensors):
    """Pack (name, tensor) pairs and return one rank's entry for load_format "flattened_bucket".

    It is the pickle of SGLang's FlattenedTensorBucket: a tensor of uint8 and its metadata. SGLang views the tensors in
    place, so that each must begin at a multiple of its element size: begin with the larger types. With None as the
    bucket the tensors lie in one region already, where there may be gaps between them.
    """
    named_tensors = list(named_tensors)
    metadata, end = [], 0
    if bucket is None:
        flat, begins = _places(named_tensors)
        for (name, tensor), begin in zip(named_tensors, begins):
            size_bytes = tensor.numel() * tensor.element_size()
            metadata.append(_FlattenedTensorMetadata(name, tensor.shape, tensor.dtype, begin, begin + size_bytes,
                                                     size_bytes))
        return sglang_serialize({"flattened_tensor": flat, "metadata": metadata})
    packed = bucket.pack(named_tensors, aligned=False)
    for (name, tensor), (_, place) in zip(named_tensors, packed):
        size_bytes = tensor.numel() * tensor.element_size()
        if place is None:
            raise ValueError(f"the tensor {name} of {tensor.dtype} would begin at byte {end} of the bucket, which is no "
                             f"multiple of {tensor.element_size()}: put tensors of larger types first")
        metadata.append(_FlattenedTensorMetadata(name, tensor.shape, tensor.dtype, end, end + size_bytes, size_bytes))
        end += size_bytes
    return sglang_serialize({"flattened_tensor": bucket.flat[:end], "metadata": metadata})


def sglang_pairs(named_tensors):
    """Return the list of (name, payload) pairs of one rank for sglang_payloads(), as JSON in bytes.

    On CUDA each tensor is exported by itself: it lies in a Bucket, or in other memory of cudaMalloc.
    """
    return json.dumps([[name, base64.b64encode(sglang_serialize(tensor)).decode()]
                       for name, tensor in named_tensors]).encode()


def sglang_payloads(named_payloads_of_ranks):
    """Return the entries of all ranks for load_format None, of lists of (name, payload) pairs, one list for each rank.

    A payload is sglang_serialize(tensor) of that rank; a list may be in the form of sglang_pairs(). All ranks have the
    same names in the same order. Each entry is the list of (name, LocalSerializedTensor), of which a rank opens its own.
    """
    named_payloads_of_ranks = [
        [(name, base64.b64decode(payload)) for name, payload in json.loads(pairs)] if isinstance(pairs, bytes) else pairs
        for pairs in named_payloads_of_ranks]
    merged = []
    for pairs in zip(*named_payloads_of_ranks, strict=True):
        names = {name for name, _ in pairs}
        if len(names) != 1:
            raise ValueError(f"the ranks have different tensors at the same place: {', '.join(sorted(names))}")
        merged.append((pairs[0][0], _LocalSerializedTensor([payload for _, payload in pairs])))
    entry = sglang_serialize(merged)
    return [entry] * len(named_payloads_of_ranks)
