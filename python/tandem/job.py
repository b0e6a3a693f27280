# SPDX-License-Identifier: Apache-2.0
"""Job libraries in Python: a trainer, an engine and rewards for `tandem run`.

A job file names a module instead of a shared library, in the folder of the job file or on PYTHONPATH:

    job: {library: "python:my_job"}

`tandem run` then starts each rank of the job in a Python process of its own and does the rest: placement, pausing and
resuming of memory, weight updates, progress, checkpoints and restarts. The module has

- a class Trainer, of which each trainer rank has one object;
- a class Engine, of which each engine rank has one object;
- a function reward(prompt, answer, completion), or rewards(requests) for many answers at once. Either may be a
  coroutine function (async def);
- optionally devices, the kinds of device on which the models run: "host" (the default), "cuda" or "host cuda".

The methods of the classes are those of Trainer and Engine below, which are there to be read and may be subclassed. A
method that raises an exception fails the job with the exception's text and traceback. Between the methods Tandem
pauses and resumes the rank's regions: a tensor in a paused region must not be read or written (that is a SIGSEGV).

The module is also imported by `tandem plan` and before the job starts, to ask for the regions. examples/python_job is
a complete job.
"""
from tandem import _tandem
from tandem._dtypes import address_of, dtype_name, dtype_size, is_torch, local_tensor, numpy_dtype, product

__all__ = ["Batch", "Completion", "Context", "Engine", "Memory", "Prompt", "Region", "RewardRequest", "Sample",
           "Sampling", "Slice", "Tensor", "TensorView", "Trainer", "UpdateBucket"]


class Region:
    """A region of device memory that a rank declares.

    tag says what the memory is for; the weights of an engine are "weights". With keep=False the contents are lost when
    the region is paused. With outside=True it is no region: the class allocates up to size_bytes of device memory itself
    in its method resume(), and frees it in pause(); keep then only says that the class keeps the contents.
    """

    def __init__(self, tag, size_bytes, keep=True, outside=False):
        self.tag = tag
        self.size_bytes = size_bytes
        self.keep = keep
        self.outside = outside


class Memory(_tandem.Memory):
    """The memory of a region, which stays at its address while the rank lives.

    buffer is a writable memoryview (host only): numpy.frombuffer(memory.buffer, "float32") and
    torch.frombuffer(memory.buffer, dtype=torch.float32) are views of it. torch.from_dlpack(memory) is a view of all
    bytes, also on a GPU. Each keeps the region, and users_count is their number: if the rank closes, the region ends
    with the last of them. Neither can be made while the region is paused (BufferError). tandem.memory.check() and
    guard() see the regions of a rank.
    """

    def __new__(cls, tag, address, size_bytes, device_number=-1):
        return super().__new__(cls, address, size_bytes, device_number)

    def __init__(self, tag, address, size_bytes, device_number=-1):
        self.tag = tag
        self.address = address
        self.size_bytes = size_bytes
        self._device_number = device_number

    @property
    def buffer(self):
        """The bytes as a writable memoryview."""
        if self._device_number >= 0:
            raise TypeError(f"the region {self.tag} is on a GPU: use torch.from_dlpack(memory)")
        return memoryview(self)

    @property
    def is_resident(self):
        """Return whether the region has its memory now."""
        return _tandem.region_is_resident(self.address)

    def check(self):
        """Raise tandem.memory.MemoryPausedError if the region is paused."""
        if not self.is_resident:
            from tandem.memory import MemoryPausedError
            raise MemoryPausedError(self.tag)


class Tensor:
    """Name, dtype (a name such as "float32", or a type of torch or numpy) and shape of a tensor of the model."""

    def __init__(self, name, dtype, shape):
        self.name = name
        self.dtype = dtype_name(dtype)
        self.shape = tuple(int(length) for length in shape)
        if len(self.shape) > 4:
            raise ValueError(f"the tensor {name} has {len(self.shape)} dimensions, at most 4 are supported")

    @property
    def size_bytes(self):
        """Size of the tensor in bytes."""
        return product(self.shape) * dtype_size(self.dtype)


