# SPDX-License-Identifier: Apache-2.0
"""Gives slime one module of this folder instead of its own: the train actor of Megatron.

Python imports this module by itself at the start of every process that has the folder on its path.
"""
import importlib.util
import pathlib
import sys

REPLACED = "slime.backends.megatron_utils.actor"


class ReplacementFinder:
    """Finds the replaced module here, and leaves all others to Python."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != REPLACED:
            return None
        file = pathlib.Path(__file__).with_name("gloo_train_actor.py")
        return importlib.util.spec_from_file_location(name, file)


sys.meta_path.insert(0, ReplacementFinder)
