# SPDX-License-Identifier: Apache-2.0
"""vLLM's engines with Tandem's hooks: the same answers as transformers, updates, sleep, and the death of a worker."""
import gc
import os
import threading

import pytest

pytest.importorskip("torch", reason="skipped: the Python package torch is missing")
pytest.importorskip("transformers", reason="skipped: the Python package transformers is missing")
pytest.importorskip("vllm", reason="skipped: the Python package vllm is missing")

import tiny  # noqa: E402

import tandem.vllm  # noqa: E402
from tandem import _vllm_weights, memory, ray, weights  # noqa: E402

TOLERANCE = 1e-4


@pytest.fixture(scope="module", params=[1, 2])
def engine(request, tmp_path_factory):
    """An engine of one or of two workers, the trainer's model, and the sender of its weights."""
    ranks = request.param
    trainer = tiny.model(seed=1)
    llm = tiny.start(tiny.folder(tmp_path_factory.mktemp("model")), ranks, names=f"engine{ranks}", num_cpus=0.5)
    with weights.Sender(f"policy{ranks}", tiny.tensors(trainer), receivers=ranks, timeout=60) as sender:
        tandem.vllm.connect(llm, f"policy{ranks}", tiny.tensors(trainer))
        connecting = threading.Thread(target=sender.connect)
        connecting.start()
        assert tandem.vllm.update(llm) == 1
        connecting.join(60)
        yield llm, trainer, sender, ranks
    llm.llm_engine.engine_core.shutdown()
    gc.collect()


def test_answers_are_those_of_transformers(engine):
    llm, trainer, _, _ = engine
    found = tiny.generate(llm)
    assert found[0] == tiny.answers(trainer)
    assert tiny.largest_difference(trainer, found) < TOLERANCE
    tandem.vllm.check(llm)


def test_an_update_brings_the_trainers_weights(engine):
    llm, trainer, sender, _ = engine
    before = tiny.generate(llm)
    tiny.change(trainer, seed=2)
    assert tiny.largest_difference(trainer, before) > 100 * TOLERANCE
    sender.send_async()
    assert tandem.vllm.update(llm) == sender.wait(60)
    found = tiny.generate(llm)
    assert found[0] == tiny.answers(trainer) and tiny.largest_difference(trainer, found) < TOLERANCE
    tandem.vllm.check(llm)


def test_an_update_that_does_not_come_leaves_the_old_weights(engine):
    llm, trainer, sender, _ = engine
    with pytest.raises(ray.exceptions.GetTimeoutError):
        tandem.vllm.update(llm, timeout=0.2)
    assert tiny.generate(llm)[0] == tiny.answers(trainer)
    tandem.vllm.check(llm)
    sender.send_async()
    assert tandem.vllm.update(llm) == sender.wait(60)


def test_sleep_frees_the_cache_and_wake_up_brings_it_back(engine):
    llm, trainer, _, ranks = engine
    awake = llm.collective_rpc("kv_cache_bytes")
    assert len(awake) == ranks and min(awake) > 0
    llm.sleep(level=1)
    assert llm.collective_rpc("kv_cache_bytes") == [0] * ranks
    llm.wake_up()
    assert llm.collective_rpc("kv_cache_bytes") == awake
    assert tiny.generate(llm)[0] == tiny.answers(trainer)


def _named_shared_memory(worker):
    """Return the lines of this process's map of memory in files of /dev/shm: (all, those that have a name still)."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        found = [line.strip() for line in file if "cpushm" in line or "/dev/shm/psm_" in line]
    return found, [line for line in found if not line.endswith("(deleted)")]


def test_shared_memory_of_the_workers_has_no_name(engine):
    llm, _, _, ranks = engine
    for found, named in llm.collective_rpc(_named_shared_memory):
        assert named == [] and (ranks == 1 or len(found) >= 2)


def test_the_death_of_a_worker_ends_the_engine_with_its_name(engine):
    llm, _, _, ranks = engine
    name = f"engine{ranks}/{ranks - 1}"
    ray.kill(ray.get_actor(name))
    with pytest.raises(tandem.vllm.WorkerDiedError, match=f"{name} of the {ranks} tensor-parallel workers") as death:
        tiny.generate(llm)
    assert death.value.rank == ranks - 1
    with pytest.raises(tandem.vllm.WorkerDiedError, match=name):
        llm.collective_rpc("check_health")


@ray.remote(num_cpus=1, num_gpus=1)
class InOneProcess:
    """Updates a model in vLLM's process, so that a test may take the renewal of packed copies away."""

    def __init__(self, path, is_tied):
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        self.trainer = tiny.model(seed=1, is_tied=is_tied)
        arguments = tandem.vllm.rank_arguments(0, f"file://{path}/meeting")
        from vllm import LLM
        self.llm = LLM(path, load_format="dummy", dtype="float32", enforce_eager=True, skip_tokenizer_init=True,
                       max_model_len=64, max_num_seqs=16, kv_cache_memory_bytes=8 << 20,
                       logprobs_mode="processed_logprobs", **arguments)

    def update(self, renews):
        """Change the weights, update the engine, and return what check() says and the difference of the logprobs."""
        renew, change = _vllm_weights.renew_copies, tiny.change
        try:
            if not renews:
                _vllm_weights.renew_copies = lambda model: None
            change(self.trainer, seed=3)
            tandem.vllm.update(self.llm, tensors=tiny.tensors(self.trainer))
        finally:
            _vllm_weights.renew_copies = renew
        try:
            tandem.vllm.check(self.llm)
            text = ""
        except ValueError as error:
            text = str(error)
        return text, tiny.largest_difference(self.trainer, tiny.generate(self.llm))

    def sleeps(self):
        """Pause and resume vLLM's memory by its tag; return the bytes of the cache before, meanwhile and after."""
        self.memory = tandem.vllm.memory(self.llm, "engine", 8 << 20)
        sizes = [self.llm.collective_rpc("kv_cache_bytes")[0]]
        for change in (memory.pause, memory.resume):
            change("engine")
            sizes.append(self.llm.collective_rpc("kv_cache_bytes")[0])
        return sizes, tiny.largest_difference(self.trainer, tiny.generate(self.llm))

    def update_without(self, name):
        """Leave a tensor out of an update, and return the text of the exception."""
        sent = tiny.tensors(self.trainer)
        del sent[name]
        with pytest.raises(RuntimeError) as missing:
            tandem.vllm.update(self.llm, tensors=sent)
        return str(missing.value)


@pytest.mark.parametrize("is_tied", [True, False])
def test_check_names_a_packed_copy_that_is_stale(is_tied, tmp_path):
    actor = InOneProcess.options(runtime_env={"env_vars": {"PYTHONPATH": os.path.dirname(__file__)}}).remote(
        tiny.folder(tmp_path, is_tied), is_tied)
    text, difference = ray.get(actor.update.remote(renews=False), timeout=300)
    if is_tied:
        assert text.startswith("lm_head.weight differs by up to ") and difference > 100 * TOLERANCE
    else:
        assert text == "" and difference < TOLERANCE
    text, difference = ray.get(actor.update.remote(renews=True), timeout=60)
    assert text == "" and difference < TOLERANCE
    sizes, difference = ray.get(actor.sleeps.remote(), timeout=60)
    assert sizes[0] > 0 and sizes == [sizes[0], 0, sizes[0]] and difference < TOLERANCE
    name = "model.layers.1.mlp.down_proj.weight"
    assert name in ray.get(actor.update_without.remote(name), timeout=60)
    ray.kill(actor)
