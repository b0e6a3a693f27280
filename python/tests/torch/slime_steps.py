# SPDX-License-Identifier: Apache-2.0
"""slime's way from the parameters of Megatron's ranks to the tensors of Hugging Face's files, for the tests.

slime gathers each parameter over its tensor parallel group, joins the pieces, removes the rows that were added to the
vocabulary, and cuts the whole into the tensors of Hugging Face's files. These steps are written here after slime's. The
numbers of layers and experts come from Megatron's groups.
"""
import re
import zlib

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset

import megatron_models as models

RENAMED = {"embedding.word_embeddings.weight": "model.embed_tokens.weight", "output_layer.weight": "lm_head.weight",
           "decoder.final_layernorm.weight": "model.norm.weight"}
RENAMED_IN_LAYER = {
    "self_attention.linear_proj.weight": "self_attn.o_proj.weight",
    "self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
    "self_attention.q_layernorm.weight": "self_attn.q_norm.weight",
    "self_attention.k_layernorm.weight": "self_attn.k_norm.weight",
    "mlp.linear_fc1.layer_norm_weight": "post_attention_layernorm.weight",
    "pre_mlp_layernorm.weight": "post_attention_layernorm.weight",
    "mlp.linear_fc2.weight": "mlp.down_proj.weight",
    "mlp.router.weight": "mlp.gate.weight",
    "mlp.router.expert_bias": "mlp.gate.e_score_correction_bias",
    "mlp.shared_experts.linear_fc2.weight": "mlp.shared_experts.down_proj.weight"}


def gathered_of(model, described):
    """Fill a model, and return the whole tensors that this rank gathers, by their names in Hugging Face's files."""
    whole = {}
    for name, value in global_names(model):
        fill(name, value, described)
        for part, elements in convert(name, gather(name, value)):
            whole[part] = elements.clone()
    return whole


def global_names(model):
    """Return the parameters and expert biases with their names over all stages and expert groups."""
    offset = get_transformer_layer_offset(model.config)
    experts = (model.config.num_moe_experts or 0) // parallel_state.get_expert_model_parallel_world_size()
    first = parallel_state.get_expert_model_parallel_rank() * experts
    found = []
    for name, value in [*model.named_parameters(), *expert_biases(model)]:
        name = re.sub(r"layers\.(\d+)", lambda match: f"layers.{int(match.group(1)) + offset}", name)
        name = re.sub(r"(experts\.linear_fc[12]\.weight)(\d+)",
                      lambda match: match.group(1) + str(int(match.group(2)) + first), name)
        found.append((name, value))
    return found


def expert_biases(model):
    """Return the biases of the routers, which are buffers, by their names in the model."""
    return [(name, value) for name, value in model.named_buffers() if "expert_bias" in name]


def fill(name, value, described):
    """Write numbers that are the same on all ranks that have the same piece."""
    if name == "output_layer.weight" and described["tie_word_embeddings"]:
        name = "embedding.word_embeddings.weight"
    piece = 0
    if getattr(value, "tensor_model_parallel", False):
        piece = (parallel_state.get_expert_tensor_parallel_rank() if ".experts." in name else
                 parallel_state.get_tensor_model_parallel_rank())
    generator = torch.Generator().manual_seed(zlib.crc32(f"{name} {piece}".encode()))
    with torch.no_grad():
        value.copy_(torch.randn(value.shape, generator=generator))


def gather(name, value):
    """Return the whole parameter, as slime's all_gather_param() does."""
    if "expert_bias" in name or not getattr(value, "tensor_model_parallel", False):
        return value.detach()
    group = (parallel_state.get_expert_tensor_parallel_group() if ".experts." in name else
             parallel_state.get_tensor_model_parallel_group())
    pieces = [torch.empty_like(value.detach()) for _ in range(group.size())]
    dist.all_gather(pieces, value.detach(), group=group)
    if len(pieces) > 1 and "linear_fc1.weight" in name:
        halves = [piece.chunk(2, dim=0) for piece in pieces]
        pieces = [gate for gate, _ in halves] + [up for _, up in halves]
    dim = 1 if "linear_fc2.weight" in name else value.partition_dim
    return torch.cat(pieces, dim=dim)


def convert(name, value):
    """Return the tensors of Hugging Face's files that a whole parameter consists of, as slime's converters do."""
    if name in RENAMED:
        is_vocabulary = name != "decoder.final_layernorm.weight"
        return [(RENAMED[name], value[:models.VOCABULARY] if is_vocabulary else value)]
    layer, rest = re.fullmatch(r"decoder\.layers\.(\d+)\.(.+)", name).groups()
    prefix = f"model.layers.{layer}."
    if rest in RENAMED_IN_LAYER:
        return [(prefix + RENAMED_IN_LAYER[rest], value)]
    expert = re.fullmatch(r"mlp\.experts\.linear_fc([12])\.weight(\d+)", rest)
    if expert and expert.group(1) == "2":
        return [(f"{prefix}mlp.experts.{expert.group(2)}.down_proj.weight", value)]
    if "linear_fc1" in rest:
        inside = (f"mlp.experts.{expert.group(2)}." if expert else
                  "mlp.shared_experts." if "shared_experts" in rest else "mlp.")
        gate, up = value.chunk(2, dim=0)
        return [(f"{prefix}{inside}gate_proj.weight", gate), (f"{prefix}{inside}up_proj.weight", up)]
    last = re.fullmatch(r"self_attention\.linear_qkv\.(weight|bias)", rest).group(1)
    grouped = value.view(models.GROUPS, -1, models.HEAD_DIM, *value.shape[1:])
    parts = torch.split(grouped, [models.HEADS // models.GROUPS, 1, 1], dim=1)
    return [(f"{prefix}self_attn.{letter}_proj.{last}", part.reshape(-1, *value.shape[1:]))
            for letter, part in zip("qkv", parts)]
