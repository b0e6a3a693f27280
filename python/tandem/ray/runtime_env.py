# SPDX-License-Identifier: Apache-2.0
"""ray.runtime_env."""
from tandem.ray._runtime_env import RuntimeEnv

__all__ = ["RuntimeEnv"]
