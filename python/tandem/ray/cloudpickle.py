# SPDX-License-Identifier: Apache-2.0
"""ray.cloudpickle: the module cloudpickle."""
from cloudpickle import *  # noqa: F401,F403
from cloudpickle import CloudPickler, Pickler, dump, dumps, load, loads  # noqa: F401