class TensorView(Tensor):
    """A tensor whose elements can be read for a while, such as load() runs; strides count elements, as in PyTorch."""

    def __init__(self, name, dtype, shape, stride, address, device_number=-1):
        super().__init__(name, dtype, shape)
        self.stride = stride
        self.address = address
        self._device_number = device_number

    def _span_bytes(self):
        if 0 in self.shape:
            return 0
        last = sum((length - 1) * step for length, step in zip(self.shape, self.stride))
        return (last + 1) * dtype_size(self.dtype)

    def _memory(self):
        return Memory(self.name, self.address, self._span_bytes(), self._device_number)

    def numpy(self):
        """Return a read-only view as an array of numpy; bfloat16 as uint16."""
        import numpy
        flat = numpy.frombuffer(self._memory().buffer, numpy_dtype(self.dtype))
        size = dtype_size(self.dtype)
        return numpy.lib.stride_tricks.as_strided(flat, self.shape, [step * size for step in self.stride],
                                                  writeable=False)

    def torch(self):
        """Return a view as a tensor of PyTorch, which must not be written."""
        import torch
        dtype = getattr(torch, self.dtype)
        span = self._span_bytes()
        if span == 0:
            return torch.empty(self.shape, dtype=dtype)
        if self._device_number < 0:
            flat = torch.frombuffer(self._memory().buffer, dtype=dtype)
        else:
            flat = torch.from_dlpack(self._memory()).view(dtype)
        return flat.as_strided(self.shape, self.stride)


class UpdateBucket:
    """A bucket of a weight update, to which a trainer rank may attach bytes.

    The class Trainer may have attach(bucket), which is called whenever this rank has written a bucket, and returns
    bytes for the engine rank that the bucket is for, or None: its own form of the bucket, such as handles of
    tandem.torch_forms. Tandem carries at most 4 MiB beside its own record and never reads them. The class Engine then has
    attached(index, buckets_count, data), which gets them on that engine rank before the bucket is loaded. What they
    refer to stays until all ranks of the engine have loaded the bucket. The class Engine may have
    gathered(index, buckets_count, parts), instead or in addition: it gets on rank 0, before attached(), the list of what
    was attached for each rank of the engine, b"" for nothing. An exception of any of them aborts the update.

    index and buckets_count: its number in the update, from 0, and how many there are; tensors: TensorViews of the whole
    tensors that lie in the bucket, which stay until the engine has answered; None if the engine has a layout;
    engine_rank: the rank in its engine that the bucket is for. A trainer rank has the bucket of one rank of each engine,
    or of several if an engine has more ranks than the trainer.
    """

    def __init__(self, index, buckets_count, tensors=None, engine_rank=0):
        self.index = index
        self.buckets_count = buckets_count
        self.tensors = tensors
        self.engine_rank = engine_rank


class Slice:
    """The part of a tensor that one rank holds.

    data is where the part lies, contiguous in one of the rank's regions: an array, a tensor, a DTensor (its local
    shard), a writable buffer or an address. offset and extent give its first index and its length in each dimension;
    without them it is the whole tensor. With flat=True the part is extent[0] elements from number offset[0] on, in
    row-major order, as FlatParameter shards are. An engine may ask for another dtype: "bfloat16", or "float8_e4m3fn"
    with scales, the place of the float32 factors of blocks of 128 x 128.
    """

    def __init__(self, tensor, data, offset=None, extent=None, flat=False, dtype=None, scales=None):
        data = local_tensor(data)
        if is_torch(data) and not data.is_contiguous():
            raise ValueError(f"the part of the tensor {tensor} is not contiguous")
        self.tensor = tensor
        self.address = address_of(data)
        self.offset = offset
        self.extent = extent
        self.flat = flat
        self.dtype = dtype
        self.scales = 0 if scales is None else address_of(scales)


class Context:
    """What a rank knows when it is made.

    rank and ranks_count: this rank in its group, the trainer or one engine; engine: number of the engine, 0 for
    trainers; seed: the job's seed; config: the whole job file as a dict; group: the ranks of the trainer or of the
    engine as a tandem.group.Group, None while only the regions are asked for; tensors: the list of (Tensor, offset in
    bytes in the region "weights") of a layout that the job file names, else None; tensors_bytes: their size; device:
    "host" or "cuda".
    """

    def __init__(self, config, rank=0, ranks_count=1, engine=0, seed=0, group=None, tensors=None, tensors_bytes=0):
        self.config = config
        self.rank = rank
        self.ranks_count = ranks_count
        self.engine = engine
        self.seed = seed
        self.group = group
        self.tensors = tensors
        self.tensors_bytes = tensors_bytes

    @property
    def device(self):
        """Kind of the job's device: "host" or "cuda"."""
        return self.setting("cluster.device", "host")

    def setting(self, path, default=None):
        """Return the setting at a dotted path of the job file, such as "trainer.lr"."""
        value = self.config
        for key in path.split("."):
            if not isinstance(value, dict) or key not in value:
                return default
            value = value[key]
        return value


