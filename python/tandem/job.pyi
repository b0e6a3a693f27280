# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

from tandem import _tandem
from tandem.group import Group

class Region:
    tag: str
    size_bytes: int
    keep: bool
    outside: bool
    def __init__(self, tag: str, size_bytes: int, keep: bool = True, outside: bool = False) -> None: ...

class Memory(_tandem.Memory):
    tag: str
    address: int
    size_bytes: int
    def __new__(cls, tag: str, address: int, size_bytes: int, device_number: int = -1) -> Memory: ...
    def __init__(self, tag: str, address: int, size_bytes: int, device_number: int = -1) -> None: ...
    @property
    def buffer(self) -> memoryview: ...
    @property
    def is_resident(self) -> bool: ...
    def check(self) -> None: ...

class Tensor:
    name: str
    dtype: str
    shape: tuple[int, ...]
    def __init__(self, name: str, dtype: Any, shape: Sequence[int]) -> None: ...
    @property
    def size_bytes(self) -> int: ...

class TensorView(Tensor):
    stride: tuple[int, ...]
    address: int
    def __init__(self, name: str, dtype: Any, shape: Sequence[int], stride: tuple[int, ...], address: int,
                 device_number: int = -1) -> None: ...
    def numpy(self) -> Any: ...
    def torch(self) -> Any: ...

class UpdateBucket:
    index: int
    buckets_count: int
    tensors: list[TensorView] | None
    engine_rank: int
    def __init__(self, index: int, buckets_count: int, tensors: list[TensorView] | None = None,
                 engine_rank: int = 0) -> None: ...

class Slice:
    tensor: Tensor | str | int
    address: int
    offset: Sequence[int] | None
    extent: Sequence[int] | None
    flat: bool
    dtype: Any
    scales: int
    def __init__(self, tensor: Tensor | str | int, data: Any, offset: Sequence[int] | None = None,
                 extent: Sequence[int] | None = None, flat: bool = False, dtype: Any = None,
                 scales: Any = None) -> None: ...

class Context:
    config: dict[str, Any]
    rank: int
    ranks_count: int
    engine: int
    seed: int
    group: Group | None
    tensors: list[tuple[Tensor, int]] | None
    tensors_bytes: int
    def __init__(self, config: dict[str, Any], rank: int = 0, ranks_count: int = 1, engine: int = 0, seed: int = 0,
                 group: Group | None = None, tensors: list[tuple[Tensor, int]] | None = None,
                 tensors_bytes: int = 0) -> None: ...
    @property
    def device(self) -> str: ...
    def setting(self, path: str, default: Any = None) -> Any: ...

class Sample:
    group: int
    prompt: str
    answer: str
    tokens: Sequence[int] | None
    logprobs: Sequence[float] | None
    token_rewards: Sequence[float] | None
    reward: float
    weight_version: int
    def __init__(self, group: int, prompt: str, answer: str, tokens: Sequence[int] | None,
                 logprobs: Sequence[float] | None, token_rewards: Sequence[float] | None, reward: float,
                 weight_version: int) -> None: ...

class Batch:
    supervised: bool
    step: int
    steps_count: int
    samples: list[Sample]
    def __init__(self, supervised: bool, step: int, steps_count: int, samples: list[Sample]) -> None: ...

class Prompt:
    text: str
    seed: int
    def __init__(self, text: str, seed: int) -> None: ...

class Sampling:
    temperature: float
    tokens_max: int
    def __init__(self, temperature: float, tokens_max: int) -> None: ...

class Completion:
    tokens: Any
    logprobs: Any
    text: str
    finished: bool
    def __init__(self, tokens: Any, logprobs: Any, text: str, finished: bool = True) -> None: ...

class RewardRequest:
    prompt: str
    answer: str
    completion: Completion
    def __init__(self, prompt: str, answer: str, completion: Completion) -> None: ...

class _Rank:
    context: Context
    @classmethod
    def regions(cls, context: Context) -> list[Region]: ...
    def __init__(self, context: Context) -> None: ...
    def start(self, memory: dict[str, Memory]) -> None: ...
    def close(self) -> None: ...

class Trainer(_Rank):
    def layout(self) -> Any: ...
    def step(self, batch: Batch) -> dict[str, float] | None: ...
    def save(self, directory: str) -> None: ...
    def load(self, directory: str) -> None: ...

class Engine(_Rank):
    def begin(self) -> None: ...
    def load(self, weights: Memory, tensors: list[TensorView]) -> None: ...
    def complete(self) -> str | None: ...
    def flush_cache(self) -> None: ...
    def generate(self, prompts: list[Prompt], sampling: Sampling) -> list[Completion] | None: ...
