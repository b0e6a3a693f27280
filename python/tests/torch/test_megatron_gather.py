# SPDX-License-Identifier: Apache-2.0
"""What the slices of a Megatron model's ranks carry is bit-equal to what slime's way of gathering gives, over gloo."""
import pytest

torch = pytest.importorskip("torch", reason="skipped: the Python package torch is missing")
pytest.importorskip("megatron.core", reason="skipped: the Python package megatron-core is missing")
import torch.distributed as dist  # noqa: E402

import megatron_models as models  # noqa: E402
import slime_steps  # noqa: E402
import tandem.megatron  # noqa: E402
from ranks import run  # noqa: E402
from tandem.layout import join  # noqa: E402

CASES = {"dense": (models.DENSE, 4, 1), "tied": (models.TIED, 4, 1), "moe": (models.MOE, 4, 1),
         "moe-etp2": (models.MOE, 8, 2)}


def gather_on_rank(_, ranks, described, etp):
    models.prepare()
    models.initialize(etp)
    model = models.build(described, etp, "te")
    whole = slime_steps.gathered_of(model, described)
    layout = tandem.megatron.layout(model, models.VOCABULARY)
    lists = [None] * ranks
    dist.all_gather_object(lists, layout.tensors)
    sent = [(part.name, part.memory.clone(), part.offset, part.extent) for part in layout.sent()]
    return whole, sent, join(lists)


@pytest.mark.parametrize("case", CASES)
def test_slices_carry_what_slime_gathers(case):
    described, ranks, etp = CASES[case]
    results = run(gather_on_rank, ranks, described, etp)
    gathered = {}
    for whole, _, _ in results:
        for name, value in whole.items():
            assert torch.equal(gathered.setdefault(name, value), value), f"{name} differs between ranks"
    if described["tie_word_embeddings"]:
        # slime sends the copy of the last stage, too; a layout has the embedding only.
        assert torch.equal(gathered.pop("lm_head.weight"), gathered["model.embed_tokens.weight"])
    tensors = results[0][2]
    assert all(result[2] == tensors for result in results), "the joined list is the same on every rank"
    assert {tensor.name: tensor.shape for tensor in tensors} == {
        name: tuple(value.shape) for name, value in gathered.items()}
    found = {tensor.name: torch.zeros(tensor.shape) for tensor in tensors}
    count = {tensor.name: torch.zeros(tensor.shape, dtype=torch.int64) for tensor in tensors}
    for _, sent, _ in results:
        for name, elements, offset, extent in sent:
            box = tuple(slice(first, first + length) for first, length in zip(offset, extent))
            found[name][box] = elements
            count[name][box] += 1
    for name, value in gathered.items():
        assert (count[name] == 1).all(), f"{name} is sent once"
        assert torch.equal(found[name].view(torch.int32), value.contiguous().view(torch.int32)), name
