# SPDX-License-Identifier: Apache-2.0
"""Reads layouts from PyTorch: parameters as FSDP2 (fully_shard) or other users of DTensor divide them."""
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard

from tandem.layout import Layout, Slice, Tensor


def layout(source):
    """Return the tandem.layout.Layout of a module or of its state_dict.

    Each tensor is whole, or a DTensor that is divided by rows (or another dimension) and replicated over any mesh, as
    fully_shard does it. Its local shape counts: the storage behind it may be padded, and a rank may have nothing. A
    module's tied parameters are listed once, under their first name; a state_dict has them under each name.
    The slices are views of the parameters, so that a layout stays valid as long as these keep their memory.
    """
    if isinstance(source, torch.nn.Module):
        # state_dict() brings the parameters of FSDP back to their shards.
        source = _without_repeats(source.state_dict(keep_vars=True))
    tensors, slices = [], []
    for name, value in source.items():
        if not isinstance(value, torch.Tensor):
            continue  # Extra state of a module, which is no weight.
        tensor = Tensor(name, str(value.dtype).removeprefix("torch."), tuple(value.shape))
        tensors.append(tensor)
        part = slice_of(name, value)
        if part is not None:
            slices.append(part)
    return Layout(tensors, slices)


def slice_of(name, tensor):
    """Return the Slice of a tensor that this rank holds, or None if it holds nothing of it."""
    tensor = tensor.detach()
    if isinstance(tensor, DTensor):
        box = _box_of(name, tensor)
        local = tensor.to_local()
    else:
        box = ((0,) * tensor.dim(), tuple(tensor.shape), *_place_in_world())
        local = tensor
    if box is None or local.numel() == 0:
        return None
    offset, extent, replica, replicas = box
    if not local.is_contiguous():
        raise ValueError(f"{name} is not contiguous: shape {tuple(local.shape)}, strides {local.stride()}")
    return Slice(name, local, offset, extent, replica, replicas)


def _without_repeats(named):
    """Return the tensors of a dictionary that are not the same object as an earlier one."""
    seen = set()
    return {name: value for name, value in named.items() if not (id(value) in seen or seen.add(id(value)))}


def _place_in_world():
    """Return the rank of this process and the number of ranks."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def _box_of(name, tensor):
    """Return offset, extent, replica and replicas of a DTensor's local part; None outside of its mesh."""
    coordinates = tensor.device_mesh.get_coordinate()
    offset, extent = [0] * tensor.dim(), list(tensor.shape)
    replica, replicas = 0, 1
    if coordinates is None:
        return None
    for coordinate, ranks, placement in zip(coordinates, tensor.device_mesh.shape, tensor.placements):
        if placement.is_replicate():
            replica, replicas = replica * ranks + coordinate, replicas * ranks
        elif type(placement) is Shard:  # A subclass has another order of the pieces.
            dim = placement.dim % tensor.dim()
            chunk = -(-extent[dim] // ranks)
            first = min(coordinate * chunk, extent[dim])
            offset[dim] += first
            extent[dim] = min(chunk, extent[dim] - first)
        else:
            raise ValueError(f"{name} has the placement {placement}: only Shard and Replicate can be read")
    local = tuple(tensor.to_local().shape)
    if local != tuple(extent):
        raise ValueError(f"{name} has the local shape {local} on this rank, but {tensor.placements} of "
                         f"{tuple(tensor.shape)} is {tuple(extent)}")
    return tuple(offset), tuple(extent), replica, replicas
