# SPDX-License-Identifier: Apache-2.0
"""The runtime context, by which a program asks about the process that it runs in."""
import os

from tandem import _tandem
from tandem.ray import _runtime


class RuntimeContext:
    """The result of get_runtime_context()."""

    def __init__(self):
        self._info = _tandem.describe()

    def get(self):
        """Return a dict of the IDs of the job and the node, and the namespace."""
        return {"job_id": self.get_job_id(), "node_id": self.get_node_id(), "namespace": self.namespace}

    def get_job_id(self):
        """Return the ID of the job, as hexadecimal digits."""
        return self._info["job_id"]

    def get_node_id(self):
        """Return the ID of the node, as hexadecimal digits."""
        return self._info["node_id"]

    def get_worker_id(self):
        """Return the ID of this process."""
        return self._info["actor_id"] or self._info["job_id"]

    def get_actor_id(self):
        """Return the ID of the actor of this process; None without one."""
        from tandem.ray import _execution
        return self._info["actor_id"] or None if _execution._State.instance is not None else None

    def get_actor_name(self):
        """Return the name of the actor of this process, "" if it has none; None without an actor."""
        return self._info["actor_name"] if self.get_actor_id() is not None else None

    def get_task_id(self):
        """Return the ID of the call that runs; None without one."""
        from tandem.ray import _execution
        running = _execution.current_method.get()
        return None if running is None else f"{self._info['actor_id']}{running[1]:024x}"

    def get_task_name(self):
        """Return the name of the method or function that runs; None without one."""
        from tandem.ray import _execution
        running = _execution.current_method.get()
        return None if running is None else running[0]

    get_task_function_name = get_task_name

    def is_canceled(self):
        """Return whether the caller of the method or function that runs has cancelled it."""
        from tandem.ray import _execution
        if not self._info["actor_id"]:
            raise RuntimeError("This method is only available when the process is a worker.")
        if _execution._State.is_asynchronous:
            raise RuntimeError("This method is not supported in an async actor.")
        running = _execution.current_method.get()
        return running is not None and running[2].is_canceled()

    def get_placement_group_id(self):
        """Return the ID of the placement group of this actor; None without one."""
        from tandem.ray.util.placement_group import get_current_placement_group
        group = get_current_placement_group()
        return None if group is None else group.id.hex()

    def get_assigned_resources(self):
        """Return the resources of this worker by name."""
        if not self._info["actor_id"]:
            raise AssertionError("This method is only available when the process is a worker.")
        return dict(_runtime.own_resources)

    def get_accelerator_ids(self):
        """Return the accelerators of this worker: lists of their IDs by kind."""
        return {"GPU": [str(index) for index in get_gpu_ids()]}

    def get_runtime_env_string(self):
        """Return the runtime environment of the job as JSON."""
        import json
        return json.dumps(_runtime.job_runtime_env)

    @property
    def runtime_env(self):
        """The runtime environment of the job."""
        return dict(_runtime.job_runtime_env)

    @property
    def namespace(self):
        """The namespace of the job."""
        return self._info["namespace"]

    @property
    def gcs_address(self):
        """The address of the node's daemon."""
        return self._info["address"]

    @property
    def job_id(self):
        """The ID of the job."""
        return self._info["job_id"]

    @property
    def node_id(self):
        """The ID of the node."""
        return self._info["node_id"]

    @property
    def actor_id(self):
        """The ID of the actor of this process; None without one."""
        return self.get_actor_id()

    @property
    def was_current_actor_reconstructed(self):
        """Return whether the actor of this process has been restarted."""
        return self._info["restarts"] > 0

    @property
    def current_actor(self):
        """A handle to this actor."""
        from tandem.ray import _execution
        from tandem.ray.actor import ActorHandle
        if self.get_actor_id() is None:
            raise RuntimeError("This method is only available in an actor.")
        return ActorHandle(_tandem.current_actor(), _execution._State.class_name, _execution._State.methods)


def get_runtime_context():
    """Return what this process is."""
    _runtime.ensure_initialized()
    return RuntimeContext()


def get_gpu_ids():
    """Return the GPUs of this actor, as CUDA_VISIBLE_DEVICES names them."""
    if not _tandem.is_running():
        return []
    info = _tandem.describe()
    if not info["actor_id"]:
        return []
    names = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    if len(names) == len(info["gpus"]) and all(name.isdigit() for name in names):
        return [int(name) for name in names]
    return list(info["gpus"])


__all__ = ["RuntimeContext", "get_gpu_ids", "get_runtime_context"]
