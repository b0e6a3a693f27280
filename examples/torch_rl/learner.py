# SPDX-License-Identifier: Apache-2.0
"""One rank of the trainer: its shards, their optimizer, and what it learns from a batch."""
import dataclasses
import json
import pathlib

import torch
import torch.distributed as dist

import grpo
import model as models
import task
import views


@dataclasses.dataclass
class Rows:
    """A batch as tensors of one row for each sample."""
    prompts: torch.Tensor
    answers: torch.Tensor
    mask: torch.Tensor  # 1 where an answer has a token.
    groups: list  # Group of each row.
    rewards: torch.Tensor = None  # Reward of each token; None in supervised batches.
    sampled: torch.Tensor = None  # Log-probability of each token when it was drawn; None in supervised batches.

    @staticmethod
    def of(batch, tokenizer, prompt_width, answer_width):
        """Make the rows of a batch; one without a sample gets a row without a token, since all ranks must take part."""
        samples = batch.samples
        if not samples:
            mask = torch.zeros(1, answer_width)
            return Rows(tokenizer.prompts([""], prompt_width), mask.long(), mask, [0], mask, mask)
        texts = [tokenizer.encode(sample.answer, task.END) if batch.supervised else sample.tokens for sample in samples]
        rows = Rows(tokenizer.prompts([sample.prompt for sample in samples], prompt_width),
                    *task.answers(texts, answer_width), [sample.group for sample in samples])
        if not batch.supervised:
            rows.rewards = _numbers([sample.token_rewards for sample in samples], answer_width)
            rows.sampled = _numbers([sample.logprobs for sample in samples], answer_width)
        return rows


def _numbers(lists, width):
    """Return a tensor of lists of numbers, filled with zeros."""
    return torch.tensor([list(numbers) + [0.0] * (width - len(numbers)) for numbers in lists], dtype=torch.float32)


def loss_of(model, rows, settings, supervised):
    """Return the sum of the losses of all tokens, and the log-probabilities."""
    temperature = 1.0 if supervised else settings["rollout"]["temperature"]
    logprobs = models.logprobs(model, rows.prompts, rows.answers, temperature)
    if supervised:
        return grpo.imitation_loss(logprobs, rows.mask), logprobs
    low = settings["trainer"]["eps_clip"]
    token_advantages = grpo.advantages(rows.groups, rows.rewards, rows.mask)
    return grpo.policy_loss(logprobs, rows.sampled, token_advantages, rows.mask, low,
                            settings["trainer"].get("eps_clip_high", low)), logprobs


def backward(model, rows, settings, supervised, ranks):
    """Compute the gradients of the mean loss over the tokens of all ranks; return the loss and the log-probabilities.

    FSDP averages the gradients of the ranks. The ranks may have different numbers of tokens, so each scales its sum by
    all tokens and the number of ranks.
    """
    tokens = rows.mask.sum()
    if ranks > 1:
        dist.all_reduce(tokens)
    loss, logprobs = loss_of(model, rows, settings, supervised)
    loss = loss / tokens.clamp(min=1)
    (loss * ranks).backward()
    loss = loss.detach()
    if ranks > 1:
        dist.all_reduce(loss)
    return loss.item(), logprobs.detach()


