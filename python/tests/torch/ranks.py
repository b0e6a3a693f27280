# SPDX-License-Identifier: Apache-2.0
"""Runs a function in several processes with a gloo group, for the tests of this folder."""
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

DEADLINE_SECONDS = 400


def _rank_main(rank, function, ranks, folder, arguments):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    if ranks > 1:
        dist.init_process_group("cpu:gloo", init_method=f"file://{folder}/group", rank=rank, world_size=ranks)
    result = function(rank, ranks, *arguments)
    torch.save(result, pathlib.Path(folder) / f"result{rank}")
    if ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


def run(function, ranks, *arguments):
    """Call function(rank, ranks, *arguments) in that many processes, and return the results in the order of the ranks.

    One process has no group.
    """
    with tempfile.TemporaryDirectory() as folder:
        context = processes.spawn(_rank_main, (function, ranks, folder, arguments), nprocs=ranks, join=False)
        try:
            end = time.monotonic() + DEADLINE_SECONDS
            while not context.join(timeout=1):  # It also returns when some of the processes have ended.
                if time.monotonic() > end:
                    raise TimeoutError(f"{ranks} ranks took longer than {DEADLINE_SECONDS} s")
        finally:
            for process in context.processes:
                process.kill()
        return [torch.load(pathlib.Path(folder) / f"result{rank}", weights_only=False) for rank in range(ranks)]
