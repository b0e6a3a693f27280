# SPDX-License-Identifier: Apache-2.0
"""The program of Python workers: python -m tandem._worker.

A worker joins its node before it imports anything of the user. A fork server imports first what most workers need,
because the workers that it forks share that memory. It must not start threads, or it could not fork; numpy starts none
when OMP_NUM_THREADS is 1, which Tandem sets for actors with at most one CPU.
"""
import gc
import os


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
    gc.collect()
    gc.freeze()  # The objects stay where they are, so that forked workers keep sharing their pages.


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
