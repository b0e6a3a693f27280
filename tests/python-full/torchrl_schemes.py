# SPDX-License-Identifier: Apache-2.0
"""TorchRL's RayCollector, RPCCollector and RayModuleTransform with the weight schemes of tandem.torchrl.

It needs no GPU, and runs on Tandem only.
"""
import os
import socket
import sys
import time

import ray
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.collectors.distributed import RayCollector, RPCCollector
from torchrl.collectors.distributed.default_configs import DEFAULT_TENSORPIPE_OPTIONS
from torchrl.envs import PendulumEnv
from torchrl.envs.transforms.module import RayModuleTransform
from torchrl_collectors import RAY, Policy

from tandem import torchrl

COLLECTORS = 2


@ray.remote(num_cpus=1)
class RpcNode:
    """An actor that is a worker of torch.distributed.rpc, in which an RPCCollector makes a collector."""

    def run(self, *args):
        """Join the trainer's group and stay in it until the trainer leaves."""
        from torchrl.collectors.distributed.rpc import _rpc_init_collection_node
        _rpc_init_collection_node(*args)


def make_policy():
    return TensorDictModule(Policy(), in_keys=["th"], out_keys=["action"])


def check_batches(name, collector, policy, sync=True):
    """Take three batches, and give the collectors another weight after the first one."""
    ratios = []
    for number, batch in enumerate(collector):
        ratios.append((batch["action"].squeeze(-1) / batch["th"]).mean().item())
        if number == 0:
            with torch.no_grad():
                policy.module.weight.fill_(2.0)
            start = time.perf_counter()
            collector.update_policy_weights_()
            print(f"time: an update by {name} {time.perf_counter() - start:.2f} s")
    print(f"{name}: {len(ratios)} batches, weights", " ".join(f"{ratio:.2f}" for ratio in ratios))
    # A collector that is not synchronous has one batch under way during the update.
    if abs(ratios[0]) > 1e-6 or abs(ratios[-1] - 2) > 1e-6 or (sync and abs(ratios[1] - 2) > 1e-6):
        sys.exit(f"{name}: the collectors do not act by the weights 0, 2, 2")


def check_ray_collector(name, strategy, sync=True):
    policy = make_policy()
    scheme = getattr(torchrl, name)(strategy)
    collector = RayCollector(
        PendulumEnv, policy, frames_per_batch=32, total_frames=96 if sync else 160, num_collectors=COLLECTORS,
        sync=sync, remote_configs={"num_cpus": 1, "num_gpus": 0, "memory": 256 << 20},
        weight_sync_schemes={"policy": scheme})
    collector.update_policy_weights_()
    check_batches(f"{name} {strategy} {'sync' if sync else 'async'}", collector, policy, sync)
    collector.shutdown()


def check_module_transform():
    """Send a module to the actor of a transform of an environment."""
    scheme = torchrl.RayModuleTransformScheme("state_dict")
    transform = RayModuleTransform(module=TensorDictModule(Policy(), in_keys=["th"], out_keys=["scaled"]), num_cpus=1,
                                   num_gpus=0, weight_sync_scheme=scheme)
    for weight in (2.0, 3.0):
        scheme.send({"module.weight": torch.tensor(weight)})
        scaled = transform(TensorDict({"th": torch.ones(1)}, batch_size=[1]))["scaled"].item()
        print(f"RayModuleTransformScheme: version {scheme.version}, scaled by {scaled:.1f}")
        if scaled != weight:
            sys.exit("the actor of the transform has other weights")
    scheme.shutdown()


def free_port():
    with socket.socket() as listener:
        listener.bind(("", 0))
        return listener.getsockname()[1]


def check_rpc_collector():
    """Let actors be the workers of an RPCCollector, which the collector treats as jobs that were launched before."""
    policy, port = make_policy(), free_port()
    nodes = [RpcNode.remote() for _ in range(COLLECTORS)]
    ends = [node.run.remote(rank, socket.gethostbyname(socket.gethostname()), port, COLLECTORS + 1, None,
                           DEFAULT_TENSORPIPE_OPTIONS)
            for rank, node in enumerate(nodes, 1)]
    collector = RPCCollector(
        [PendulumEnv] * COLLECTORS, policy, frames_per_batch=32, total_frames=96, sync=True,
        launcher="submitit_delayed", tcp_port=port, backend="gloo",
        weight_sync_schemes={"policy": torchrl.RPCWeightSyncScheme(timeout=120)})
    check_batches("RPCWeightSyncScheme", collector, policy)
    collector.shutdown()
    ray.get(ends)


def main():
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("TP_SOCKET_IFNAME", "lo")
    start = time.perf_counter()
    ray.init(**RAY)  # A RayCollector that starts Ray itself also ends it.
    check_ray_collector("RayWeightSyncScheme", "tensordict")
    check_ray_collector("SharedMemWeightSyncScheme", "state_dict")
    check_ray_collector("DistributedWeightSyncScheme", "module", sync=False)
    check_module_transform()
    check_rpc_collector()
    print(f"time: {time.perf_counter() - start:.1f} s")
    ray.shutdown()


if __name__ == "__main__":
    main()
