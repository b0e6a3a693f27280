# SPDX-License-Identifier: Apache-2.0
"""Adds the CPU to slime's accelerators (CUDA and MUSA) by its public function, as one that always is there."""
import torch
from slime.utils import accelerator
from slime.utils.accelerator.base import Accelerator


class CpuAccelerator(Accelerator):
    """The CPU, with gloo and an invented gibibyte of memory."""

    name = "cpu"
    device_type = "cpu"
    communication_backend_name = "gloo"

    def is_available(self):
        return True

    def device(self, index=None):
        return torch.device("cpu")

    def device_name(self, index=None):
        return "cpu"

    def current_device(self):
        return "cpu"

    def device_count(self):
        return 8

    def mem_get_info(self, device=None):
        return 1 << 30, 1 << 30

    def _zero(self, device=None):
        return 0

    def _nothing(self, device=None):
        return None

    memory_allocated = memory_reserved = _zero
    set_device = synchronize = current_stream = distributed_device_id = _nothing

    def empty_cache(self):
        """Do nothing: there is no cache."""

    def resolve_visible_device_id(self, physical):
        return int(physical)


accelerator.set_accelerator(CpuAccelerator())
