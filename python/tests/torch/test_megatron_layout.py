# SPDX-License-Identifier: Apache-2.0
"""tandem.megatron.layout() reads real models of megatron-core as Tandem's rules and Megatron itself describe them."""
import functools
import json
import math
import pathlib
import subprocess

import pytest

torch = pytest.importorskip("torch", reason="skipped: the Python package torch is missing")
pytest.importorskip("megatron.core", reason="skipped: the Python package megatron-core is missing")

import megatron_models as models  # noqa: E402
import tandem.megatron  # noqa: E402
from ranks import run  # noqa: E402

RULES = pathlib.Path(tandem.__file__).parents[2] / "tests/rank_shards_program"
# The description of a model, the number of ranks and ETP.
CASES = {"dense": (models.DENSE, 4, 1), "dense-8": (models.DENSE, 8, 1), "tied": (models.TIED, 4, 1),
         "moe": (models.MOE, 4, 1), "moe-etp2": (models.MOE, 8, 2)}
needs_rules = pytest.mark.skipif(not RULES.exists(), reason=f"skipped: {RULES} was not built")


def read_ranks(_, __, described, ranks, etp, names):
    """Return for each rank its parameters, and what Megatron's sharded_state_dict() says about them."""
    models.prepare()
    found = []
    for rank in range(ranks):
        with models.fake_rank(rank, ranks, etp):
            model = models.build(described, etp, names)
            parameters = [(parameter.name, str(parameter.memory.dtype), tuple(parameter.memory.shape), parameter.parts,
                           parameter.replica, parameter.replicas)
                          for parameter in tandem.megatron.parameters(model, models.VOCABULARY)]
            layout = tandem.megatron.layout(model, models.VOCABULARY)
            check_layout(model, layout)
            local_names = [name for name, _ in model.named_parameters()]
            local_names += [name for name, _ in model.named_buffers() if name.endswith("expert_bias")]
            found.append((parameters, local_names, sharded_of(model) if names == "local" else {}))
    return found


def check_layout(model, layout):
    """Check that a layout has views of all elements of the model but the rows added to the vocabulary."""
    storages = {value.untyped_storage().data_ptr() for value in [*model.parameters(), *model.buffers()]}
    shapes = {tensor.name: tensor.shape for tensor in layout.tensors}
    for part in layout.slices:
        assert part.memory.is_contiguous() and tuple(part.memory.shape) == part.extent
        assert part.memory.untyped_storage().data_ptr() in storages
        assert all(first + length <= whole for first, length, whole in
                   zip(part.offset, part.extent, shapes[part.name]))


def sharded_of(model):
    """Return {name in the model: [(key, shape, offset, local shape, prepended axes, replica)]} as Megatron saves it."""
    found = {}
    for name, value in model.sharded_state_dict().items():
        if hasattr(value, "build"):
            found[name] = value.build()
        elif hasattr(value, "local_shape"):
            found[name] = [value]
    return {name: [(part.key, part.global_shape, part.global_offset, part.local_shape, part.prepend_axis_num,
                    part.replica_id) for part in parts] for name, parts in found.items()}


@functools.cache
def ranks_of(case, names):
    return run(read_ranks, 1, *CASES[case], names)[0]


def rules_of(described, ranks, etp, folder):
    """Return for each rank {name: (type, shape, [(name of the model's tensor, rectangle, offset, pitch)])}."""
    config = folder / "config.json"
    config.write_text(json.dumps(described))
    layout = {"layout": "megatron", "ranks": ranks, "tp": models.TP, "pp": models.PP, "dtype": "F32"}
    if "n_routed_experts" in described:
        layout.update(ep=models.EP, etp=etp)
    output = subprocess.run([RULES, config, json.dumps(layout)], capture_output=True, text=True, check=True).stdout
    found = []
    for line in output.splitlines():
        kind, *words = line.split()
        if kind == "rank":
            found.append({})
        elif kind == "tensor":
            slices = []
            found[-1][words[0]] = words[1], tuple(map(int, words[2:])), slices
        else:
            slices.append((words[0], *map(int, words[1:])))
    return found


def as_rules(parameters):
    """Return parameters in the form of rules_of(): vectors are columns."""
    found = {}
    for name, dtype, shape, parts, _, _ in parameters:
        pitch = shape[1] if len(shape) == 2 else 1
        rectangles = []
        for part, offset, extent, start in parts:
            assert len(extent) == 1 or extent[1] == pitch, f"{part} does not lie in one piece"
            offset, extent = (*offset, 0)[:2], (*extent, 1)[:2]
            rectangles.append((part, *offset, *extent, start, pitch))
        found[name] = {"torch.float32": "F32"}[dtype], shape, rectangles
    return found


@needs_rules
@pytest.mark.parametrize("names", ["local", "te"])
@pytest.mark.parametrize("case", CASES)
def test_layout_equals_the_rules_on_every_rank(case, names, tmp_path):
    wanted = rules_of(*CASES[case], tmp_path)
    found = [as_rules(parameters) for parameters, _, _ in ranks_of(case, names)]
    assert len(wanted) == len(found) == CASES[case][1]
    for rank, (rules, own) in enumerate(zip(wanted, found)):
        assert sorted(own) == sorted(rules), f"names of rank {rank}"
        for name, rule in rules.items():
            assert own[name] == rule, f"{name} on rank {rank}"


@pytest.mark.parametrize("case", CASES)
def test_layout_agrees_with_sharded_state_dict(case):
    described, ranks, etp = CASES[case]
    compared = 0
    for parameters, local_names, sharded in ranks_of(case, "local"):
        own = dict(zip(local_names, parameters, strict=True))
        assert set(own) == set(sharded)
        for name, pieces in sharded.items():
            compare_with_sharded(own[name], pieces, described)
            compared += 1
    assert compared > 10 * ranks


def compare_with_sharded(parameter, pieces, described):
    name, _, shape, parts, replica, replicas = parameter
    rows = {}
    for part, offset, extent, _ in parts:
        rows.setdefault(part, []).append((offset, extent))
    for index, (key, whole, offset, local, prepended, _) in enumerate(pieces):
        axes, whole, offset = offset[:prepended], whole[prepended:], offset[prepended:]
        numbers = [int(word) for word in next(iter(rows)).split(".") if word.isdigit()] if rows else []
        assert all(axis in numbers for axis in axes), (key, axes, numbers)
        if not rows:
            assert offset[0] >= described["vocab_size"]
        elif name.endswith(("linear_qkv.weight", "linear_qkv.bias")):
            first = parts[0][1][0] // (models.HEADS // models.GROUPS * models.HEAD_DIM)
            assert offset[0] == first * shape[0] // (len(parts) // 3), key
            assert whole[0] * (len(parts) // 3) == models.GROUPS * shape[0], key
        elif "linear_fc1" in name and not name.endswith("layer_norm_weight"):
            _, first, extent, _ = parts[index]
            assert local == extent and offset[1:] == first[1:], key
            assert offset[0] == first[0] + index * whole[0] // 2, key
        else:
            assert offset == parts[0][1], key
            assert name.startswith(("embedding", "output_layer")) or local == parts[0][2], key
    assert math.prod(shape) == sum(math.prod(piece[3]) for piece in pieces)
    assert (replica == 0) == all(not any(piece[5]) if isinstance(piece[5], tuple) else piece[5] == 0
                                 for piece in pieces), (name, replica, replicas, pieces)
