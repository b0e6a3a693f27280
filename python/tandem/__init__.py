# SPDX-License-Identifier: Apache-2.0
"""Tandem for Python: tandem.ray runs programs that are written against Ray's actor API."""


def __getattr__(name):
    """Import the class Region on first use, because some commands use this package without libtandem."""
    if name == "Region":
        from tandem._tandem import Region
        return Region
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def actor_watch(pid):
    """Let the actor of this process fail, with that cause, when the process pid ends.

    The actor's calls then raise ActorDiedError, and it is restarted if it has restarts left.
    Without this an actor lives on when a process that it has started dies.
    """
    from tandem import _tandem
    _tandem.actor_watch(pid)


def actor_unwatch(pid):
    """End the watch of the process pid, which the actor is about to end itself."""
    from tandem import _tandem
    _tandem.actor_unwatch(pid)
