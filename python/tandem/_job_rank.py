# SPDX-License-Identifier: Apache-2.0
"""The rank of a job in a Python process: between the tables of src/job.c and the user's classes.

Every method takes and returns plain tuples, numbers, texts and bytes. An exception of the user becomes one whose text
begins with the exception and goes on with its traceback.
"""
import array
import functools
import json
import os
import traceback

from tandem import _job_module
from tandem import _tandem
from tandem._dtypes import bytes_of, dtype_number, dtype_of_number
from tandem.job import (Batch, Completion, Context, Memory, Prompt, RewardRequest, Sample, Sampling, Slice, Tensor,
                        TensorView, UpdateBucket)
from tandem.memory import _show as show

# Bytes of a failure's text; libtandem cuts longer ones at their end.
_FAILURE_BYTES = 2500


class RankError(RuntimeError):
    """An exception of the user's code, with its traceback in the text."""


def _reports(function):
    """Let the exceptions of a method be RankErrors."""
    @functools.wraps(function)
    def reporting(*args):
        try:
            return function(*args)
        except BaseException as error:
            trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            head = f"{type(error).__name__}: {error}".encode(errors="replace")[:_FAILURE_BYTES // 2]
            tail = trace.encode(errors="replace")[-(_FAILURE_BYTES - len(head)):]
            failure = RankError(f"{head.decode(errors='ignore')}\n{tail.decode(errors='ignore')}".replace("\0", " "))
            failure._tandem_status = getattr(error, "_tandem_status", 0)
            raise failure from None
    return reporting


@_reports
def open_rank(kind, config_json, rank, ranks_count, engine, seed, collective, tensors, tensors_bytes, module_folder):
    """Set this worker up and return the object of its rank; kind is "trainer", "engine" or "rewards".

    module_folder has the job's modules as files of this node, or is None if they are found by their names.
    """
    _begin_worker()
    config = json.loads(config_json)
    named = None if tensors is None else [(_tensor(info), offset) for info, offset in tensors]
    group = None
    if collective is not None:
        from tandem.group import Group
        group = Group(collective)
    context = Context(config, rank, ranks_count, engine, seed, group, named, tensors_bytes)
    module = _job_module.load_module(config, module_folder)
    if kind == "rewards":
        return _Rewards(module, context)
    return _Trainer(module.Trainer, context) if kind == "trainer" else _Engine(module.Engine, context)


def _begin_worker():
    """Do what _execution.construct() does for other actors."""
    from tandem.ray import _futures
    os.environ.pop("TANDEM_WORKER", None)
    _tandem.forking_ended()
    _futures.after_fork()


def _tensor(info):
    name, dtype, shape = info
    return Tensor(name, dtype_of_number(dtype), shape)


def _array(code, data):
    """Return an array of the numbers in bytes; None for None."""
    return None if data is None else array.array(code, data)


def _bytes(code, numbers):
    """Return the bytes of numbers: a list, an array, or a tensor on the CPU."""
    if isinstance(numbers, array.array) and numbers.typecode == code:
        return numbers.tobytes()
    numbers = numbers.tolist() if hasattr(numbers, "tolist") else numbers
    return array.array(code, numbers).tobytes()


class _Rank:
    """The base class of trainer and engine ranks."""

    def __init__(self, cls, context):
        self._context = context
        self._device_number = 0 if context.device == "cuda" else -1
        self._regions = _job_module.regions_of(cls, context)
        self._object = cls(context)

    @_reports
    def regions(self):
        return self._regions

    @_reports
    def start(self, addresses):
        self._memory = {tag: Memory(tag, address, size_bytes, self._device_number)
                        for (tag, size_bytes, _, outside), address in zip(self._regions, addresses) if not outside}
        for memory in self._memory.values():
            show(memory)
        self._object.start(dict(self._memory))

    @_reports
    def resume(self, tag):
        self._object.resume(tag)

    @_reports
    def pause(self, tag):
        self._object.pause(tag)

    @_reports
    def close(self):
        self._call_optional("close")

    def _views(self, tensors):
        """Return TensorViews of tuples (name, dtype, shape, stride, address)."""
        return [TensorView(name, dtype_of_number(dtype), shape, stride, address, self._device_number)
                for name, dtype, shape, stride, address in tensors]

    def _call_optional(self, method):
        function = getattr(self._object, method, None)
        return None if function is None else function()

    @staticmethod
    def _plain_slices(slices, tensors):
        """Return Slices as tuples; tensors is a list of Tensor."""
        indices = {tensor.name: index for index, tensor in enumerate(tensors)}
        plain = []
        for part in slices:
            name = part.tensor
            if isinstance(name, int):
                name = tensors[name].name
            name = getattr(name, "name", name)
            if name not in indices:
                raise KeyError(f"a slice of the tensor {name}, which is not in the model")
            shape = tensors[indices[name]].shape
            offset, extent = part.offset, part.extent
            flat = bool(getattr(part, "flat", False))
            dtype, scales = getattr(part, "dtype", None), getattr(part, "scales", 0)
            if flat and (offset is None or extent is None):
                raise ValueError(f"the flat slice of the tensor {name} has no offset or no extent")
            offset = (0,) * len(shape) if offset is None else tuple(offset)
            extent = shape if extent is None else tuple(extent)
            plain.append((indices[name], flat, offset, extent, part.address,
                          0 if dtype is None else dtype_number(dtype), scales))
        return plain


class _Trainer(_Rank):
    """A trainer rank."""

    def __init__(self, cls, context):
        super().__init__(cls, context)
        self.has_logprobs = callable(getattr(self._object, "logprobs", None))

    @_reports
    def layout(self):
        layout = self._object.layout()
        tensors, slices = (layout.tensors, layout.sent()) if hasattr(layout, "sent") else layout
        plain = [(tensor.name, dtype_number(tensor.dtype), tuple(tensor.shape)) for tensor in tensors]
        return plain, self._plain_slices(slices, list(tensors))

    @staticmethod
    def _batch(supervised, step, steps_count, samples):
        return Batch(bool(supervised), step, steps_count,
                     [Sample(group, prompt, answer, _array("i", tokens), _array("f", logprobs),
                             _array("f", token_rewards), reward, version)
                      for group, prompt, answer, tokens, logprobs, token_rewards, reward, version in samples])

    @_reports
    def step(self, supervised, step, steps_count, samples):
        metrics = self._object.step(self._batch(supervised, step, steps_count, samples))
        return [(name, float(value)) for name, value in (metrics or {}).items()]

    @property
    def has_attach(self):
        """Return whether the class has a method attach()."""
        return callable(getattr(self._object, "attach", None))

    @_reports
    def attach(self, index, buckets_count, tensors, engine_rank):
        views = None if tensors is None else self._views(tensors)
        bucket = UpdateBucket(index, buckets_count, views, engine_rank)
        attached = self._object.attach(bucket)
        return b"" if attached is None else bytes(memoryview(attached))

    @_reports
    def logprobs(self, step, steps_count, samples):
        return [_bytes("f", numbers) for numbers in self._object.logprobs(self._batch(0, step, steps_count, samples))]

    @_reports
    def save(self, directory):
        self._object.save(directory)

    @_reports
    def load(self, directory):
        self._object.load(directory)


class _Engine(_Rank):
    """An engine rank."""

    def __init__(self, cls, context):
        super().__init__(cls, context)
        self.has_layout = callable(getattr(self._object, "layout", None))
        self.has_gathered = callable(getattr(self._object, "gathered", None))
        self.has_served = callable(getattr(self._object, "served", None))
        self._weights_bytes = next((region[1] for region in self._regions if region[0] == "weights"), 0)

    @_reports
    def layout(self, tensors):
        tensors = [_tensor(info) for info in tensors]
        return self._plain_slices(self._object.layout(tensors), tensors)

    @_reports
    def begin(self):
        self._call_optional("begin")

    @_reports
    def load(self, weights, tensors):
        self._object.load(Memory("weights", weights, self._weights_bytes, self._device_number), self._views(tensors))

    @_reports
    def attached(self, index, buckets_count, data):
        if not callable(getattr(self._object, "attached", None)):
            if self.has_gathered:
                return  # Rank 0 has got the bytes of all ranks.
            raise TypeError(f"the trainer attaches {len(data)} bytes to a bucket, but the class Engine has no method "
                            "attached(), which reads them")
        self._object.attached(index, buckets_count, data)

    @_reports
    def gathered(self, index, buckets_count, parts):
        self._object.gathered(index, buckets_count, parts)

    @_reports
    def complete(self):
        return self._object.complete()

    @_reports
    def flush_cache(self):
        self._call_optional("flush_cache")

    @_reports
    def served(self, info, part):
        tensor = _tensor(info)
        if part is not None:
            offset, extent, flat, address, dtype = part
            part = Slice(tensor, address, offset, extent, bool(flat), dtype_of_number(dtype) if dtype else None)
        copy = self._object.served(tensor, part)
        name, copy = copy if isinstance(copy, tuple) else (None, copy)
        return None if copy is None else (name, bytes_of(copy))

    @_reports
    def generate(self, prompts, temperature, tokens_max):
        answers = self._object.generate([Prompt(text, seed) for text, seed in prompts],
                                        Sampling(temperature, tokens_max))
        if answers is None and self._context.rank != 0:
            return None
        return [(_bytes("i", answer.tokens), _bytes("f", answer.logprobs), answer.text, bool(answer.finished))
                for answer in answers]


class _Rewards:
    """The actor that computes rewards."""

    def __init__(self, module, context):
        from tandem._job_rewards import Scorer
        function, is_batched = _job_module.reward_function(module)
        # The default is that of colocate/job/job_file.c.
        self._scorer = Scorer(function, is_batched, context.setting("rollout.reward_timeout_ms", 10000) / 1000)

    @_reports
    def score(self, requests):
        return self._scorer.score(
            [RewardRequest(prompt, answer, Completion(_array("i", tokens), _array("f", logprobs), text, bool(finished)))
             for prompt, answer, tokens, logprobs, text, finished in requests])

    @_reports
    def close(self):
        pass
