# SPDX-License-Identifier: Apache-2.0
"""Reads layouts from models of Megatron-core.

What Megatron has made of a model's tensors is read from the parameters and groups of a GPT model, which each rank has
for itself. The slices are parts of the tensors that Hugging Face's files have.
"""
import dataclasses
import math
import re

from tandem.layout import Layout, Slice, Tensor

# The tensors of a layer: the name that Megatron gives them with the layers of Transformer Engine, and the tensors of
# Hugging Face that they consist of, of which the rows (or columns) of a rank lie one behind the other.
_ATTENTION = {
    "self_attention.linear_qkv.layer_norm_weight": ("input_layernorm.weight",),
    "self_attention.linear_qkv.weight": ("self_attn.q_proj.weight", "self_attn.k_proj.weight",
                                         "self_attn.v_proj.weight"),
    "self_attention.linear_qkv.bias": ("self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"),
    "self_attention.q_layernorm.weight": ("self_attn.q_norm.weight",),
    "self_attention.k_layernorm.weight": ("self_attn.k_norm.weight",),
    "self_attention.linear_proj.weight": ("self_attn.o_proj.weight",),
}
_MLP = {
    "mlp.linear_fc1.layer_norm_weight": ("post_attention_layernorm.weight",),
    "mlp.linear_fc1.weight": ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
    "mlp.linear_fc2.weight": ("mlp.down_proj.weight",),
    "pre_mlp_layernorm.weight": ("post_attention_layernorm.weight",),
    "mlp.router.weight": ("mlp.gate.weight",),
    "mlp.router.expert_bias": ("mlp.gate.e_score_correction_bias",),
    "mlp.shared_experts.linear_fc1.weight": ("mlp.shared_experts.gate_proj.weight",
                                             "mlp.shared_experts.up_proj.weight"),
    "mlp.shared_experts.linear_fc2.weight": ("mlp.shared_experts.down_proj.weight",),
    "mlp.experts.linear_fc1.weight{e}": ("mlp.experts.{e}.gate_proj.weight", "mlp.experts.{e}.up_proj.weight"),
    "mlp.experts.linear_fc2.weight{e}": ("mlp.experts.{e}.down_proj.weight",),
}
_OF_LAYER = {**_ATTENTION, **_MLP}
_OUTSIDE = {
    "embedding.word_embeddings.weight": "model.embed_tokens.weight",
    "decoder.final_layernorm.weight": "model.norm.weight",
    "output_layer.weight": "lm_head.weight",
}
_LAYER = re.compile(r"decoder\.layers\.(\d+)\.(.+)")
# The experts of Megatron's own layers, and those of Transformer Engine's.
_LOCAL_EXPERT = re.compile(r"mlp\.experts\.local_experts\.(\d+)\.(linear_fc[12])\.weight")
_GROUPED_EXPERT = re.compile(r"mlp\.experts\.(linear_fc[12])\.weight(\d+)")


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter of a rank's model: its name with global layers, as with Transformer Engine, and its slices.

    parts has (name in Hugging Face's files, offset, extent, offset of the first element in this parameter); the rows
    that were added to a vocabulary are in none.
    """
    name: str
    memory: object
    parts: list
    replica: int
    replicas: int


def layout(model, vocab_size=None):
    """Return the tandem.layout.Layout of this rank's GPTModel, or of its list of virtual stages.

    vocab_size is the number of tokens without the rows that were added for Megatron; None if none were added, since the
    model does not know. The tensors are those of which this rank holds something: tandem.layout.join() makes the whole
    list. The slices are views of the parameters.
    """
    tensors, slices = {}, []
    for chunk in model if isinstance(model, (list, tuple)) else [model]:
        reader = _Reader(_unwrapped(chunk), vocab_size)
        for parameter in reader.parameters():
            for name, offset, extent, start in parameter.parts:
                shape = reader.shapes[name]
                tensors[name] = Tensor(name, str(parameter.memory.dtype).removeprefix("torch."), shape)
                memory = parameter.memory.reshape(-1)[start:start + math.prod(extent)].view(extent)
                slices.append(Slice(name, memory, offset, extent, parameter.replica, parameter.replicas))
    return Layout(list(tensors.values()), slices)


def parameters(model, vocab_size=None):
    """Return a Parameter for each parameter and each expert bias of a GPTModel, in the model's order."""
    return _Reader(_unwrapped(model), vocab_size).parameters()


def _unwrapped(model):
    """Return the GPTModel inside of Megatron's wrappers for data parallelism and half precision."""
    while not hasattr(model, "decoder") and hasattr(model, "module"):
        model = model.module
    return model


class _Reader:
    """Reads the parameters of one GPTModel."""

    def __init__(self, model, vocab_size):
        self.model, self.config = model, model.config
        self.vocab_size = model.vocab_size if vocab_size is None else vocab_size
        self.shapes = {}  # Shape of each tensor of Hugging Face that was met.
        if getattr(model, "mtp_process", False):
            raise NotImplementedError("layers of multi-token prediction cannot be read yet")
        if self.config.multi_latent_attention:
            raise NotImplementedError("multi-head latent attention cannot be read yet")
        if not self.config.gated_linear_unit:
            raise NotImplementedError("an MLP without a gate has no tensors in Hugging Face's files that are known")

    def parameters(self):
        found = []
        named = [*self.model.named_parameters(),
                 *((name, value) for name, value in self.model.named_buffers() if name.endswith("router.expert_bias"))]
        for local_name, value in named:
            found.append(self._parameter(local_name, value))
        return found

    def _parameter(self, local_name, value):
        match = _LAYER.fullmatch(local_name)
        is_expert = False
        if match is None:
            name, parts = local_name, _OUTSIDE.get(local_name)
            parts = parts and (self._whole_name(parts),)
        else:
            layer = self.model.decoder.layers[int(match.group(1))]
            rest, expert = _canonical(layer, match.group(2))
            is_expert = expert is not None
            number = layer.layer_number - 1
            parts = _OF_LAYER.get(rest)
            name = f"decoder.layers.{number}." + rest.replace("{e}", str(expert))
            if parts is not None:
                if is_expert:
                    expert = layer.mlp.local_expert_indices[expert]
                parts = tuple(f"model.layers.{number}.{part.replace('{e}', str(expert))}" for part in parts)
        if parts is None:
            raise NotImplementedError(f"the parameter {local_name} of shape {tuple(value.shape)} is not known")
        if not value.is_contiguous():
            raise ValueError(f"{local_name} is not contiguous: strides {value.stride()}")
        partition = self._partition(local_name, value, is_expert)
        return Parameter(name, value.detach(), self._parts(local_name, value, parts, *partition[:3]), *partition[3:])

    def _whole_name(self, name):
        """Return the name of a tensor outside of layers: a tied output layer is a copy of the embedding."""
        is_tied = self.model.share_embeddings_and_output_weights
        return "model.embed_tokens.weight" if name == "lm_head.weight" and is_tied else name

    def _partition(self, name, parameter, is_expert):
        """Return dimension (None if whole), number of the piece and of pieces, replica and replicas of a parameter."""
        groups = self.model.pg_collection
        tensor_group = groups.expt_tp if is_expert else groups.tp
        data_group = groups.expt_dp if is_expert else groups.dp_cp
        replica, replicas = data_group.rank(), data_group.size()
        is_divided = getattr(parameter, "tensor_model_parallel", False)
        if getattr(parameter, "parallel_mode", None) == "duplicated":
            is_divided = False
        if getattr(parameter, "shared_embedding", False) and self.model.share_embeddings_and_output_weights:
            # The first and the last stage have copies.
            stages = groups.pp.size()
            replica, replicas = replica + replicas * (groups.pp.rank() > 0), replicas * min(stages, 2)
        if not is_divided:
            return None, 0, 1, replica + replicas * tensor_group.rank(), replicas * tensor_group.size()
        stride = parameter.partition_stride
        if stride not in (1, 2) or (stride == 2 and "linear_fc1" not in name):
            raise NotImplementedError(f"{name} is divided with a stride of {stride}")
        # Grouped experts of Transformer Engine say dimension 0 of both layers, with expert tensor parallelism too.
        dim = 1 if re.search(r"linear_fc2\.weight\d*$", name) else parameter.partition_dim
        return dim, tensor_group.rank(), tensor_group.size(), replica, replicas

    def _parts(self, local_name, value, names, dim, piece, pieces):
        """Return the parts of a parameter, of which `piece` of `pieces` along `dim` is `value`."""
        shape = list(value.shape)
        if "linear_qkv" in local_name and len(names) == 3:
            return self._query_groups(local_name, shape, names, piece, pieces)
        if dim is not None and len(names) == 2 and dim != 0:
            raise NotImplementedError(f"{local_name} has a gate, and is divided along dimension {dim}")
        # Gate and up lie one behind the other in each piece.
        if shape[0] % len(names) != 0:
            raise ValueError(f"{local_name} has {shape[0]} rows for {len(names)} tensors")
        shape[0] //= len(names)
        found = []
        for index, name in enumerate(names):
            offset, extent, whole = [0] * len(shape), list(shape), list(shape)
            if dim is not None:
                offset[dim], whole[dim] = piece * shape[dim], pieces * shape[dim]
            if local_name in ("embedding.word_embeddings.weight", "output_layer.weight"):
                if whole[0] < self.vocab_size:
                    raise ValueError(f"{local_name} has {whole[0]} rows for {self.vocab_size} tokens")
                whole[0] = self.vocab_size
                extent[0] = max(0, min(extent[0], whole[0] - offset[0]))
            self.shapes[name] = tuple(whole)
            if math.prod(extent) > 0:
                found.append((name, tuple(offset), tuple(extent), index * math.prod(shape)))
        return found

    def _query_groups(self, local_name, shape, names, piece, pieces):
        """Return the parts of fused queries, keys and values: those of one query group, then those of the next."""
        config = self.config
        groups = config.num_query_groups // pieces
        head = config.kv_channels
        queries = config.num_attention_heads // config.num_query_groups * head
        rest = tuple(shape[1:])
        if config.num_query_groups % pieces != 0 or groups * (queries + 2 * head) != shape[0]:
            raise ValueError(f"{local_name} has {shape[0]} rows for {config.num_query_groups} query groups of "
                             f"{queries} + 2 × {head} rows on {pieces} ranks")
        found, row = [], 0
        for group in range(piece * groups, (piece + 1) * groups):
            for name, rows in zip(names, (queries, head, head)):
                self.shapes[name] = (rows * config.num_query_groups, *rest)
                found.append((name, (group * rows, *(0 for _ in rest)), (rows, *rest), row * math.prod(rest)))
                row += rows
        return found


def _canonical(layer, rest):
    """Return the name of a layer's parameter as with Transformer Engine, and its local expert or None."""
    match = _LOCAL_EXPERT.fullmatch(rest)
    if match is not None:
        return f"mlp.experts.{match.group(2)}.weight{{e}}", int(match.group(1))
    match = _GROUPED_EXPERT.fullmatch(rest)
    if match is not None:
        return f"mlp.experts.{match.group(1)}.weight{{e}}", int(match.group(2))
    if rest == "input_layernorm.weight":
        return "self_attention.linear_qkv.layer_norm_weight", None
    if rest == "pre_mlp_layernorm.weight" and not hasattr(layer.mlp, "router"):
        return "mlp.linear_fc1.layer_norm_weight", None
    return rest, None
