# SPDX-License-Identifier: Apache-2.0
"""Parts of SGLang and vLLM from their wheels, without the packages that they need.

The wheels lie in the folder TANDEM_TEST_WHEELS (`pip download --no-deps sglang==0.5.23 vllm==0.32.0`); an installed
package does as well. Single modules, classes and functions are compiled from their own text, into modules of their
own names.
"""
import __future__

import ast
import dataclasses
import functools
import importlib.machinery
import os
import pathlib
import sys
import types
import zipfile

import pytest


@functools.lru_cache(maxsize=None)
def source_of(path):
    """Return the text of a file of a package, such as "sglang/srt/utils/common.py"; skip the test without it."""
    package = path.split("/")[0]
    folder = os.environ.get("TANDEM_TEST_WHEELS")
    for wheel in sorted(pathlib.Path(folder).glob(f"{package}-*.whl")) if folder else []:
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(path).decode()
    found = importlib.machinery.PathFinder.find_spec(package)
    if found is not None and found.submodule_search_locations:
        return (pathlib.Path(found.submodule_search_locations[0]).parent / path).read_text()
    pytest.skip(f"the package {package} is neither installed nor a wheel in the folder TANDEM_TEST_WHEELS "
                f"(pip download --no-deps {package})")


def module_of(name, monkeypatch):
    """Return an empty module of this name in sys.modules, with the packages above it."""
    parts = name.split(".")
    for index in range(1, len(parts) + 1):
        above = ".".join(parts[:index])
        if above not in sys.modules:
            monkeypatch.setitem(sys.modules, above, types.ModuleType(above))
    return sys.modules[name]


def load(path, monkeypatch):
    """Return the module of a file, executed as a whole."""
    text = source_of(path)
    module = module_of(path.removesuffix(".py").replace("/", "."), monkeypatch)
    exec(compile(text, path, "exec"), vars(module))
    return module


def load_names(path, names, monkeypatch, **globals_):
    """Return the module of a file with some of its classes and functions only; globals_ is what they need."""
    tree = ast.parse(source_of(path))
    wanted = [node for node in tree.body
              if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name in names]
    assert {node.name for node in wanted} == set(names), path
    module = module_of(path.removesuffix(".py").replace("/", "."), monkeypatch)
    vars(module).update({"dataclass": dataclasses.dataclass, "field": dataclasses.field, **globals_})
    for node in wanted:
        # Annotations stay texts, as in files that import them from __future__.
        exec(compile(ast.Module([node], []), path, "exec", __future__.annotations.compiler_flag), vars(module))
    return module


def load_methods(path, class_name, names, **globals_):
    """Return an object with some methods of a class of a file, as functions; globals_ is what they need."""
    tree = ast.parse(source_of(path))
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name)
    wanted = [node for node in found.body if isinstance(node, ast.FunctionDef) and node.name in names]
    assert {node.name for node in wanted} == set(names), path
    space = dict(globals_)
    for node in wanted:
        exec(compile(ast.Module([node], []), path, "exec", __future__.annotations.compiler_flag), space)
    return types.SimpleNamespace(**{name: space[name] for name in names})
