# SPDX-License-Identifier: Apache-2.0
"""Groups of workers of verl's single_controller, without GPUs. What it prints is the same on Ray and on Tandem."""
import os
import sys
import time
import traceback

import ray
import torch
import torch.distributed as dist
from tensordict import TensorDict
from verl import DataProto
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, Execute, register
from verl.single_controller.ray import (RayClassWithInitArgs, RayResourcePool, RayWorkerGroup,
                                        create_colocated_worker_cls)
from verl.single_controller.ray.base import create_colocated_worker_cls_fused, merge_resource_pool, split_resource_pool

WORKERS = 2


class Summer(Worker):
    """A rank with a process group of gloo."""

    def __init__(self, start):
        super().__init__()
        self.start = start
        if not dist.is_initialized():
            dist.init_process_group("gloo")

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def total(self, number):
        value = torch.tensor([self.start + dist.get_rank() + number])
        dist.all_reduce(value)
        return value.item()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def total_later(self, number):
        return self.total(number)

    @register(dispatch_mode=Dispatch.ALL_TO_ALL)
    def own(self, number):
        return dist.get_rank() * 10 + number

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def zero(self):
        return dist.get_rank()

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def doubled(self, data):
        return DataProto.from_dict({"doubled": data.batch["x"] * 2}, meta_info={"factor": 2})

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def fail(self):
        raise ValueError("a rank fails")


class Multiplier(Worker):
    """A second role, for groups that hold two roles in one process."""

    @register(dispatch_mode=Dispatch.ALL_TO_ALL)
    def times(self, number):
        return (int(os.environ["RANK"]) + 1) * number


def group_make(pool, cls, *args, **options):
    """Make a group of workers of a class in a pool."""
    return RayWorkerGroup(pool, RayClassWithInitArgs(ray.remote(cls), *args), device_name="cpu", **options)


def check_dispatch(pool):
    group = group_make(pool, Summer, 100, name_prefix="dispatch")
    print("one to all:", group.total(1))
    print("later:", ray.get(group.total_later(2)))
    print("all to all:", group.own(list(range(WORKERS))))
    print("rank zero:", group.zero())
    data = DataProto(batch=TensorDict({"x": torch.arange(4)}, batch_size=[4]))
    print("split and joined:", group.doubled(data).batch["doubled"].tolist())
    print("on all:", group.execute_all_sync("own", 5))
    try:
        group.fail()
    except ValueError as error:
        print("error:", type(error).__name__, isinstance(error, ray.exceptions.RayTaskError),
              str(error).strip().splitlines()[-1])
    print("alive or not:", [group._is_worker_alive(worker) for worker in group.workers])
    named = RayWorkerGroup.from_detached(worker_names=group.worker_names,
                                         ray_cls_with_init=RayClassWithInitArgs(ray.remote(Summer), 100))
    print("found by name:", named.own([3, 4]))
    ray.kill(group.workers[0])
    while group._is_worker_alive(group.workers[0]):
        time.sleep(0.05)
    print("after a kill:", [group._is_worker_alive(worker) for worker in group.workers])


def check_roles_in_one_process(pool):
    roles = {"summer": RayClassWithInitArgs(ray.remote(Summer), 0),
             "multiplier": RayClassWithInitArgs(ray.remote(Multiplier))}
    both = RayWorkerGroup(pool, create_colocated_worker_cls(roles), device_name="cpu")
    groups = both.spawn(prefix_set=roles.keys())
    print("two roles:", groups["summer"].total(1), groups["multiplier"].times([5, 5]))
    fused = RayWorkerGroup(pool, create_colocated_worker_cls_fused(roles), device_name="cpu")
    groups = fused.spawn(prefix_set=roles.keys())
    print("two roles, fused:", groups["summer"].own([1, 2]), groups["multiplier"].times([7, 7]))


def check_pools(pool):
    halves = split_resource_pool(pool, 1)
    print("halves:", [group_make(half, Multiplier).times([6]) for half in halves])
    other = RayResourcePool([WORKERS], use_gpu=False, max_colocate_count=1)
    merged = merge_resource_pool(pool, other)
    print("merged:", merged.world_size, group_make(merged, Multiplier).times([1] * 2 * WORKERS))


def main():
    ray.init(num_cpus=16, num_gpus=0)
    start = time.perf_counter()
    failures = 0
    for check in check_dispatch, check_roles_in_one_process, check_pools:
        try:
            check(RayResourcePool([WORKERS], use_gpu=False, max_colocate_count=1))
        except Exception:
            traceback.print_exc()
            failures += 1
    print(f"time: {time.perf_counter() - start:.1f} s")
    ray.shutdown()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
