# SPDX-License-Identifier: Apache-2.0
"""The parts of examples/torch_rl without a job: gradients of ranks, views of foreign memory, files, answers."""
import functools
import mmap
import pathlib
import random
import sys
import tempfile
import types

import pytest

torch = pytest.importorskip("torch", reason="skipped: the Python package torch is missing")
pytest.importorskip("transformers", reason="skipped: the Python package transformers is missing")

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "examples/torch_rl"))
import grpo  # noqa: E402
import learner as learners  # noqa: E402
import model as models  # noqa: E402
import parallel  # noqa: E402
import rollout  # noqa: E402
import tandem.torch  # noqa: E402
import task  # noqa: E402
import views  # noqa: E402
from ranks import run  # noqa: E402

SETTINGS = {
    "model": {"characters": "0123456789<>", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8,
              "num_key_value_heads": 4, "head_dim": 32, "intermediate_size": 190, "max_position_embeddings": 64,
              "tie_word_embeddings": False},
    "trainer": {"lr": 2e-3, "min_lr": 2e-4, "lr_warmup_iters": 5, "warmup_lr": 3e-3, "warmup_lr_warmup_iters": 10,
                "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_eps": 1e-8, "weight_decay": 0.0, "clip_grad": 1.0,
                "eps_clip": 0.2},
    "rollout": {"temperature": 1.0, "rollout_max_prompt_len": 8, "rollout_max_response_len": 5}}
TIED = {**SETTINGS, "model": {**SETTINGS["model"], "tie_word_embeddings": True}}


def batch_of(supervised, groups, samples=3, step=1):
    """Return a batch of groups with answers of different lengths."""
    draw = random.Random(7)
    found = []
    for group in range(groups):
        digits = [draw.choice("0123456789") for _ in range(draw.randint(2, 4))]
        for _ in range(samples):
            tokens = [draw.randrange(1, 15) for _ in range(draw.randint(1, 5))]
            found.append(types.SimpleNamespace(
                group=group, prompt="".join(digits) + "<", answer="".join(sorted(digits)), tokens=tokens,
                logprobs=[-3 * draw.random() for _ in tokens],
                token_rewards=[float(draw.random() < 0.5) for _ in tokens]))
    return types.SimpleNamespace(supervised=supervised, step=step, steps_count=10, samples=found)


def part_of(batch, rank, ranks):
    """Return a rank's part of a batch: whole groups, and different numbers of them."""
    groups = sorted({sample.group for sample in batch.samples})
    cuts = [len(groups) * r * (r + 1) // (ranks * (ranks + 1)) for r in range(ranks + 1)]
    own = groups[cuts[rank]:cuts[rank + 1]]
    return types.SimpleNamespace(**{**vars(batch), "samples": [one for one in batch.samples if one.group in own]})


def rows_of(batch):
    return learners.Rows.of(batch, task.Tokenizer(SETTINGS["model"]["characters"]), 8, 5)


def buffers_of(settings, ranks):
    return [mmap.mmap(-1, size) for size in learners.Learner.region_bytes(settings, ranks)]


# ---- gradients and views --------------------------------------------------------------------


def learn(rank, ranks):
    """Return what one rank of the example finds out about itself."""
    found = {}
    for name, settings in (("untied", SETTINGS), ("tied", TIED)):
        for supervised in (True, False):
            batch = batch_of(supervised, groups=7)
            model = models.divide(models.create(settings["model"], seed=1), ranks)
            loss, _ = learners.backward(model, rows_of(part_of(batch, rank, ranks)), settings, supervised, ranks)
            found[name, supervised] = loss, {key: parameter.grad.full_tensor() for key, parameter in
                                             model.named_parameters()}
    found["shapes"] = {key: tuple(parameter.to_local().shape) for key, parameter in model.named_parameters()}
    found["views"] = learn_in_buffers(rank, ranks)
    return found


def learn_in_buffers(rank, ranks):
    """Return the weights and metrics of some steps in foreign memory and in torch's own, and of a continued run."""
    buffers = buffers_of(TIED, ranks)
    learner = learners.Learner(TIED, rank, ranks, 1, *buffers)
    assert learner.model.lm_head.weight is learner.model.model.embed_tokens.weight, "tied parameters stay tied"
    steps = [batch_of(True, 4), batch_of(False, 5), batch_of(False, 6, step=2), batch_of(False, 1, step=3)]
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    torch.distributed.broadcast_object_list(folder)
    metrics = [learner.step(part_of(batch, rank, ranks)) for batch in steps[:3]]
    learner.save(folder[0])
    torch.distributed.barrier()
    metrics.append(learner.step(part_of(steps[3], rank, ranks)))
    continued = learners.Learner(TIED, rank, ranks, 5, *buffers_of(TIED, ranks))
    continued.load(folder[0])
    continued.step(part_of(steps[3], rank, ranks))
    whole = learner.whole_weights()
    parts = [(part.name, part.memory.clone(), part.offset, part.extent)
             for part in tandem.torch.layout(learner.model).sent()]
    with pytest.raises(RuntimeError, match="1 tensors lie outside of the regions"):
        next(views._fsdp_parameters(learner.model))._sharded_param_data = torch.zeros(3)
        views.check(learner.model, learner.optimizer, learner.buffers)
    return {"metrics": metrics, "whole": whole, "continued": continued.whole_weights(), "parts": parts,
            "own": learn_in_own_memory(steps, rank, ranks), "saved": saved_model(folder[0]),
            "addresses": len(views.addresses(continued.model, continued.optimizer))}


def saved_model(folder):
    saved = models.Qwen3ForCausalLM.from_pretrained(pathlib.Path(folder) / "hf")
    return {name: value.clone() for name, value in saved.state_dict().items()}


def learn_in_own_memory(steps, rank, ranks):
    """Return the weights after the same steps with FSDP's own memory and AdamW's own state."""
    model = models.divide(models.create(TIED["model"], seed=1), ranks)
    trainer = TIED["trainer"]
    for batch in steps:
        if batch is steps[0] or batch is steps[1]:
            optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.0)
        rate = (grpo.learning_rate(batch.step, 10, 3e-3, 3e-3, 10) if batch.supervised else
                grpo.learning_rate(batch.step, 10, 2e-3, 2e-4, 5))
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        learners.backward(model, rows_of(part_of(batch, rank, ranks)), TIED, batch.supervised, ranks)
        torch.nn.utils.clip_grad_norm_(model.parameters(), trainer["clip_grad"])
        optimizer.step()
    return {name: value.full_tensor() for name, value in model.state_dict().items()}


