# SPDX-License-Identifier: Apache-2.0
"""Device memory of an actor that can be taken away and given back: regions by tag, pause and resume, budgets.

A trainer and an engine on one GPU take turns: one side pauses its memory, the other resumes its own. Each region has a
tag, and pause() and resume() work on all memory of this process that has one of the tags:

    weights = memory.allocate("weights", 64 << 20)
    tensor = weights.tensor((1024, 1024), torch.bfloat16)    # In place.
    memory.pause("weights")                                  # The memory is free for other actors.
    memory.resume("weights", timeout=60)                     # `tensor` has its contents again.

A tensor must not be used while its region is paused: that is SIGSEGV, and the text of ActorDiedError then names the
region. guard() lets a module and an optimizer raise MemoryPausedError before they touch it. The functions of this module
may be called on one thread at a time.
"""
import math
import weakref

from tandem import _tandem

__all__ = ["Budget", "Guard", "MemoryPausedError", "OutsideMemory", "PluggableAllocator", "Region", "TensorAllocator",
           "allocate", "allocator", "check", "guard", "is_resident", "outside", "pause", "regions", "resume"]

ALIGNMENT = 256  # Bytes to whose multiples TensorAllocator aligns its tensors.

_regions = []  # Weak references to the living memory of this process, in order of creation.
_shown = []  # Weak references to memory that others pause and resume, such as the regions of a job's rank.


class MemoryPausedError(RuntimeError):
    """Memory was about to be used while it is paused; `tag` is its tag."""

    def __init__(self, tag):
        super().__init__(f"the memory {tag!r} is paused: call tandem.memory.resume({tag!r}) before it is used")
        self.tag = tag


