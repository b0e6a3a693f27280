# SPDX-License-Identifier: Apache-2.0
"""The module `ray` of programs that run on Tandem: `ray` and `ray.X` are tandem.ray and tandem.ray.X."""
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys

import tandem.ray


class _Loader(importlib.abc.Loader):
    """Loads ray.X as the module tandem.ray.X itself."""

    def create_module(self, spec):
        module = importlib.import_module("tandem." + spec.name)
        self.spec = module.__spec__
        return module

    def exec_module(self, module):
        module.__spec__ = self.spec


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules below ray."""

    def find_spec(self, name, path=None, target=None):
        if not name.startswith("ray."):
            return None
        found = importlib.util.find_spec("tandem." + name)
        return None if found is None else importlib.machinery.ModuleSpec(
            name, _Loader(), is_package=found.submodule_search_locations is not None)


sys.meta_path.insert(0, _Finder())
tandem.ray.__ray_spec__ = __spec__
sys.modules["ray"] = tandem.ray
for _name, _module in list(sys.modules.items()):
    if _name.startswith("tandem.ray."):
        sys.modules.setdefault(_name.removeprefix("tandem."), _module)