class Sample:
    """An answer with its reward. tokens, logprobs and token_rewards are arrays; None in supervised batches."""

    def __init__(self, group, prompt, answer, tokens, logprobs, token_rewards, reward, weight_version):
        self.group = group
        self.prompt = prompt
        self.answer = answer
        self.tokens = tokens
        self.logprobs = logprobs
        self.token_rewards = token_rewards
        self.reward = reward
        self.weight_version = weight_version


class Batch:
    """The samples that one rank learns from in one step; step counts from 1 to steps_count for each kind of batch."""

    def __init__(self, supervised, step, steps_count, samples):
        self.supervised = supervised
        self.step = step
        self.steps_count = steps_count
        self.samples = samples


class Prompt:
    """A prompt to be answered. The seed determines the random numbers of this answer only."""

    def __init__(self, text, seed):
        self.text = text
        self.seed = seed


class Sampling:
    """Settings for choosing tokens: temperature (0: the most probable token) and tokens_max, the limit of an answer."""

    def __init__(self, temperature, tokens_max):
        self.temperature = temperature
        self.tokens_max = tokens_max


class Completion:
    """An answer: tokens (the end token included), their log-probabilities, its text, and whether it has ended."""

    def __init__(self, tokens, logprobs, text, finished=True):
        self.tokens = tokens
        self.logprobs = logprobs
        self.text = text
        self.finished = finished


class RewardRequest:
    """An answer to be rewarded by rewards(): the prompt, the right answer, and the engine's Completion."""

    def __init__(self, prompt, answer, completion):
        self.prompt = prompt
        self.answer = answer
        self.completion = completion


class _Rank:
    """What Trainer and Engine have in common.

    A class that declares regions with outside=True also has resume(tag), which allocates that memory once Tandem has
    granted it (the first time before start()), and pause(tag), which frees it. pause() returns when the device has the
    memory back, also that of other processes. Tandem compares what the device reports with size_bytes.
    """

    @classmethod
    def regions(cls, context):
        """Return the list of Region that a rank needs. Called before __init__(), and by `tandem plan`."""
        raise NotImplementedError

    def __init__(self, context):
        """Create the rank. There is no device memory yet."""
        self.context = context

    def start(self, memory):
        """Keep what is needed of memory, a dict from tag to Memory; the contents are undefined."""
        raise NotImplementedError

    def close(self):
        """End the rank; may be missing."""


class Trainer(_Rank):
    """What a module's class Trainer has; it need not be a subclass. start() makes the first weights.

    A class may also have logprobs(batch), which returns for each sample of a Batch the log-probabilities of its tokens
    with the present weights, at the sampling temperature, and learns nothing; `update.logprob_tolerance` needs it. The
    batch has the first sample of each prompt of this rank.
    """

    def layout(self):
        """Return (tensors, slices): the model's tensors, the same on every rank, and the Slices of this rank.

        The slices of all ranks cover every element once, and lie in regions with keep=True. An object with the list
        tensors and the method sent(), which returns the slices, will do as well.
        """
        raise NotImplementedError

    def step(self, batch):
        """Learn from a Batch and return a dict of at most 16 metrics, such as {"loss": 0.5}."""
        raise NotImplementedError

    def save(self, directory):
        """Write what load() needs to continue exactly here; on rank 0 also a checkpoint for others to directory/hf."""
        raise NotImplementedError

    def load(self, directory):
        """Restore what save() has written."""
        raise NotImplementedError


class Engine(_Rank):
    """What a module's class Engine has; it need not be a subclass. One of its regions has the tag "weights".

    A class may also have layout(tensors), which gets the model's tensors and returns the list of Slice that this rank
    keeps in its region "weights": trainers then write them there, and load() is called for files only.

    An engine that computes from copies of tensors, such as a packed matrix, may have served(tensor, part). It returns
    what generate() really reads of a Slice of layout() (without a layout part is None, for the whole tensor): an array
    or a tensor in the slice's order and dtype, or None if there is no such copy; or (name, array) if the engine has
    another name for the copy, such as "lm_head.weight" of tied embeddings. With `update.logprob_tolerance` Tandem finds a
    copy that was not renewed by it.
    """

    def begin(self):
        """Begin an update: forget which tensors load() has got. May be missing."""

    def load(self, weights, tensors):
        """Copy what this rank needs of a list of TensorView to weights, a Memory that is not being served yet.

        Raise an exception that names a tensor which is unknown or has another shape.
        """
        raise NotImplementedError

    def complete(self):
        """Return None if load() has got all tensors since begin(), else a text that names what is missing."""
        raise NotImplementedError

    def flush_cache(self):
        """Drop what was computed from the old weights: a new version is live. May be missing."""

    def generate(self, prompts, sampling):
        """Return a Completion for each Prompt. Ranks other than 0 may return None."""
        raise NotImplementedError
