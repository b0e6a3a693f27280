#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""learning_test.py - the example's model learns from its rewards and from updates, and from nothing else."""
import sys

from support import main, require, steps_of

STEPS = 60   # The run is deterministic; after so many steps about one answer in five is right.
LAST = 10    # Rewards are compared by the mean of the last steps.


def late_reward(sandbox, *settings):
    """Runs a short job and returns the mean reward of its last steps."""
    code, out, err = sandbox.run("--json", f"rollout.num_rollout={STEPS}", *settings)
    require(code == 0, f"exit code {code}: {err}")
    rewards = [step["reward"] for step in steps_of(out)]
    require(len(rewards) == STEPS, f"{len(rewards)} steps")
    return sum(rewards[-LAST:]) / LAST


def the_model_learns(sandbox):
    reward = late_reward(sandbox)
    require(reward > 0.12, f"the reward is {reward:.3f}, not above 0.12")


def engines_without_updates_do_not_improve(sandbox):
    reward = late_reward(sandbox, "update.enabled=false")
    require(reward < 0.04, f"the reward is {reward:.3f} without updates")


def shuffled_rewards_teach_nothing(sandbox):
    reward = late_reward(sandbox, "data.shuffle_rewards=true")
    require(reward < 0.04, f"the reward is {reward:.3f} with shuffled rewards")


if __name__ == "__main__":
    sys.exit(main([the_model_learns, engines_without_updates_do_not_improve, shuffled_rewards_teach_nothing]))
