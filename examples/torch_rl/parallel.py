# SPDX-License-Identifier: Apache-2.0
"""Tensor parallelism: each rank of an engine has a part of every attention and every feed-forward layer.

A rank has some of the heads and some of the intermediate neurons. Its model is an ordinary one with fewer of them,
whose last layers of both kinds add up the results of all ranks. Embeddings, norms and the output layer are whole on
each rank, so that every rank computes the same logits.
"""
ROWS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")  # Divided by their outputs.
COLUMNS = ("o_proj", "down_proj")  # Divided by their inputs: the ranks' outputs are summed.


def settings_of_rank(settings, ranks):
    """Return the settings of the section `model` for the model of one of the ranks."""
    divided = dict(settings)
    for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
        if settings[name] % ranks != 0:
            raise ValueError(f"model.{name} is {settings[name]}, which {ranks} ranks of an engine cannot share equally:"
                             " change it or engine.rollout_num_gpus_per_engine")
        divided[name] = settings[name] // ranks
    return divided


def dimension_of(name):
    """Return the dimension by which the parameter of that name is divided, or None if each rank has all of it."""
    layer = name.split(".")[-2] if "." in name else ""
    return 0 if layer in ROWS else 1 if layer in COLUMNS else None


def box_of(name, shape, rank, ranks):
    """Return offset and extent of a rank's part of the whole parameter of that name and shape."""
    offset, extent = [0] * len(shape), list(shape)
    dimension = dimension_of(name)
    if dimension is not None:
        extent[dimension] = shape[dimension] // ranks
        offset[dimension] = rank * extent[dimension]
    return tuple(offset), tuple(extent)


def connect(model, sum_over_ranks):
    """Let the layers that are divided by their inputs add up the outputs of all ranks.

    sum_over_ranks(tensor) returns the sum of the float32 tensors of all ranks, with the same bits on each of them.
    """
    def sum_outputs(module, inputs, output):
        return sum_over_ranks(output.float()).to(output.dtype)

    for name, module in model.named_modules():
        if name.split(".")[-1] in COLUMNS:
            module.register_forward_hook(sum_outputs)
