# SPDX-License-Identifier: Apache-2.0
"""The type stubs have the names and parameters of the modules, and each public name has a docstring."""
import ast
import importlib
import inspect
import pathlib

import pytest

import tandem
from tandem import ray

ROOT = pathlib.Path(tandem.__file__).parent
STUBS = sorted(ROOT.rglob("*.pyi"))
DOCUMENTED = ("tandem.group", "tandem.job", "tandem.layout", "tandem.memory", "tandem.ray", "tandem.ray.actor",
              "tandem.ray.exceptions", "tandem.ray.internal", "tandem.ray.object_ref", "tandem.ray.remote_function",
              "tandem.ray.runtime_context", "tandem.ray.runtime_env", "tandem.ray.util", "tandem.ray.util.actor_pool",
              "tandem.ray.util.placement_group", "tandem.ray.util.queue", "tandem.ray.util.scheduling_strategies",
              "tandem.sglang", "tandem.weights")


def module_of(stub):
    """Return the module that a stub describes."""
    parts = ["tandem", *stub.relative_to(ROOT).with_suffix("").parts]
    return importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def parameters_of_stub(function):
    """Return [(name, is keyword only, has default)] of a function in a stub; a star stands in front of collecting ones."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    first_default = len(positional) - len(arguments.defaults)
    found = [(argument.arg, False, index >= first_default) for index, argument in enumerate(positional)]
    if arguments.vararg:
        found.append(("*" + arguments.vararg.arg, False, False))
    found += [(argument.arg, True, default is not None)
              for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    if arguments.kwarg:
        found.append(("**" + arguments.kwarg.arg, False, False))
    return found


def parameters_of_object(function):
    """Return what parameters_of_stub() returns, of the real function."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [(stars.get(parameter.kind, "") + parameter.name, parameter.kind is inspect.Parameter.KEYWORD_ONLY,
             parameter.default is not inspect.Parameter.empty)
            for parameter in inspect.signature(function).parameters.values()]


def functions_of(body):
    """Return the functions of a module or class in a stub by name, without properties and overloaded ones."""
    found = {}
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            found[node.name] = None if {"overload", "property"} & set(decorators) else node
    return found


def check_parameters(stub, real, name):
    wanted = parameters_of_object(real)
    found = parameters_of_stub(stub)
    if inspect.ismethod(real):
        found = found[1:]  # The stub names the class, which is bound already.
    if found and found[0][0] in ("self", "cls") and (not wanted or wanted[0][0] != found[0][0]):
        found = found[1:]  # A signature of the extension does not name the object or class.
    assert found == wanted, name


def public_names(module):
    """Return the names that a stub of the module must have: those that the module defines or lists in __all__."""
    return {name for name, value in vars(module).items() if not name.startswith("_") and not inspect.ismodule(value) and (
        name in getattr(module, "__all__", ()) or module.__name__ == "tandem._tandem" or
        ((inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == module.__name__))}


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: str(stub.relative_to(ROOT)))
def test_stub_agrees_with_module(stub):
    module = module_of(stub)
    body = ast.parse(stub.read_text(encoding="utf-8")).body
    named = set()
    for node in body:
        if isinstance(node, (ast.ImportFrom, ast.Import)):
            named |= {alias.asname for alias in node.names if alias.asname}
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            named.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            named.add(node.target.id)
        elif isinstance(node, ast.Assign):
            named |= {target.id for target in node.targets}
    assert {name for name in named if not is_private(name)} <= set(vars(module)), "names that only the stub has"
    assert public_names(module) <= named, "names that the stub lacks"
    for name, function in functions_of(body).items():
        if function is not None:
            check_parameters(function, getattr(module, name), name)
    for node in body:
        if isinstance(node, ast.ClassDef) and not is_private(node.name):
            check_class(node, getattr(module, node.name))


def check_class(stub, cls):
    functions = functions_of(stub.body)
    for name, function in functions.items():
        if name == "__buffer__":
            continue  # Python has no method for the buffers of the extension before 3.12.
        assert hasattr(cls, name), f"{stub.name}.{name} is only in the stub"
        if function is not None and name not in ("__getattr__", "__await__", "__next__", "__anext__", "__len__"):
            # A class of the extension has the signature of its __new__.
            check_parameters(function, cls if name == "__new__" else getattr(cls, name), f"{stub.name}.{name}")
    public = {name for name, value in vars(cls).items() if not name.startswith("_") and (
        isinstance(value, (property, classmethod, staticmethod)) or inspect.isroutine(value))}
    assert public <= set(functions), f"methods of {stub.name} that the stub lacks"


def test_package_is_marked_as_typed():
    assert (ROOT / "py.typed").exists()
    assert ROOT / "_tandem.pyi" in STUBS


@pytest.mark.parametrize("name", DOCUMENTED)
def test_public_names_have_docstrings(name):
    module = importlib.import_module(name)
    missing = []
    for public, value in vars(module).items():
        if public.startswith("_") or not (inspect.isclass(value) or inspect.isfunction(value)) or (
                not value.__module__.startswith("tandem")):
            continue
        if not value.__doc__:
            missing.append(public)
        members = vars(value).items() if inspect.isclass(value) else ()
        missing += [f"{public}.{member}" for member, function in members if not member.startswith("_") and (
            isinstance(function, property) or inspect.isroutine(function)) and not inspect.getdoc(function)]
    assert not missing


def test_all_names_of_ray_exist():
    assert all(hasattr(ray, name) for name in ray.__all__)
