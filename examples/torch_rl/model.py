# SPDX-License-Identifier: Apache-2.0
"""The model: Qwen3 of transformers, whole or divided over ranks by FSDP2."""
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import Qwen3Config, Qwen3ForCausalLM

import task


def config_of(settings):
    """Return the configuration of the section `model` of the job file."""
    return Qwen3Config(
        vocab_size=task.Tokenizer(settings["characters"]).size, hidden_size=settings["hidden_size"],
        intermediate_size=settings["intermediate_size"], num_hidden_layers=settings["num_hidden_layers"],
        num_attention_heads=settings["num_attention_heads"], num_key_value_heads=settings["num_key_value_heads"],
        head_dim=settings["head_dim"], tie_word_embeddings=settings["tie_word_embeddings"],
        max_position_embeddings=settings["max_position_embeddings"], pad_token_id=task.PAD, eos_token_id=task.END,
        bos_token_id=None)


def create(settings, seed=None, dtype=torch.float32):
    """Return a model with random weights of this seed; without a seed one without memory for its weights."""
    config = config_of(settings)
    if seed is None:
        with torch.device("meta"):
            return _converted(Qwen3ForCausalLM(config), dtype)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return _converted(Qwen3ForCausalLM(config), dtype)


def _converted(model, dtype):
    """Give the parameters another type. The frequencies of the positions, which are a buffer, stay as they are."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


def divide(model, ranks):
    """Divide a model over all ranks of the default group: each keeps a part of the rows of each parameter."""
    mesh = init_device_mesh("cpu", (ranks,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def logprobs(model, prompts, answers, temperature=1.0):
    """Return the log-probability of each token of the answers.

    prompts are padded in front and answers behind, both tensors of one row for each sample; what padding gets has no
    meaning. The model reads a prompt once for all its answers that are in neighbouring rows.
    """
    packed = _Packed(prompts, answers)
    logits = model(input_ids=packed.ids, attention_mask=packed.mask[:, None], position_ids=packed.positions).logits
    logits = logits[packed.predictions]
    return torch.log_softmax(logits.float() / temperature, -1).gather(-1, answers[:, :, None]).squeeze(-1)


class _Packed:
    """Prompts, each with all its answers in one row behind it.

    Every answer has the positions that follow the prompt, and its tokens see the prompt and their own answer only.
    """

    def __init__(self, prompts, answers):
        distinct, place, counts = torch.unique_consecutive(prompts, dim=0, return_inverse=True, return_counts=True)
        read = answers[:, :-1]  # No token follows the last one.
        groups, width, length = len(distinct), prompts.shape[1], read.shape[1]
        # Number of each answer among those of its prompt.
        number = torch.arange(len(prompts)) - (counts.cumsum(0) - counts)[place]
        most = int(counts.max())
        behind = torch.full((groups, most, length), task.PAD)
        behind[place, number] = read
        self.ids = torch.cat([distinct, behind.flatten(1)], 1)
        is_token = distinct != task.PAD
        order = torch.arange(length).repeat(most)
        self.positions = torch.cat([(is_token.long().cumsum(1) - 1).clamp(min=0),
                                    is_token.sum(1, keepdim=True) + order], 1)
        # mask[row, i, j] says whether token i sees token j. Padding sees itself, since softmax needs something to see.
        owner = torch.cat([torch.full((width,), -1), torch.arange(most).repeat_interleave(length)])
        size = len(owner)
        sees = torch.ones(size, size).tril().bool() & ((owner == -1) | (owner == owner[:, None]))
        exists = torch.cat([is_token, torch.ones(groups, most * length, dtype=torch.bool)], 1)
        self.mask = (sees & exists[:, None]) | torch.eye(size, dtype=torch.bool)
        # Where the logits of each token of the answers are: at the token before it.
        before = width + number[:, None] * length + torch.arange(length)
        self.predictions = place[:, None], torch.cat([torch.full((len(prompts), 1), width - 1), before], 1)