class Learner:
    """A rank of the trainer, in a process group of gloo that has `ranks` ranks."""

    def __init__(self, settings, rank, ranks, seed, weights, moments):
        """Make a new model; its shards and moments lie in the memory of the two buffers."""
        self.settings, self.rank, self.ranks = settings, rank, ranks
        self.tokenizer = task.Tokenizer(settings["model"]["characters"])
        self.buffers = [weights, moments]
        self.model = models.divide(models.create(settings["model"], seed), ranks)
        views.parameters_move(self.model, views.BufferAllocator(weights))
        trainer = settings["trainer"]
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=trainer["lr"], betas=(trainer["adam_beta1"], trainer["adam_beta2"]),
            eps=trainer["adam_eps"], weight_decay=trainer["weight_decay"])
        views.state_create(self.optimizer, views.BufferAllocator(moments))
        self.was_supervised = True

    @staticmethod
    def region_bytes(settings, ranks):
        """Return the bytes of the two buffers, the same on every rank."""
        model = models.create(settings["model"])
        return views.shard_bytes(model, ranks), views.state_bytes(model, ranks)

    def step(self, batch):
        """Learn from this rank's samples of a batch; return metrics."""
        trainer, rollout = self.settings["trainer"], self.settings["rollout"]
        if self.was_supervised and not batch.supervised:
            views.state_reset(self.optimizer)  # Reinforcement begins with fresh moments.
        self.was_supervised = bool(batch.supervised)
        rate = (grpo.learning_rate(batch.step, batch.steps_count, trainer["warmup_lr"], trainer["warmup_lr"],
                                   trainer["warmup_lr_warmup_iters"]) if batch.supervised else
                grpo.learning_rate(batch.step, batch.steps_count, trainer["lr"], trainer["min_lr"],
                                   trainer["lr_warmup_iters"]))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        rows = Rows.of(batch, self.tokenizer, rollout["rollout_max_prompt_len"], rollout["rollout_max_response_len"])
        self.optimizer.zero_grad()
        loss, logprobs = backward(self.model, rows, self.settings, batch.supervised, self.ranks)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), trainer["clip_grad"]).full_tensor()
        self.optimizer.step()
        views.check(self.model, self.optimizer, self.buffers)
        metrics = {"loss": loss, "grad_norm": norm.item(), "lr": rate}
        if not batch.supervised:
            difference = ((logprobs - rows.sampled).abs() * rows.mask).max()
            if self.ranks > 1:
                dist.all_reduce(difference, op=dist.ReduceOp.MAX)
            metrics["logprob_diff_max"] = difference.item()
        return metrics

    @torch.no_grad()
    def logprobs(self, batch):
        """Return the log-probabilities of each sample's tokens with the present weights; learns nothing.

        All ranks must take part, each with a sample at least.
        """
        rollout, samples = self.settings["rollout"], batch.samples
        prompts = self.tokenizer.prompts([sample.prompt for sample in samples], rollout["rollout_max_prompt_len"])
        answers, _ = task.answers([sample.tokens for sample in samples], rollout["rollout_max_response_len"])
        found = models.logprobs(self.model, prompts, answers, rollout["temperature"])
        # Without a backward pass FSDP2 would keep the whole parameters that are not in a layer, until the next one.
        self.model.reshard()
        return [row[:len(sample.tokens)] for row, sample in zip(found, samples)]

    def whole_weights(self):
        """Return all parameters whole, on every rank."""
        return {name: value.full_tensor() for name, value in self.model.state_dict().items()}

    def save(self, directory):
        """Write this rank's shards and moments, and on rank 0 a folder that transformers reads."""
        folder = pathlib.Path(directory)
        state = {"weights": [parameter.to_local().detach().clone() for parameter in self.model.parameters()],
                 "optimizer": [{name: value.to_local() if hasattr(value, "to_local") else value
                                for name, value in self.optimizer.state[parameter].items()}
                               for parameter in self.model.parameters()],
                 "was_supervised": self.was_supervised}
        torch.save(state, folder / f"rank-{self.rank}.pt")
        whole = self.whole_weights()
        if self.rank == 0:
            plain = models.create(self.settings["model"], seed=0)
            plain.load_state_dict(whole)
            plain.save_pretrained(folder / "hf")
            (folder / "hf" / "characters.json").write_text(json.dumps(self.tokenizer.characters), encoding="utf-8")

    def load(self, directory):
        """Continue from what save() wrote on as many ranks."""
        state = torch.load(pathlib.Path(directory) / f"rank-{self.rank}.pt")
        with torch.no_grad():
            for parameter, value, moments in zip(self.model.parameters(), state["weights"], state["optimizer"],
                                                 strict=True):
                parameter.to_local().copy_(value)
                for name, moment in moments.items():
                    own = self.optimizer.state[parameter][name]
                    (own.to_local() if hasattr(own, "to_local") else own).copy_(moment)
        self.was_supervised = state["was_supervised"]
