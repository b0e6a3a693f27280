# SPDX-License-Identifier: Apache-2.0
"""The losses: imitation of right answers, and group relative policy optimisation (GRPO)."""
import torch

DEVIATION_FLOOR = 1e-4  # Is added to the deviation, so that equal rewards give advantages of 0.


def advantages(groups, token_rewards, mask):
    """Return the advantage of each token: its reward against those of its group at the same place.

    groups has the group of each row, and rows of one group are neighbours; the others are tensors of rows of tokens.
    """
    found = torch.zeros_like(token_rewards)
    groups = torch.tensor(groups)
    _, counts = torch.unique_consecutive(groups, return_counts=True)
    first = 0
    for count in counts.tolist():
        rows = slice(first, first + count)
        rewards, here = token_rewards[rows], mask[rows]
        present = here.sum(0).clamp(min=1)
        difference = (rewards - (rewards * here).sum(0) / present) * here
        deviation = ((difference ** 2).sum(0) / present).sqrt()
        found[rows] = difference / (deviation + DEVIATION_FLOOR)
        first += count
    return found


def policy_loss(logprobs, sampled, token_advantages, mask, low, high):
    """Return the sum over all tokens of the clipped loss; `sampled` are the log-probabilities when they were drawn."""
    ratio = (logprobs - sampled).exp()
    gain = torch.minimum(ratio * token_advantages, ratio.clamp(1 - low, 1 + high) * token_advantages)
    return -(gain * mask).sum()


def imitation_loss(logprobs, mask):
    """Return the sum over all tokens of the negative log-probability."""
    return -(logprobs * mask).sum()


def learning_rate(step, steps_count, top, least, rise):
    """Return the rate of a step from 1 to steps_count: it rises over some steps, and falls to the least one."""
    return min(1.0, step / max(1, rise)) * (top - (top - least) * min(1.0, step / max(1, steps_count)))
