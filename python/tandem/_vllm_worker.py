# SPDX-License-Identifier: Apache-2.0
"""vLLM's worker on the CPU with a sleep mode: vLLM's own ignores sleep() and wake_up() there."""
from vllm.v1.worker.cpu_worker import CPUWorker


class CpuWorker(CPUWorker):
    """A worker whose KV cache has no memory while it sleeps. The weights stay: kernels have copies of them."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._slept = []  # (storage, bytes) of the KV cache while it has no memory.

    def sleep(self, level=1):
        """Free the memory of the KV cache."""
        storages = {cache.untyped_storage().data_ptr(): cache.untyped_storage() for cache in self._caches()}
        for storage in storages.values():
            if storage.nbytes() > 0:
                self._slept.append((storage, storage.nbytes()))
                storage.resize_(0)

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
