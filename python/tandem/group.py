# SPDX-License-Identifier: Apache-2.0
"""Collective operations of a fixed set of processes of a cluster (include/tandem/collective.h).

    group = tandem.group.join("trainers", rank, ranks_count, timeout=60)
    group.all_reduce(gradient)          # in place: an array of numpy or a CPU tensor of PyTorch
    parts = group.gather(shard, root=0)  # of different sizes; a list of bytes at the root, None elsewhere
    group.leave()

Every member makes the same calls in the same order; a call waits for all members. If a member dies or does not come
within the timeout, the calls of all others raise an exception that names its rank (GetTimeoutError for a late one), and
the members must join a new group. Members on one node use shared memory, others TCP. A process must have joined a
cluster: it is an actor, or has called ray.init(). One thread at a time may use a group.
"""
import struct

from tandem._dtypes import is_torch
from tandem import _tandem
from tandem.ray import exceptions as _exceptions  # noqa: F401  (makes failures exceptions of their own types)

__all__ = ["Group", "join"]

_OPERATIONS = ("sum", "max")


def join(name, rank, ranks_count, *, timeout=60.0, slot_bytes=0, node_id=None):
    """Join the group of that name and wait until all members have joined.

    name is the same for all members and unique on the node; timeout, in seconds, bounds this and every later call.
    slot_bytes is the staging memory of one rank, by default 1 MiB. Members on several nodes give the ID of one node, at
    which they find each other.
    """
    if timeout <= 0:
        raise ValueError(f"a timeout of {timeout} seconds")
    return Group(_tandem.join_collective(name, rank, ranks_count, int(timeout * 1000) or 1, slot_bytes, node_id))


def _bytes_view(data, is_written):
    """Return (memoryview of bytes, function that copies them back or None) of a tensor, array or buffer."""
    if is_torch(data):
        import torch
        with torch.no_grad():
            flat = data.detach()
            if flat.device.type != "cpu":
                raise TypeError(f"a tensor on {flat.device}: only tensors on the CPU are supported")
            if flat.is_contiguous():
                return memoryview(flat.reshape(-1).view(torch.uint8).numpy()), None
            copy = flat.contiguous()

            def copy_back():
                with torch.no_grad():
                    flat.copy_(copy)
            return memoryview(copy.reshape(-1).view(torch.uint8).numpy()), copy_back if is_written else None
    view = memoryview(data)
    if not view.c_contiguous:
        if is_written:
            raise TypeError("the array is not contiguous")
        return memoryview(view.tobytes()), None
    if is_written and view.readonly:
        raise TypeError("the data cannot be written")
    return view.cast("B"), None


def _is_double(data):
    """Return whether the elements are of 8 bytes; raise TypeError if they are neither float nor double."""
    if is_torch(data):
        kind = str(data.dtype)
    else:
        kind = {"f": "float32", "d": "float64"}.get(memoryview(data).format, memoryview(data).format)
    kind = kind.removeprefix("torch.")
    if kind not in ("float32", "float64"):
        raise TypeError(f"sums and maxima are of float32 or float64, not of {kind}")
    return kind == "float64"


class Group:
    """A membership in a collective group; join() makes one. It may be used in a with statement, which leaves it."""

    def __init__(self, collective):
        self._collective = collective

    @property
    def rank(self):
        """Rank of this process in the group."""
        return self._collective.rank

    @property
    def ranks_count(self):
        """Number of members."""
        return self._collective.ranks_count

    def leave(self):
        """Leave the group. A group that a job has made (Context.group) belongs to the job."""
        self._collective.leave()

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.leave()

    def barrier(self):
        """Wait until all ranks have called this method."""
        self._collective.barrier()

    def all_reduce(self, data, op="sum"):
        """Replace float32 or float64 numbers by their sum or maximum ("max") over all ranks, and return data.

        Every rank gets the same bits, because sums are taken in the order of ranks.
        """
        if op not in _OPERATIONS:
            raise ValueError(f"the operation {op!r} is not one of {', '.join(_OPERATIONS)}")
        view, copy_back = _bytes_view(data, True)
        self._collective.all_reduce(view, _is_double(data), op == "max")
        if copy_back is not None:
            copy_back()
        return data

    def reduce_scatter(self, data, result):
        """Sum the ranks' float32 numbers, write this rank's part of the sums to result, and return it."""
        if _is_double(data) or _is_double(result):
            raise TypeError("reduce_scatter() is of float32")
        view, _ = _bytes_view(data, False)
        out, copy_back = _bytes_view(result, True)
        self._collective.reduce_scatter(view, out)
        if copy_back is not None:
            copy_back()
        return result

    def broadcast(self, data, root=0):
        """Copy the data of rank root to the data of all ranks, which have the same size, and return data."""
        view, copy_back = _bytes_view(data, True)
        self._collective.broadcast(view, root)
        if copy_back is not None:
            copy_back()
        return data

    def all_gather(self, data):
        """Return the list of the bytes of all ranks, in the order of ranks; the sizes may differ."""
        view, _ = _bytes_view(data, False)
        sizes = self._sizes(len(view))
        widest = max(sizes)
        if widest == 0:
            return [b""] * len(sizes)
        out = bytearray(widest * len(sizes))
        self._collective.all_gather(_padded(view, widest), out)
        return _split(out, sizes, widest)

    def gather(self, data, root=0):
        """Return at rank root the list of the bytes of all ranks, None elsewhere; the sizes may differ."""
        view, _ = _bytes_view(data, False)
        sizes = self._sizes(len(view))
        widest = max(sizes)
        is_root = self.rank == root
        if widest == 0:
            return [b""] * len(sizes) if is_root else None
        out = bytearray(widest * len(sizes) if is_root else 0)
        self._collective.gather(_padded(view, widest), out, root)
        return _split(out, sizes, widest) if is_root else None

    def _sizes(self, size_bytes):
        """Return the sizes of the data of all ranks."""
        out = bytearray(8 * self.ranks_count)
        self._collective.all_gather(struct.pack("=Q", size_bytes), out)
        return struct.unpack(f"={self.ranks_count}Q", out)


def _padded(view, size_bytes):
    """Return the bytes with zeros behind them, up to size_bytes."""
    return view if len(view) == size_bytes else bytes(view) + bytes(size_bytes - len(view))


def _split(data, sizes, step):
    """Return the first bytes of each part of `step` bytes."""
    view = memoryview(data)
    return [bytes(view[rank * step:rank * step + size]) for rank, size in enumerate(sizes)]