@functools.cache
def results_of(ranks):
    return run(learn, ranks)


@pytest.mark.parametrize("ranks", [2, 3])
def test_gradients_of_ranks_are_those_of_one_rank_on_the_whole_batch(ranks):
    results = results_of(ranks)
    for name, settings in (("untied", SETTINGS), ("tied", TIED)):
        for supervised in (True, False):
            model = models.create(settings["model"], seed=1)
            loss, _ = learners.backward(model, rows_of(batch_of(supervised, groups=7)), settings, supervised, 1)
            for result in results:
                assert result[name, supervised][0] == pytest.approx(loss, abs=1e-6)
                gradients = result[name, supervised][1]
                assert sorted(gradients) == sorted(dict(model.named_parameters()))
                for key, parameter in model.named_parameters():
                    assert (gradients[key] - parameter.grad).abs().max() <= 1e-6, (name, supervised, key)


def test_shapes_are_uneven():
    for ranks in (2, 3):
        rows = [result["shapes"]["model.embed_tokens.weight"][0] for result in results_of(ranks)]
        assert rows == {2: [8, 7], 3: [5, 5, 5]}[ranks]
    rows = [result["shapes"]["model.layers.0.mlp.gate_proj.weight"][0] for result in results_of(3)]
    assert rows == [64, 64, 62]


@pytest.mark.parametrize("ranks", [2, 3])
def test_views_of_foreign_memory_learn_like_own_memory(ranks):
    for result in results_of(ranks):
        found = result["views"]
        for name, value in found["own"].items():
            assert torch.equal(found["whole"][name], value), name
        assert all(metrics["grad_norm"] > 0 for metrics in found["metrics"])
        assert found["addresses"] > 4 * 20


@pytest.mark.parametrize("ranks", [2, 3])
def test_saved_files_continue_exactly_and_transformers_reads_them(ranks):
    for result in results_of(ranks):
        found = result["views"]
        for name, value in found["whole"].items():
            assert torch.equal(found["continued"][name], value), name
            assert found["saved"][name].shape == value.shape and not torch.equal(found["saved"][name], value), name


def test_layout_of_the_trainer_is_the_model():
    results = [result["views"] for result in results_of(3)]
    whole = {name: torch.zeros_like(value) for name, value in results[0]["whole"].items() if name != "lm_head.weight"}
    for found in results:
        for name, elements, offset, extent in found["parts"]:
            whole[name][tuple(slice(first, first + length) for first, length in zip(offset, extent))] = elements
    assert all(torch.equal(results[0]["whole"][name], value) for name, value in whole.items())


# ---- answers and rewards --------------------------------------------------------------------


def generator_of(settings):
    generator = rollout.Generator(settings, mmap.mmap(-1, rollout.Generator.region_bytes(settings)))
    generator.model.load_state_dict(models.create(settings["model"], seed=3).state_dict())
    return generator


def test_answers_have_the_trainers_logprobs_and_depend_on_their_seed_alone():
    generator = generator_of(SETTINGS)
    texts, seeds = ["7425>", "12<", "907<", "12<"], [11, 12, 13, 14]
    found = generator.generate(texts, seeds, 1.0, 5)
    again = generator.generate(texts[::-1], seeds[::-1], 1.0, 5)[::-1]
    assert [one.tokens for one in found] == [one.tokens for one in again]
    assert found[1].tokens != found[3].tokens, "two seeds"
    prompts = generator.tokenizer.prompts(texts, 8)
    rows, mask = task.answers([one.tokens for one in found], 5)
    with torch.no_grad():
        wanted = models.logprobs(generator.model, prompts, rows)
    sampled, _ = task.answers([one.logprobs for one in found], 5)
    assert ((wanted - sampled) * mask).abs().max() < 1e-5
    greedy = generator.generate(texts, [0] * 4, 0.0, 5)
    assert greedy[1].tokens == greedy[3].tokens


