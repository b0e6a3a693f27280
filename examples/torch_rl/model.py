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


def create(settings, seed=None):
    """Return a model with random weights of this seed; without a seed one without memory for its weights."""
    config = config_of(settings)
    if seed is None:
        with torch.device("meta"):
            return Qwen3ForCausalLM(config)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config)


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
    meaning.
    """
    ids = torch.cat([prompts, answers], 1)
    mask = torch.cat([(prompts != task.PAD).long(), torch.ones_like(answers)], 1)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    logits = model(input_ids=ids, attention_mask=mask, position_ids=positions,
                   logits_to_keep=answers.shape[1] + 1).logits[:, :-1]
    return torch.log_softmax(logits.float() / temperature, -1).gather(-1, answers[:, :, None]).squeeze(-1)
