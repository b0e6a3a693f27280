# SPDX-License-Identifier: Apache-2.0
"""vLLM's worker on the CPU with a sleep mode: vLLM's own ignores sleep() and wake_up() there."""
import ctypes
import pathlib

from vllm.distributed.parallel_state import get_tp_group
from vllm.v1.worker.cpu_worker import CPUWorker

_SHARED_MEMORY = pathlib.Path("/dev/shm")


class CpuWorker(CPUWorker):
    """A worker whose KV cache has no memory while it sleeps. The weights stay: their copies would be as large."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._slept = []  # (storage, bytes) of the KV cache while it has no memory.

    def init_device(self):
        """Join the other workers. Shared memory that all of them have mapped loses its name here, so that nothing is
        left of workers that are killed."""
        super().init_device()
        group = get_tp_group()
        queue = group.mq_broadcaster
        if queue is not None and queue.buffer.is_creator:
            queue.buffer.is_creator = False
            queue.buffer.shared_memory.unlink()
        name = getattr(getattr(group.device_communicator, "dist_module", None), "group_name", None)
        if name is not None:
            (_SHARED_MEMORY / f"{name}_{group.rank_in_group}").unlink(missing_ok=True)

    def sleep(self, level=1):
        """Free the memory of the KV cache."""
        self.discard(("kv_cache",))

    def discard(self, tags):
        """Free the memory of the KV cache if that is one of the tags, and give it back to the system."""
        if "kv_cache" not in tags:
            return
        storages = {cache.untyped_storage().data_ptr(): cache.untyped_storage() for cache in self._caches()}
        for storage in storages.values():
            if storage.nbytes() > 0:
                self._slept.append((storage, storage.nbytes()))
                storage.resize_(0)
        _trim()

    def wake_up(self, tags=None):
        """Allocate the KV cache again, empty: vLLM has forgotten what was in it."""
        if tags is not None and "kv_cache" not in tags:
            return
        while self._slept:
            storage, size_bytes = self._slept.pop()
            storage.resize_(size_bytes)
            storage.fill_(0)

    def kv_cache_bytes(self):
        """Return the memory of the KV cache at present."""
        return sum({cache.untyped_storage().data_ptr(): cache.untyped_storage().nbytes()
                    for cache in self._caches()}.values())

    def _caches(self):
        for cache in self.model_runner.kv_caches:
            yield from cache if isinstance(cache, (list, tuple)) else (cache,)


def _trim():
    """Let malloc give pages that are free to the system, where it is glibc's: a cache may have been on its heap."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
