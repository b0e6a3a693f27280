# SPDX-License-Identifier: Apache-2.0
"""What a vLLM worker serves from, compared with the tensors that it was sent.

vLLM's kernels may keep the weights in a form of their own. So a layer is asked for its product with the unit matrix,
which is its weight, exactly: one factor of each sum is 1, and the others are 0.
"""
import torch
from vllm.model_executor.layers.linear import (ColumnParallelLinear, LinearBase, MergedColumnParallelLinear,
                                               QKVParallelLinear, RowParallelLinear)
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

_ROWS = 256  # Rows of the unit matrix that are multiplied at once.


def differences_of(worker):
    """Return [(name, largest difference)] of the tensors of the last update that this worker does not serve.

    The names are those that were sent. A tensor without a counterpart in vLLM's model has the difference None.
    """
    engine = worker.weight_transfer_engine
    if engine is None or not hasattr(engine, "call_with_tensors"):
        raise RuntimeError("this vLLM engine has no weight transfer engine `tandem`: give LLM() the argument "
                           "weight_transfer_config={'backend': 'tandem'}")
    return engine.call_with_tensors(lambda tensors: compare(worker.get_model(), tensors))


@torch.no_grad()
def compare(model, tensors):
    """Return the differences between a model of vLLM and whole tensors by name; see differences_of()."""
    found, seen = [], set()
    for name, source, box, served in parts_of(model, tensors):
        seen.add(source)
        expected = tensors[source][box].to(served.dtype)
        if expected.shape != served.shape:
            raise ValueError(f"{name} has the shape {tuple(served.shape)} in vLLM, where {tuple(expected.shape)} was "
                             "expected")
        if not torch.equal(expected, served):
            found.append((name, float((expected.double() - served.double()).abs().max())))
    return found + [(name, None) for name in tensors if name not in seen]


@torch.no_grad()
def parts_of(model, names):
    """Yield (name, name that was sent, box, what is served) of each part that this rank has of tensors by name.

    box is the index of the part in the whole tensor. Both names are the same, unless an lm_head is tied to the
    embedding and only the embedding was sent.
    """
    fused = getattr(model, "packed_modules_mapping", {})
    covered = set()
    for path, layer in model.named_modules(remove_duplicate=False):
        if not isinstance(layer, (LinearBase, VocabParallelEmbedding)):
            continue
        prefix, _, last = path.rpartition(".")
        wanted = [f"{prefix}.{part}.weight" for part in fused[last]] if last in fused else [f"{path}.weight"]
        sent = [_sent_name(model, name, names) for name in wanted]
        covered.add(f"{path}.weight")
        if None in sent:
            continue
        served, first = _weight_of(layer), 0
        for index, (name, source) in enumerate(zip(wanted, sent)):
            box, rows = _box_of(layer, index)
            length = served.shape[0] - first if rows is None else rows
            yield name, source, box, served[first:first + length]
            first += length
    for name, parameter in model.named_parameters():
        if name not in covered and name in names:
            yield name, name, (), parameter


def _sent_name(model, name, names):
    """Return the name under which a tensor was sent, which of a tied lm_head is the embedding's; None if it was not."""
    if name in names:
        return name
    embedding = "model.embed_tokens.weight"
    is_tied = name == "lm_head.weight" and getattr(model.config, "tie_word_embeddings", False)
    return embedding if is_tied and embedding in names else None


def _weight_of(layer):
    """Return the weight with which a layer computes."""
    if isinstance(layer, VocabParallelEmbedding) and not isinstance(layer, ParallelLMHead):
        return layer.weight
    if isinstance(layer, VocabParallelEmbedding):
        columns, dtype = layer.embedding_dim, layer.weight.dtype
    else:
        columns = getattr(layer, "input_size_per_partition", layer.input_size)
        dtype = layer.params_dtype
    unit = torch.eye(columns, dtype=dtype, device=layer.weight.device)
    return torch.cat([layer.quant_method.apply(layer, rows) for rows in unit.split(_ROWS)]).t()


def _box_of(layer, index):
    """Return (index of this rank's part in the whole tensor, its rows), for tensor number `index` of a fused layer.

    The rows are None where they are all that the layer has.
    """
    if isinstance(layer, VocabParallelEmbedding):
        shard = layer.shard_indices
        first, end = shard.org_vocab_start_index, shard.org_vocab_end_index
        return (slice(first, end),), end - first  # The rest is padding.
    if isinstance(layer, QKVParallelLinear):
        rows = (layer.num_heads if index == 0 else layer.num_kv_heads) * layer.head_size
        place = layer.tp_rank if index == 0 else layer.tp_rank // layer.num_kv_head_replicas
    elif isinstance(layer, MergedColumnParallelLinear):
        rows, place = layer.output_sizes[index] // layer.tp_size, layer.tp_rank
    elif isinstance(layer, ColumnParallelLinear):
        rows, place = layer.output_size_per_partition, layer.tp_rank
    elif isinstance(layer, RowParallelLinear):
        columns = layer.input_size_per_partition
        return (slice(None), slice(layer.tp_rank * columns, (layer.tp_rank + 1) * columns)), None
    else:
        return (), None
    return (slice(place * rows, (place + 1) * rows),), rows