def test_a_prompt_that_is_read_once_gives_all_its_answers_their_logprobs():
    model = models.create(SETTINGS["model"], seed=3)
    tokenizer = task.Tokenizer(SETTINGS["model"]["characters"])
    draw = random.Random(3)
    texts = ["7425>"] * 3 + ["12<"] + ["907<"] * 2 + ["7425>"]
    answers = [[draw.randrange(1, 15) for _ in range(draw.randint(1, 5))] for _ in texts]
    found = models.logprobs(model, tokenizer.prompts(texts, 8), task.answers(answers, 5)[0], 0.7)
    for row, (text, answer) in enumerate(zip(texts, answers)):
        ids = tokenizer.encode(text, task.ANSWER)
        logits = model(torch.tensor([ids + answer[:-1]])).logits[0, len(ids) - 1:]
        wanted = torch.log_softmax(logits / 0.7, -1).gather(-1, torch.tensor(answer)[:, None]).squeeze(-1)
        assert torch.allclose(found[row, :len(answer)], wanted, atol=1e-5), row


TEXTS, SEEDS = ["7425>", "12<", "907<", "12<"], [11, 12, 13, 14]


def answers_of_a_rank(rank, ranks):
    def sum_over_ranks(tensor):
        torch.distributed.all_reduce(tensor)
        return tensor

    buffer = mmap.mmap(-1, rollout.Generator.region_bytes(SETTINGS, ranks))
    generator = rollout.Generator(SETTINGS, buffer, ranks, sum_over_ranks)
    whole = models.create(SETTINGS["model"], seed=3).state_dict()
    for name, parameter in generator.model.named_parameters():
        offset, extent = parallel.box_of(name, whole[name].shape, rank, ranks)
        parameter.copy_(whole[name][tuple(slice(first, first + count) for first, count in zip(offset, extent))])
    found = generator.generate(TEXTS, SEEDS, 1.0, 5)
    return [one.tokens for one in found], [one.logprobs for one in found]


def test_ranks_of_an_engine_answer_like_one():
    wanted = generator_of(SETTINGS).generate(TEXTS, SEEDS, 1.0, 5)
    for tokens, logprobs in run(answers_of_a_rank, 2):
        assert tokens == [one.tokens for one in wanted]
        for found, one in zip(logprobs, wanted):
            assert found == pytest.approx(one.logprobs, abs=1e-5)


def test_ranks_of_an_engine_that_cannot_share_the_heads_are_refused():
    with pytest.raises(ValueError, match="num_attention_heads is 8, which 3 ranks of an engine cannot share equally"):
        parallel.settings_of_rank(SETTINGS["model"], 3)


def test_weights_written_to_the_buffer_are_served():
    buffer = mmap.mmap(-1, rollout.Generator.region_bytes(TIED))
    generator = rollout.Generator(TIED, buffer)
    other = models.create(TIED["model"], seed=9)
    used = 0
    for parameter in other.parameters():
        size = parameter.numel() * 4
        buffer[used:used + size] = parameter.detach().numpy().tobytes()
        used += views.aligned(size)
    ids = torch.arange(3, 9)[None]
    assert torch.equal(generator.model(ids).logits, other(ids).logits)


@pytest.mark.parametrize("answer, text, finished, wanted", [
    ("1789", "1789", True, (1.0, [1.5] * 5)), ("1789", "1798", True, (0.0, [1.0, 1.0, 0.0, 0.0, 1.0])),
    ("1789", "17899", False, (0.0, [1.0, 1.0, 1.0, 1.0, 0.0])), ("1789", "178", True, (0.0, [1.0, 1.0, 1.0, 0.0])),
    ("12", "", True, (0.0, [0.0]))])
def test_rewards(answer, text, finished, wanted):
    tokens = [3] * (len(text) + finished)
    assert task.reward("?", answer, task.Completion(tokens, [0.0] * len(tokens), text, finished)) == wanted


def test_advantages_compare_tokens_at_the_same_place():
    rewards = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    mask = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
    found = grpo.advantages([4, 4, 5], rewards, mask)
    assert found[0, 0] == pytest.approx(1, abs=1e-3) and found[1, 0] == pytest.approx(-1, abs=1e-3)
    assert found[0, 1] == 0 and found[1, 1] == 0 and (found[2] == 0).all()


def test_no_room_in_a_buffer():
    with pytest.raises(MemoryError, match="16 bytes at 256 in a region of 260"):
        allocator = views.BufferAllocator(bytearray(260))
        allocator.empty((2,), torch.float32)
        allocator.empty((4,), torch.float32)
