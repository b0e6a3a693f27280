# SPDX-License-Identifier: Apache-2.0
"""Executors of vLLM whose tensor-parallel workers are Tandem actors."""
import os
import time
from concurrent.futures import Future

from vllm import envs
from vllm.platforms import current_platform
from vllm.v1.executor.abstract import Executor as _Base
from vllm.v1.executor.uniproc_executor import ExecutorWithExternalLauncher
from vllm.v1.outputs import AsyncModelRunnerOutput
from vllm.v1.serial_utils import run_method
from vllm.v1.worker.worker_base import WorkerWrapperBase

import tandem.vllm
from tandem import ray

_START_SECONDS = 600  # From the creation of the workers until all have loaded the model.
_PEER_SECONDS = 30  # After a worker has failed, how long the others may take to say what they know.
_ENVIRONMENT = ("VLLM_", "OMP_", "GLOO_", "HF_", "TORCH", "TANDEM_PYTHON")  # Variables that workers get.
_SETTINGS = ("num_cpus", "num_gpus", "resources", "names")


class Worker:
    """The actor of one tensor-parallel worker."""

    def __init__(self, rank, count):
        self._rank = rank
        self._count = count
        self._store = None
        self._worker = None

    def bind(self):
        """Return the URL at which the workers meet: a server of worker 0, which lives as long as it."""
        from torch.distributed import TCPStore
        host = ray.util.get_node_ip_address()
        self._store = TCPStore(host, 0, self._count, is_master=True, wait_for_workers=False, multi_tenant=True)
        return f"tcp://{host}:{self._store.port}"

    def start(self, config, init_method):
        """Load the model."""
        tandem.vllm.register()
        mine = {"vllm_config": config, "local_rank": 0 if current_platform.is_cuda_alike() else self._rank,
                "rank": self._rank, "distributed_init_method": init_method, "is_driver_worker": self._rank == 0}
        self._worker = WorkerWrapperBase(rpc_rank=self._rank)
        self._worker.init_worker([mine if rank == self._rank else {} for rank in range(self._count)])
        self._worker.init_device()
        self._worker.load_model()
        current_platform.update_block_size_for_backend(config)
        return config.cache_config.block_size

    def call(self, method, args, kwargs, is_wanted):
        """Run a method of vLLM's worker, and return its result if it is wanted."""
        result = run_method(self._worker, method, args, kwargs)
        if isinstance(result, AsyncModelRunnerOutput):
            result = result.get_output()
        return result if is_wanted else None


class _Replies(Future):
    """The replies of all workers to one call, which result() waits for."""

    def __init__(self, wait):
        super().__init__()
        self._wait = wait

    def result(self, timeout=None):
        """Return the list of the replies, or the first one if that is all that was asked for."""
        if not self.done():
            try:
                self.set_result(self._wait(timeout))
            except Exception as error:
                self.set_exception(error)
        return super().result()


