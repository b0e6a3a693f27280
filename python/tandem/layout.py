# SPDX-License-Identifier: Apache-2.0
"""Layouts: which tensors a model has, and which parts of them lie where in the memory of this rank.

A layout is what a weight update needs from a rank. tandem.torch and tandem.megatron read it from a model.
"""
import dataclasses
import zlib
from typing import Any

DIMS_MAX = 4
NAME_BYTES_MAX = 95
DTYPES = frozenset(("float32", "float16", "bfloat16", "float8_e4m3fn", "float64", "int64", "int32", "int16", "int8",
                    "uint64", "uint32", "uint16", "uint8", "bool"))


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A whole tensor of a model: its name in Hugging Face's files, its type as torch calls it, and its shape."""
    name: str
    dtype: str
    shape: tuple

    def __post_init__(self):
        if not 1 <= len(self.name.encode()) <= NAME_BYTES_MAX:
            raise ValueError(f"the name {self.name!r} has {len(self.name.encode())} bytes: 1 to {NAME_BYTES_MAX} are "
                             "possible")
        if self.dtype not in DTYPES:
            raise TypeError(f"{self.name} has the type {self.dtype}, which updates cannot move: {sorted(DTYPES)}")
        if len(self.shape) > DIMS_MAX:
            raise ValueError(f"{self.name} has {len(self.shape)} dimensions: at most {DIMS_MAX} are possible")


@dataclasses.dataclass(frozen=True)
class Slice:
    """A box of a tensor that this rank holds.

    memory is a contiguous torch tensor of the shape extent; it keeps the elements alive. The same box lies on
    replicas ranks, of which this one has the number replica, from 0.
    """
    name: str
    memory: Any
    offset: tuple
    extent: tuple
    replica: int = 0
    replicas: int = 1

    @property
    def address(self):
        """The address of the first element."""
        return self.memory.data_ptr()

    @property
    def is_sent(self):
        """Return whether this rank is the replica that sends the box if nothing else decides."""
        return zlib.crc32(f"{self.name} {self.offset}".encode()) % self.replicas == self.replica


@dataclasses.dataclass(frozen=True)
class Layout:
    """The tensors that this rank knows of, and its slices of them, which are never empty."""
    tensors: list
    slices: list

    def sent(self):
        """Return the slices that this rank sends: those of all ranks together have each element once."""
        return [part for part in self.slices if part.is_sent]


def join(lists):
    """Return the tensors of several ranks' layouts as one list, which is the same on every rank.

    A rank of a pipeline knows the tensors of its stage only. The lists are in the order of the ranks, as from
    torch.distributed.all_gather_object(lists, layout.tensors).
    """
    tensors = {}
    for rank, listed in enumerate(lists):
        for tensor in listed:
            first = tensors.setdefault(tensor.name, tensor)
            if first != tensor:
                raise ValueError(f"{tensor.name} is {tensor.dtype} {tensor.shape} on rank {rank}, and {first.dtype} "
                                 f"{first.shape} on an earlier rank")
    return list(tensors.values())
