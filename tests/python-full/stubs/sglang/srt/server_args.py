# SPDX-License-Identifier: Apache-2.0
"""Stands for the arguments of SGLang's server: the fields that slime sets or reads."""
import dataclasses

import cpu_accelerator  # noqa: F401  Every process of slime imports this module, so that all have the CPU.


@dataclasses.dataclass
class ServerArgs:
    """Arguments of one server."""

    model_path: str = ""
    host: str = "127.0.0.1"
    port: int = 30000
    nccl_port: int = 0
    dist_init_addr: str = ""
    api_key: str = ""
    random_seed: int = 0
    nnodes: int = 1
    node_rank: int = 0
    base_gpu_id: int = 0
    gpu_id_step: int = 1
    tp_size: int = 1
    dp_size: int = 1
    pp_size: int = 1
    ep_size: int = 1
    moe_dp_size: int = 1
    mem_fraction_static: float = 0.9
    trust_remote_code: bool = False
    enable_memory_saver: bool = False
    enable_metrics: bool = False
    enable_dp_attention: bool = False
    enable_draft_weights_cpu_backup: bool = False
    skip_server_warmup: bool = True

    def url(self):
        """Return the address of the server."""
        return f"http://{self.host}:{self.port}"

    @classmethod
    def add_cli_args(cls, parser):
        """Add each field as an argument."""
        for field in dataclasses.fields(cls):
            flag = "--" + field.name.replace("_", "-")
            if field.type is bool:
                parser.add_argument(flag, action="store_true", default=field.default)
            else:
                parser.add_argument(flag, type=field.type, default=field.default)
