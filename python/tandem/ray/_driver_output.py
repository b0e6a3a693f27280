# SPDX-License-Identifier: Apache-2.0
"""Prints what the actors and functions of this job print, in a driver that joined a running node.

The daemon of a private node prints by itself. The daemons of a cluster keep the lines, and a thread of the driver takes
them a few times a second and prints each as "(Class pid=12) text", with the address of a node that is not the driver's.
"""
import os
import sys
import threading
import time

from tandem import _tandem
from tandem.ray.exceptions import RayError

_PAUSE_SECONDS = 0.1  # Between two looks at the nodes.
_NODES_SECONDS = 2.0  # For which a list of the nodes is used.
_TIMEOUT_MS = 5000

_thread = None
_is_stopping = threading.Event()


class _Nodes:
    """The nodes whose output is taken: their IDs, and what is printed behind the process of a line."""

    def __init__(self):
        self.suffixes = {}
        self._until = 0.0

    def refresh(self):
        """Read the list of the nodes again if it is old."""
        if time.monotonic() < self._until:
            return
        own = _tandem.describe()["node_id"]
        self.suffixes = {}
        for node in _tandem.list_nodes():
            host = node["tcp_address"].removeprefix("tcp:").rpartition(":")[0]
            self.suffixes[node["id"]] = "" if node["id"] == own or not host else f", ip={host}"
        self._until = time.monotonic() + _NODES_SECONDS


def _print(origin, is_error, text):
    """Print the lines of one worker."""
    stream = sys.stderr if is_error else sys.stdout
    prefix = f"({origin})"
    if stream.isatty() and not os.environ.get("NO_COLOR"):
        prefix = f"\x1b[36m{prefix}\x1b[0m"
    stream.write("".join(f"{prefix} {line}\n" for line in text.decode(errors="replace").removesuffix("\n").split("\n")))
    stream.flush()


def _take(nodes):
    """Print what the workers have written since the last time."""
    nodes.refresh()
    for node_id, suffix in nodes.suffixes.items():
        try:
            pieces = _tandem.take_output(node_id, _TIMEOUT_MS)
        except RayError:
            continue  # The node has ended; the next list of nodes lacks it.
        for origin, is_error, text in pieces:
            _print(origin + suffix, is_error, text)


def _run():
    """Print output until stop() is called or the runtime has stopped."""
    nodes = _Nodes()
    is_last = False
    while not is_last:
        is_last = _is_stopping.wait(_PAUSE_SECONDS)
        try:
            _take(nodes)
        except (RayError, OSError, ValueError):
            if not _tandem.is_running():
                return


def start():
    """Start the thread."""
    global _thread
    _is_stopping.clear()
    _thread = threading.Thread(target=_run, name="tandem-output", daemon=True)
    _thread.start()


def stop():
    """Print what is there and end the thread, if it runs."""
    global _thread
    if _thread is not None:
        _is_stopping.set()
        _thread.join(timeout=_TIMEOUT_MS / 1000)
        _thread = None