class Executor(_Base):
    """Runs each worker of an engine as a Tandem actor; see tandem.vllm."""

    supports_pp = False

    def _init_executor(self):
        self._failure = None
        self._callback = None
        self._workers = []
        if not ray.is_initialized():
            raise RuntimeError(
                "tandem.vllm.Executor needs a runtime in the process of vLLM's engine: call tandem.ray.init() first, "
                "and set VLLM_ENABLE_V1_MULTIPROCESSING=0, so that vLLM starts no process of its own for the engine")
        count = self.parallel_config.world_size
        settings = dict(self.vllm_config.additional_config.get("tandem", {}))
        unknown = sorted(set(settings) - set(_SETTINGS))
        if unknown:
            raise ValueError(f"additional_config['tandem'] has the setting {unknown[0]!r}; there are {_SETTINGS}")
        names = settings.pop("names", None)
        environment = {name: value for name, value in os.environ.items() if name.startswith(_ENVIRONMENT)}
        self._names = [f"{names}/{rank}" if names else f"worker {rank}" for rank in range(count)]
        remote = ray.remote(Worker)
        try:
            for rank in range(count):
                options = {"runtime_env": {"env_vars": environment}, **settings}
                if names:
                    options["name"] = self._names[rank]
                self._workers.append(remote.options(**options).remote(rank, count))
            url = self._wait("bind", [self._workers[0].bind.remote()], _START_SECONDS)[0]
            sizes = self._wait("start", [worker.start.remote(self.vllm_config, url) for worker in self._workers],
                               _START_SECONDS)
        except BaseException:
            self.shutdown()
            raise
        self.cache_config.block_size = sizes[0]

    def collective_rpc(self, method, timeout=None, args=(), kwargs=None, non_block=False, only_first=False):
        """Call a method of all workers; see vLLM's Executor. only_first: return the reply of worker 0 alone."""
        if self._failure is not None:
            raise self._failure
        if timeout is None:
            timeout = envs.VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS
        refs = [worker.call.remote(method, args, kwargs or {}, rank == 0 or not only_first)
                for rank, worker in enumerate(self._workers)]
        name = method if isinstance(method, str) else getattr(method, "__name__", "a function")

        def wait(seconds):
            replies = self._wait(name, refs, timeout if seconds is None else seconds)
            return replies[0] if only_first else replies
        return _Replies(wait) if non_block else wait(None)

    def execute_model(self, scheduler_output, non_block=False):
        """Run one step of the model on all workers, and return what worker 0 has."""
        return self.collective_rpc("execute_model", args=(scheduler_output,), non_block=non_block, only_first=True)

    def sample_tokens(self, grammar_output, non_block=False):
        """Sample tokens on all workers, and return those of worker 0."""
        return self.collective_rpc("sample_tokens", args=(grammar_output,), non_block=non_block, only_first=True)

    def register_failure_callback(self, callback):
        """Keep a function that is called when the engine has ended."""
        self._callback = callback

    def check_health(self):
        """Raise the exception that names the worker if one has died."""
        self.collective_rpc("check_health", timeout=10)

    def shutdown(self):
        """End all workers."""
        workers, self._workers = self._workers, []
        for worker in workers if ray.is_initialized() else ():
            ray.kill(worker)
        if self._failure is None:
            self._failure = RuntimeError("the vLLM engine has ended")

    def _wait(self, method, refs, seconds):
        """Return the values of one reference for each worker; a failure that leaves a worker without reply ends all."""
        end = time.monotonic() + seconds
        waiting, error = list(refs), None
        while waiting:
            ready, waiting = ray.wait(waiting, timeout=max(0.0, end - time.monotonic()))
            if not ready:
                break
            try:
                ray.get(ready[0])
            except Exception as failure:
                rank = refs.index(ready[0])
                if isinstance(failure, ray.exceptions.RayActorError):
                    raise self._fail(self._death_of(rank, failure)) from None
                if error is None:
                    # Workers that have an exception at once are well; a worker may also wait for one that has died.
                    error, end = failure, min(end, time.monotonic() + _PEER_SECONDS)
        if error is not None and not waiting:
            raise error
        if error is not None or waiting:
            late = ", ".join(self._names[refs.index(ref)] for ref in waiting)
            cause = error or TimeoutError(f"no reply to {method} within {seconds:g} s from {late} of the vLLM engine")
            raise self._fail(cause)
        return ray.get(refs)

    def _death_of(self, rank, failure):
        return tandem.vllm.WorkerDiedError(
            f"{self._names[rank]} of the {len(self._workers)} tensor-parallel workers of a vLLM engine has died: "
            f"{str(failure).strip()}\nThe engine has ended: create a new one.", rank)

    def _fail(self, failure):
        """End the engine because of an exception, and return it."""
        if self._failure is None:
            self._failure = failure
            self.shutdown()
            if self._callback is not None:
                self._callback()
        return self._failure


class RankExecutor(ExecutorWithExternalLauncher):
    """The executor of one rank of an engine whose ranks exist already, as in a job: each runs its own scheduler.

    All ranks get the same requests and so make the same decisions. additional_config["tandem"] has the rank and the URL
    at which the ranks meet.
    """

    def _distributed_args(self):
        settings = self.vllm_config.additional_config["tandem"]
        return settings["url"], settings["rank"], 0 if current_platform.is_cuda_alike() else settings["rank"]
