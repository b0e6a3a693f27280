# SPDX-License-Identifier: Apache-2.0
"""Finds the module that a job file names as its library, and checks what it has."""
import importlib
import os
import sys

_PREFIX = "python:"
# Methods that a class must have; the others may be missing.
_METHODS = {"Trainer": ("regions", "start", "layout", "step", "save", "load"),
            "Engine": ("regions", "start", "load", "complete", "generate")}


def load_module(config, folder=None):
    """Import the module of the setting job.library, check it and return it.

    folder has copies of the job's modules, which were fetched from the driver's node, or is None.
    """
    name = str(config["job"]["library"])
    if not name.startswith(_PREFIX):
        raise ValueError(f"job.library is {name}, which is no Python module")
    if folder is not None:
        _find_modules_in(folder)
    try:
        module = importlib.import_module(name[len(_PREFIX):])
    except ModuleNotFoundError as error:
        if folder is not None:
            error.msg += (f" (this node has copies of {', '.join(sorted(os.listdir(folder)))}; name further files and "
                          "folders beside the job file in job.files, and install other packages on each node)")
        raise
    for class_name, methods in _METHODS.items():
        cls = getattr(module, class_name, None)
        if cls is None:
            raise TypeError(f"the module {module.__name__} has no class {class_name}")
        for method in methods:
            if not callable(getattr(cls, method, None)):
                raise TypeError(f"the class {module.__name__}.{class_name} has no method {method}()")
    reward_function(module)
    return module


def _find_modules_in(folder):
    """Let this process, and Python programs that it starts, find the modules of a folder before any others."""
    for entry in os.listdir(folder):
        top = entry[:-len(".py")] if entry.endswith(".py") else entry
        if top in sys.stdlib_module_names:
            continue
        # TANDEM_PYTHON_PRELOAD may have imported a module of the same name from elsewhere.
        for loaded in [name for name in sys.modules if name == top or name.startswith(top + ".")]:
            if not _is_below(sys.modules[loaded], folder):
                del sys.modules[loaded]
    sys.path.insert(0, folder)
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{folder}{os.pathsep}{path}" if path else folder
    importlib.invalidate_caches()


def _is_below(module, folder):
    """Return whether a module was imported from a folder."""
    file = getattr(module, "__file__", None)
    return file is not None and file.startswith(folder + os.sep)


def reward_function(module):
    """Return (function, is_batched) of the module's function reward or rewards."""
    one, many = getattr(module, "reward", None), getattr(module, "rewards", None)
    if (one is None) == (many is None):
        raise TypeError(f"the module {module.__name__} must have either a function reward or a function rewards")
    return (one, False) if many is None else (many, True)


def regions_of(cls, context):
    """Return the regions of a class as a list of (tag, size_bytes, keep, outside)."""
    regions = [(region.tag, int(region.size_bytes), bool(region.keep), bool(getattr(region, "outside", False)))
               for region in cls.regions(context)]
    for tag, size_bytes, _, outside in regions:
        for method in ("resume", "pause"):
            if outside and not callable(getattr(cls, method, None)):
                raise TypeError(f"{cls.__name__} declares the outside memory {tag!r}, and has no method {method}()")
        if not 0 < len(tag.encode()) < 32 or size_bytes <= 0:
            raise ValueError(f"{cls.__name__} declares the region {tag!r} of {size_bytes} bytes: a tag has 1 to 31 "
                             "bytes, and a region at least one")
    return regions