class Region(_tandem.Region):
    """Device memory of this actor, in place for torch, numpy and memoryview, that pause() takes away.

    tag names what the memory is for; size_bytes is rounded up to whole blocks of 2 MiB. keep: a pause copies the
    contents to host memory and a resume copies them back; otherwise they are undefined after a resume. gpu is the index
    among the actor's GPUs. paused: the region starts without memory. The region ends with its last tensor, array or
    buffer, of which users_count is the number, or in free().
    """

    def __new__(cls, tag, size_bytes, *, keep=True, gpu=0, paused=False):
        """Reserve the addresses and, unless paused, take the memory."""
        self = super().__new__(cls, tag, size_bytes, keep=keep, gpu=gpu, paused=paused)
        self.keep = keep
        _register(self)
        return self

    def buffer(self):
        """Return a memoryview of the bytes, which may be written; BufferError while paused, and on a CUDA GPU."""
        return memoryview(self)

    def tensor(self, shape=None, dtype=None, offset=0):
        """Return a torch tensor that lies in the region, from the byte `offset` on.

        Without a shape the tensor has one dimension and all bytes that are left; without a dtype it has torch.uint8.
        The tensor keeps the region. BufferError while the region is paused.
        """
        import torch
        dtype = torch.uint8 if dtype is None else dtype
        if shape is None:
            shape = ((self.size_bytes - offset) // dtype.itemsize,)
        size_bytes = math.prod(shape) * dtype.itemsize
        if offset < 0 or offset % dtype.itemsize != 0 or offset + size_bytes > self.size_bytes:
            raise ValueError(f"a tensor of {size_bytes} bytes of {dtype} at offset {offset} of the region {self.tag!r}, "
                             f"which has {self.size_bytes}: offsets are multiples of {dtype.itemsize}")
        return torch.from_dlpack(self)[offset:offset + size_bytes].view(dtype).view(shape)

    def check(self):
        """Raise MemoryPausedError if the region is paused."""
        if not self.is_resident:
            raise MemoryPausedError(self.tag)

    def free(self):
        """Give memory and addresses back now; an exception while tensors, arrays or buffers lie in the region."""
        super().free()
        _regions[:] = [entry for entry in _regions if entry() is not self]

    def __repr__(self):
        """Return the tag, the size and the state."""
        try:
            state = "resident" if self.is_resident else "paused"
            return f"<tandem.memory.Region {self.tag!r}, {self.size_bytes} bytes, {state}>"
        except Exception:  # The region was freed, or the runtime has stopped.
            return "<tandem.memory.Region, freed>"


class OutsideMemory(_tandem.OutsideMemory):
    """Memory of this actor's GPU that the program allocates without Tandem, such as that of PyTorch's allocator.

    It starts paused, and takes part in pause() and resume() under its tag. The functions resume_memory and pause_memory
    of the program, called with the tag, allocate and free it; processes of this actor may have it, too. size_bytes is
    what it may use, and is granted before it is allocated. What the device then reports is in reported_bytes, and
    what is left of a pause in left_bytes; differences of more than 16 MiB and a sixteenth are logged with both numbers
    and count for other actors. keep: pause_memory keeps the contents in host memory.
    """

    def __new__(cls, tag, size_bytes, *, pause, resume, keep=False, gpu=0):
        """Declare the memory."""
        self = super().__new__(cls, tag, size_bytes, keep=keep, gpu=gpu)
        self.tag, self.size_bytes, self.keep = tag, size_bytes, keep
        self.reported_bytes = self.left_bytes = 0
        self._pause, self._resume = pause, resume
        _register(self)
        return self

    def resume(self, timeout=None):
        """Wait at most that many seconds for the declared bytes, then let the program allocate them."""
        self.begin_resume(timeout)
        try:
            self._resume(self.tag)
        except BaseException:
            self.left_bytes = self.end_pause(0)
            raise
        self.reported_bytes = self.end_resume()

    def pause(self, timeout=5):
        """Let the program free the memory, then wait at most that many seconds until the device reports it free."""
        self.begin_pause()
        try:
            self._pause(self.tag)
        except BaseException:
            self.reported_bytes = self.end_resume()
            raise
        self.left_bytes = self.end_pause(timeout)

    def check(self):
        """Raise MemoryPausedError if the memory is paused."""
        if not self.is_resident:
            raise MemoryPausedError(self.tag)


class TensorAllocator:
    """Puts tensors one after the other into a region, each at a multiple of 256 bytes."""

    def __init__(self, region):
        """Begin with an empty region."""
        self.region = region
        self.used_bytes = 0

    @staticmethod
    def size_of(tensors):
        """Return the bytes that a region needs for copies of the tensors."""
        return sum(_aligned(tensor.numel() * tensor.element_size()) for tensor in tensors)

    @property
    def free_bytes(self):
        """Bytes that are left."""
        return self.region.size_bytes - self.used_bytes

    def empty(self, shape, dtype=None):
        """Return a new tensor of the region with undefined contents; MemoryError if it does not fit."""
        import torch
        dtype = torch.get_default_dtype() if dtype is None else dtype
        size_bytes = math.prod(shape) * dtype.itemsize
        if size_bytes > self.free_bytes:
            raise MemoryError(f"a tensor of {size_bytes} bytes in the region {self.region.tag!r}, which has "
                              f"{self.free_bytes} of {self.region.size_bytes} bytes left")
        tensor = self.region.tensor(shape, dtype, self.used_bytes)
        self.used_bytes = min(self.used_bytes + _aligned(size_bytes), self.region.size_bytes)
        return tensor

    def copy(self, tensor):
        """Return a contiguous copy of the tensor that lies in the region."""
        copied = self.empty(tensor.shape, tensor.dtype)
        copied.copy_(tensor.detach())
        return copied


class PluggableAllocator:
    """Lets PyTorch allocate CUDA memory in a region: what allocator() returns.

    library is the file that has the functions, alloc_name and free_name are their names, as
    torch.cuda.memory.CUDAPluggableAllocator wants them. The region cannot be freed before close().
    """

    alloc_name = "tandem_allocator_alloc"
    free_name = "tandem_allocator_free"

    def __init__(self, region):
        """Open the region's allocator; RuntimeError if its device has one already."""
        self.region = region
        self.library = _tandem.__file__
        self.device_number = _tandem.allocator_open(region)

    @property
    def used_bytes(self):
        """Bytes that are allocated now."""
        return _tandem.allocator_used_bytes(self.device_number)

    def torch(self):
        """Return the torch.cuda.memory.CUDAPluggableAllocator."""
        import torch
        return torch.cuda.memory.CUDAPluggableAllocator(self.library, self.alloc_name, self.free_name)

    def close(self):
        """End the allocator; RuntimeError while there are allocations."""
        _tandem.allocator_close(self.device_number)


class Guard:
    """Hooks that guard() has installed; remove() takes them away."""

    def __init__(self, handles):
        """Keep the handles of the hooks."""
        self._handles = handles

    def remove(self):
        """Take the hooks away. A second call does nothing."""
        while self._handles:
            self._handles.pop().remove()


class Budget:
    """Bytes of device memory of one GPU by phase, computed before anything runs.

    budget = Budget(80 << 30)
    budget.add("trainer", "optimizer", 40 << 30, phases=("train",))
    budget.add("engine", "kv_cache", 50 << 30, phases=("rollout",))
    budget.check()
    """

    def __init__(self, gpu_bytes):
        """Begin with an empty GPU of that many bytes."""
        self.gpu_bytes = gpu_bytes
        self._entries = []  # (who, tag, bytes in whole blocks, phases)

    def add(self, who, tag, size_bytes, *, phases):
        """Declare that `who` has memory with that tag resident in these phases, which are names."""
        if size_bytes <= 0 or not phases:
            raise ValueError(f"{who}'s {tag!r}: {size_bytes} bytes in {len(phases)} phases")
        self._entries.append((who, tag, -(-size_bytes // _BLOCK_BYTES) * _BLOCK_BYTES, tuple(phases)))

    def phases(self):
        """Return the names of all phases, in the order in which they were first named."""
        return list(dict.fromkeys(phase for entry in self._entries for phase in entry[3]))

    def peak_bytes(self, phase):
        """Return the bytes that are resident in the phase, each declaration in whole blocks of 2 MiB."""
        return sum(size_bytes for _, _, size_bytes, phases in self._entries if phase in phases)

    def check(self):
        """Return the bytes that are free in the tightest phase; MemoryError names a phase that does not fit."""
        for phase in self.phases():
            if self.peak_bytes(phase) > self.gpu_bytes:
                parts = ", ".join(f"{who}'s {tag} {_mib(size_bytes)}" for who, tag, size_bytes, phases in self._entries
                                  if phase in phases)
                raise MemoryError(f"phase {phase!r}: {_mib(self.peak_bytes(phase))} MiB wanted ({parts}), "
                                  f"{_mib(self.gpu_bytes)} MiB there")
        return self.gpu_bytes - max((self.peak_bytes(phase) for phase in self.phases()), default=0)


def allocate(tag, size_bytes, *, keep=True, gpu=0, paused=False):
    """Return a new Region; its arguments are those of the class."""
    return Region(tag, size_bytes, keep=keep, gpu=gpu, paused=paused)


def outside(tag, size_bytes, *, pause, resume, keep=False, gpu=0):
    """Return new OutsideMemory; its arguments are those of the class. The program keeps the object."""
    return OutsideMemory(tag, size_bytes, pause=pause, resume=resume, keep=keep, gpu=gpu)


def allocator(region):
    """Return a PluggableAllocator, with which PyTorch allocates CUDA memory in the region.

    One for each device. Nothing is allocated while the region is paused: PyTorch reports that no memory is left. Use it
    for a pool, which gives memory back only when no stream uses it any more:

        pool = torch.cuda.MemPool(memory.allocator(region).torch().allocator())
        with torch.cuda.use_mem_pool(pool):
            model = build()

    No GPU has run this yet: its two functions are tested alone.
    """
    return PluggableAllocator(region)


def regions(*tags):
    """Return the living memory of this process with one of the tags (all without tags), in order of creation."""
    return _with_tags(_regions, tags)


def _with_tags(entries, tags):
    """Return the living memory of a list of weak references with one of the tags; KeyError for a tag without memory."""
    found = [region for region in (entry() for entry in entries) if region is not None]
    unknown = set(tags) - {region.tag for region in found}
    if unknown:
        raise KeyError(f"no memory has the tag {sorted(unknown)[0]!r}; there are: {sorted({r.tag for r in found})}")
    return [region for region in found if not tags or region.tag in tags]


def pause(*tags):
    """Pause the resident memory with one of the tags (all without tags); return the bytes that were given back.

    The newest memory is paused first. If one pause fails, what was paused before is resumed.
    """
    return _change(reversed(regions(*tags)), True, lambda region: region.pause(), lambda region: region.resume(60))


def resume(*tags, timeout=None):
    """Resume the paused memory with one of the tags (all without tags); return the bytes that were taken.

    Waits for each region `timeout` seconds for memory that another process gives back. If one resume fails, what was
    resumed before is paused again.
    """
    return _change(regions(*tags), False, lambda region: region.resume(timeout=timeout), lambda region: region.pause())


def is_resident(*tags):
    """Return whether all memory with one of the tags (all without tags) is resident, a job's regions included."""
    return all(region.is_resident for region in _with_tags(_regions + _shown, tags))


def check(*tags):
    """Raise MemoryPausedError if memory with one of the tags (all without tags) is paused, a job's regions included."""
    for region in _with_tags(_regions + _shown, tags):
        region.check()


def guard(module=None, optimizer=None, tags=()):
    """Let the torch module before forward(), and the optimizer before step(), call check(*tags); return a Guard.

    The exception replaces SIGSEGV where the hooks are: a backward pass, and direct uses of tensors, are not guarded.
    """
    handles = []
    if module is not None:
        # In front of the hooks that are there already: those of FSDP read the parameters.
        handles.append(module.register_forward_pre_hook(lambda *_: check(*tags), prepend=True))
    if optimizer is not None:
        handles.append(optimizer.register_step_pre_hook(lambda *_: check(*tags)))
    return Guard(handles)


_BLOCK_BYTES = 2 << 20  # Sizes of regions are multiples of this number.


def _aligned(size_bytes):
    """Round up to a multiple of ALIGNMENT."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def _mib(size_bytes):
    """Return bytes as a text in MiB."""
    return f"{size_bytes / (1 << 20):.1f}"


def _register(region):
    """Add memory to the list of this process, and forget what has ended."""
    _regions[:] = [entry for entry in _regions if entry() is not None]
    _regions.append(weakref.ref(region))


def _show(memory):
    """Let check(), is_resident() and guard() see memory that others pause and resume."""
    _shown[:] = [entry for entry in _shown if entry() is not None]
    _shown.append(weakref.ref(memory))


def _change(chosen, is_resident_now, change, undo):
    """Change the memory whose state is `is_resident_now`, all of it or none; return its bytes."""
    changed = []
    try:
        for region in chosen:
            if region.is_resident == is_resident_now:
                change(region)
                changed.append(region)
    except BaseException:
        for region in reversed(changed):
            undo(region)
        raise
    return sum(region.size_bytes for region in changed)
