# SPDX-License-Identifier: Apache-2.0
"""The program of Python workers: python -m tandem._worker.

A worker joins its node before it imports anything of the user. A fork server imports first what most workers need,
because the workers that it forks share that memory. It must not start threads, or it could not fork; numpy starts none
when OMP_NUM_THREADS is 1, which Tandem sets for actors with at most one CPU. TANDEM_PYTHON_PRELOAD names further
modules, separated by commas, such as torch.
"""
import gc
import importlib
import os
import sys


def preload():
    """Import modules for all workers that this fork server will fork."""
    import asyncio  # noqa: F401
    import inspect  # noqa: F401
    import cloudpickle  # noqa: F401
    if os.environ.get("OMP_NUM_THREADS") == "1":
        try:
            import numpy  # noqa: F401
        except ImportError:
            pass
    from tandem.ray import _execution  # noqa: F401
    preload_requested()
    gc.collect()
    gc.freeze()  # The objects stay where they are, so that forked workers keep sharing their pages.


def preload_requested():
    """Import the modules of TANDEM_PYTHON_PRELOAD; one that starts threads or fails is named on stderr."""
    names = [name.strip() for name in os.environ.get("TANDEM_PYTHON_PRELOAD", "").split(",") if name.strip()]
    # OpenBLAS would start its threads when numpy is imported, and reads nothing later.
    has_threads_setting = "OPENBLAS_NUM_THREADS" in os.environ
    if names and not has_threads_setting:
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
    threads = count_threads()
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            print(f"tandem: the module {name} of TANDEM_PYTHON_PRELOAD cannot be imported: {error!r}", file=sys.stderr)
        before, threads = threads, count_threads()
        if threads > before:
            print(f"tandem: the module {name} of TANDEM_PYTHON_PRELOAD starts threads ({threads - before}) when it is "
                  "imported, so that workers cannot be forked and are started one by one", file=sys.stderr)
    if names and not has_threads_setting:
        del os.environ["OPENBLAS_NUM_THREADS"]


def count_threads():
    """Return the number of threads of this process, also those of libraries."""
    return len(os.listdir("/proc/self/task"))


def construct(call):
    """Construct the actor of this worker; libtandem calls it once the worker has joined its node."""
    from tandem.ray import _execution
    # A program that is started with os.environ must not take itself for a worker.
    os.environ.pop("TANDEM_WORKER", None)
    _execution.construct(call)


def dispatch(call, method):
    """Serve one call of the actor."""
    from tandem.ray import _execution
    _execution.dispatch(call, method)


def destruct():
    """Run what the program registered for its end."""
    from tandem.ray import _execution
    _execution.destruct()


def main():
    """Become the worker or fork server that the daemon started."""
    from tandem import _output
    from tandem import _tandem
    if os.environ.get("TANDEM_WORKER") == "fork_server":
        preload()
    _output.install()
    _tandem.set_actor_functions(construct, dispatch, destruct)
    _tandem.run_worker()


if __name__ == "__main__":
    main()
