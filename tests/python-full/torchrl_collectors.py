# SPDX-License-Identifier: Apache-2.0
"""TorchRL's Ray collectors, weight schemes and replay buffer, on the CPU. It prints the same on Ray and on Tandem."""
import functools
import time

import ray
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.collectors.distributed import RayCollector
from torchrl.data import LazyTensorStorage, RayReplayBuffer, ReplayBuffer
from torchrl.envs import PendulumEnv
from torchrl.weight_update import RayWeightSyncScheme

RAY = {"num_cpus": 8, "num_gpus": 0, "include_dashboard": False}


class Policy(torch.nn.Module):
    """An action that is the angle times one weight, which is zero at first."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def forward(self, angle):
        return (self.weight * angle).unsqueeze(-1)


def check_collectors(sync):
    """Take three batches of two collectors, and give them another weight after the first batch."""
    policy = TensorDictModule(Policy(), in_keys=["th"], out_keys=["action"])
    collector = RayCollector(
        PendulumEnv, policy, frames_per_batch=32, total_frames=96, num_collectors=2, sync=sync,
        remote_configs={"num_cpus": 1, "num_gpus": 0, "memory": 256 << 20}, ray_init_config=RAY,
        weight_sync_schemes={"policy": RayWeightSyncScheme()})
    collector.update_policy_weights_()
    for number, batch in enumerate(collector):
        size = batch["action"].abs().mean().item()
        ratio = (batch["action"].squeeze(-1) / batch["th"]).mean().item()
        print("sync" if sync else "async", "batch", number, "frames", batch.numel(),
              "acts" if size > 0 else "does nothing", f"weight {ratio:.2f}" if sync else "")
        if number == 0:
            with torch.no_grad():
                policy.module.weight.fill_(2.0)
            start = time.perf_counter()
            collector.update_policy_weights_()
            print(f"time: an update of the weights {time.perf_counter() - start:.2f} s")
    collector.shutdown()


def check_replay_buffer():
    """Extend and sample a buffer that is an actor."""
    buffer = RayReplayBuffer(replay_buffer_cls=ReplayBuffer, storage=functools.partial(LazyTensorStorage, 100),
                             batch_size=8, ray_init_config=RAY,
                             remote_config={"num_cpus": 1, "num_gpus": 0, "memory": 256 << 20})
    buffer.extend(TensorDict({"x": torch.arange(20)}, batch_size=[20]))
    sample = buffer.sample()
    print("buffer:", len(buffer), sample.batch_size, bool((sample["x"] < 20).all()))
    buffer.close()


def main():
    start = time.perf_counter()
    for check in functools.partial(check_collectors, True), functools.partial(check_collectors, False), \
            check_replay_buffer:
        check()
    print(f"time: {time.perf_counter() - start:.1f} s")
    ray.shutdown()


if __name__ == "__main__":
    main()
