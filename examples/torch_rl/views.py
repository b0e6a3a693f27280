# SPDX-License-Identifier: Apache-2.0
"""Parameters and optimizer state as views of memory that PyTorch did not allocate.

FSDP2 has no public way for that which keeps tied parameters and shards of uneven size. So this file replaces the two
tensors that FSDP keeps for each parameter, under private names of torch 2.13, and checks the addresses afterwards.
"""
import math

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

TORCH = "2.13."
ALIGNMENT = 256


class BufferAllocator:
    """Puts tensors one after the other into a writable buffer, each at a multiple of 256 bytes.

    A tensor keeps the buffer, and the buffer of a region keeps the region.
    """

    def __init__(self, buffer):
        self.buffer = buffer
        self.used_bytes = 0

    def empty(self, shape, dtype):
        """Return a tensor with undefined contents; MemoryError if it does not fit."""
        elements = math.prod(shape)
        size = elements * dtype.itemsize
        if self.used_bytes + size > len(self.buffer):
            raise MemoryError(f"a tensor of {size} bytes at {self.used_bytes} in a region of {len(self.buffer)}")
        if elements == 0:
            return torch.empty(shape, dtype=dtype)
        tensor = torch.frombuffer(self.buffer, dtype=dtype, count=elements, offset=self.used_bytes)
        self.used_bytes += aligned(size)
        return tensor.view(shape)


def aligned(size):
    """Return a number of bytes, rounded up to what an allocator uses for them."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def shard_bytes(model, ranks):
    """Return the bytes that the shards of a model's parameters need on each rank, padding included."""
    return sum(aligned(-(-parameter.shape[0] // ranks) * math.prod(parameter.shape[1:]) * parameter.element_size())
               for parameter in model.parameters())


def state_bytes(model, ranks):
    """Return the bytes that AdamW's two moments of the shards need on each rank."""
    return 2 * shard_bytes(model, ranks)


def parameters_move(model, allocator):
    """Make the shards of a divided model views of the allocator's memory; their contents stay."""
    if not torch.__version__.startswith(TORCH):
        raise RuntimeError(f"torch {torch.__version__} is not {TORCH}x, whose private names this example uses")
    for parameter in _fsdp_parameters(model):
        old = parameter._sharded_param_data
        flat = allocator.empty((old.numel(),), old.dtype)
        flat.copy_(old)
        dim = parameter.fsdp_placement.dim
        length = parameter.sharded_param._local_tensor.shape[dim]
        parameter._sharded_param_data = flat
        parameter.sharded_param._local_tensor = flat.view(parameter.padded_sharded_param_size).narrow(dim, 0, length)


def state_create(optimizer, allocator):
    """Make AdamW's state of a divided model in the allocator's memory, with moments of 0; Adam itself would make it
    of its own memory in the first step."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state[parameter]
            state["step"] = torch.zeros((), dtype=torch.float32)
            for name in ("exp_avg", "exp_avg_sq"):
                local = allocator.empty(parameter.to_local().shape, parameter.dtype).zero_()
                state[name] = DTensor.from_local(local, parameter.device_mesh, parameter.placements, run_check=False,
                                                 shape=parameter.shape, stride=parameter.stride())


def state_reset(optimizer):
    """Let AdamW begin again: moments and steps of 0."""
    for state in optimizer.state.values():
        for value in state.values():
            value.zero_()


def addresses(model, optimizer=None):
    """Return [(address, bytes)] of the shards that FSDP gathers from and of the moments, without empty ones."""
    tensors = [tensor for parameter in _fsdp_parameters(model)
               for tensor in (parameter._sharded_param_data, parameter.sharded_param._local_tensor)]
    if optimizer is not None:
        tensors += [value.to_local() for state in optimizer.state.values() for value in state.values()
                    if isinstance(value, DTensor)]
    return [(tensor.data_ptr(), tensor.numel() * tensor.element_size()) for tensor in tensors if tensor.numel() > 0]


def check(model, optimizer, buffers):
    """Raise RuntimeError unless all shards and moments lie in one of the buffers."""
    ranges = []
    for buffer in buffers:
        first = torch.frombuffer(buffer, dtype=torch.uint8).data_ptr()
        ranges.append((first, first + len(buffer)))
    outside = [f"{address:#x}" for address, size in addresses(model, optimizer)
               if not any(first <= address and address + size <= end for first, end in ranges)]
    if outside:
        raise RuntimeError(f"{len(outside)} tensors lie outside of the regions, the first at {outside[0]}: torch has "
                           "replaced them")


def _fsdp_parameters(model):
    for module in model.modules():
        if isinstance(module, FSDPModule):
            group = module._get_fsdp_state()._fsdp_param_group
            if group is not None:
                yield from group.fsdp_params
