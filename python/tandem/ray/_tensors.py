# SPDX-License-Identifier: Apache-2.0
"""Tensors of PyTorch in values: the memory of CPU tensors travels as buffers, out of the pickle.

PyTorch pickles a tensor as a view (type, offset, sizes, strides) of a storage, and a parameter as a tensor. Only the
storages are pickled here; the rest is PyTorch's own. So tensors of one value that share a storage still do when they
are read, and a view takes the whole of its storage along, both as in Ray. Storages that are not in the memory of the
CPU are left to PyTorch.

A storage that is read is a writable copy, because PyTorch knows no read-only tensors and a write to the memory of a
value would be a fault. With RAY_ENABLE_ZERO_COPY_TORCH_TENSORS=1 in the process that reads, the storage lies in the
value itself.
"""
import ctypes
import os
import pickle
import sys

ZERO_COPY_VARIABLE = "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS"


def reducers():
    """Return the functions that reduce storages, by class; nothing while PyTorch is not imported."""
    torch = sys.modules.get("torch")
    typed = getattr(getattr(torch, "storage", None), "TypedStorage", None)
    untyped = getattr(torch, "UntypedStorage", None)
    # PyTorch may be half imported, by another thread, or older than 2.0.
    if typed is None or not hasattr(typed, "untyped") or untyped is None or not hasattr(torch, "from_dlpack"):
        return {}
    return {typed: _reduce_typed, untyped: _reduce_untyped}


def _reduce_typed(storage, _):
    """Reduce the pair of a storage and a type, of which each tensor makes a new one.

    Tensors that share memory have the same untyped storage, which the pickle contains once.
    """
    untyped = storage._untyped_storage
    return (_typed, (untyped, storage.dtype)) if _is_on_cpu(untyped) else NotImplemented


def _reduce_untyped(storage, _):
    """Reduce the memory of tensors to a buffer."""
    if not _is_on_cpu(storage):
        return NotImplemented
    size = storage.nbytes()
    if size == 0:
        return _untyped, (None,)
    contents = (ctypes.c_char * size).from_address(storage.data_ptr())
    contents.storage = storage  # Keeps the memory until it has been sent.
    return _untyped, (pickle.PickleBuffer(contents),)


def _is_on_cpu(storage):
    return storage.device.type == "cpu"


def _typed(contents, dtype):
    """Return the storage of _untyped() as the tensors of one type know it."""
    import torch
    return torch.storage.TypedStorage(wrap_storage=contents._untyped_storage, dtype=dtype, _internal=True)


def _untyped(buffer):
    """Return the storage with the contents of a Buffer, as a storage of bytes.

    A tensor whose type no typed storage knows was pickled with an untyped storage and wants a typed one back.
    """
    import torch
    if buffer is None:
        storage = torch.UntypedStorage(0)
    else:
        contents = torch.from_dlpack(buffer.unmarked_dlpack())
        storage = (contents if _is_enabled(ZERO_COPY_VARIABLE) else _copy(contents)).untyped_storage()
    return torch.storage.TypedStorage(wrap_storage=storage, dtype=torch.uint8, _internal=True)


def _copy(contents):
    """Return a copy of a tensor of bytes.

    PyTorch's own copy of many bytes starts the threads of OpenMP, which a process that only receives should not have.
    """
    import torch
    copy = torch.empty_like(contents)
    ctypes.memmove(copy.data_ptr(), contents.data_ptr(), len(contents))  # Without the GIL.
    return copy


def _is_enabled(variable):
    return os.environ.get(variable, "").lower() in ("1", "true")
