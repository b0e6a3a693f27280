# SPDX-License-Identifier: Apache-2.0
"""Stands for slime's train actor of Megatron: slime's own base class with gloo, and a number instead of a model."""
import ray
import torch
import torch.distributed as dist
from slime.ray.train_actor import TrainRayActor

import cpu_accelerator  # noqa: F401  Its import gives slime the CPU.


class MegatronTrainRayActor(TrainRayActor):
    """A rank that counts the tokens of its samples, and tells the engines a new version of the weights."""

    def init(self, args, role, with_ref=False, with_opd_teacher=False):
        super().init(args, role, with_ref, with_opd_teacher)
        self.train_parallel_config = {"dp_size": args.world_size, "cp_size": 1, "vpp_size": 1,
                                      "microbatch_group_size_per_vp_stage": 1}
        self.tokens_seen = 0
        self.weight_version = 0
        return 0  # The rollout that the training begins with.

    def _get_parallel_config(self):
        return self.train_parallel_config

    def train(self, rollout_id, rollout_data_ref, external_data=None):
        samples = ray.get(rollout_data_ref[self.args.rank].inner)["tokens"]
        tokens = torch.tensor(sum(len(sample) for sample in samples))
        dist.all_reduce(tokens)
        self.tokens_seen += int(tokens)
        print(f"rank {self.args.rank} rollout {rollout_id}: {len(samples)} samples here, "
              f"{int(tokens)} tokens on all ranks", flush=True)

    def update_weights(self):
        self.weight_version += 1
        answer = ray.get(self.rollout_manager.get_updatable_engines_and_lock.remote())
        engines, counts, offsets = answer[0], answer[3], answer[4]
        for engine, count, offset in zip(engines, counts, offsets):
            if self.args.rank != offset:
                continue  # The first rank of an engine's GPUs updates the engine.
            ray.get(engine.pause_generation.remote())
            ray.get(engine.flush_cache.remote())
            ray.get(engine.update_weights_from_tensor.remote(
                serialized_named_tensors=["none"] * count, load_format="flattened_bucket",
                weight_version=str(self.weight_version)))
            ray.get(engine.continue_generation.remote())
        # slime's actor holds the lock while it sends weights to distributed engines; this one only shows that it answers.
        lock = answer[1]
        if self.args.rank == 0 and ray.get(lock.acquire.remote()):
            ray.get(lock.release.remote())
        dist.barrier()

    def save_model(self, rollout_id, force_sync=False):
        """Save nothing: there is no model."""

    def sleep(self, tags=None):
        """Release nothing: there is no memory of a GPU."""

    def wake_up(self, tags=None):
        """Take nothing back."""
