# SPDX-License-Identifier: Apache-2.0
"""The adapter for SGLang against the scheduler's own code for weights and memory, from SGLang's wheel."""
import os
import pathlib
import shutil
import subprocess
import sys
import types

import pytest

import tandem

torch = pytest.importorskip("torch")
pytest.importorskip("msgspec")

import engine_wheels  # noqa: E402
from tandem import sglang, torch_forms  # noqa: E402
from tandem.job import Context, Prompt, Sampling  # noqa: E402

NAMED = {"small": torch.arange(3, dtype=torch.uint8), "weight": torch.arange(12, dtype=torch.float32).reshape(3, 4),
         "half": torch.arange(8, dtype=torch.bfloat16).reshape(2, 4)}


@pytest.fixture
def server(monkeypatch):
    from sglang_server import SglangServer
    engine_wheels.source_of("sglang/srt/constants.py")  # Skips without the wheel.
    server = SglangServer(monkeypatch)
    yield server
    server.close()


def context_of(server, engine=0, **settings):
    url = server if isinstance(server, str) else server.url
    config = {"update": {"mode": "bucket"}, "engine": {"sglang": {"urls": [url], "timeout_s": 5, **settings}}}
    return Context(config, engine=engine)


def views(**named):
    """Return what load() gets."""
    return [types.SimpleNamespace(name=name, torch=lambda tensor=tensor: tensor) for name, tensor in named.items()]


def update(engine, *buckets):
    engine.begin()
    for bucket in buckets:
        engine.load(None, views(**bucket))
    assert engine.complete() is None
    engine.flush_cache()


@pytest.mark.parametrize("loader", ["custom", "flattened_bucket"])
def test_an_update_reaches_the_model_in_one_session(server, loader):
    engine = sglang.Engine(context_of(server, loader=loader))
    engine.start({})
    update(engine, {"small": NAMED["small"], "weight": NAMED["weight"]}, {"half": NAMED["half"]})
    assert set(server.model.weights) == set(NAMED)
    assert all(torch.equal(server.model.weights[name], tensor) for name, tensor in NAMED.items())
    assert server.updater.sessions == ["begin", "end"] and len(server.model.loads) == 2
    # Each request records a version; the whole one comes last.
    assert server.model.versions == ["tandem-1-incomplete", "tandem-1-incomplete", "tandem-1"]
    update(engine, {name: tensor + 1 for name, tensor in NAMED.items()})
    assert torch.equal(server.model.weights["half"], NAMED["half"] + 1)
    assert server.model.version == "tandem-2" and server.crash is None
    answers = engine.generate([Prompt("abc", 7), Prompt("de", 8)], Sampling(1.0, 2))
    assert [(answer.text, answer.tokens, answer.finished) for answer in answers] == [
        ("bc", [1, 2], False), ("de", [3, 4], True)]
    assert answers[1].logprobs == [-1.5, -2.0]


def test_the_loader_reads_the_bucket_without_a_copy(server):
    engine = sglang.Engine(context_of(server))
    update(engine, NAMED)
    seen = []
    model = types.SimpleNamespace(load_weights=seen.extend)
    bucket = torch_forms.Bucket(8192)
    import pickle
    torch_forms.sglang_load(model, pickle.loads(torch_forms.sglang_custom_payload(bucket, NAMED.items())))
    assert all(torch.equal(tensor, NAMED[name]) for name, tensor in seen)
    bucket.flat.zero_()
    assert all(not tensor.any() for _, tensor in seen)
    with pytest.raises(ValueError, match="the tensor other is no handle"):
        torch_forms.sglang_load(model, [("other", torch.zeros(1))])


def test_an_update_without_a_session_is_refused_by_sglang(server):
    client = sglang.Server(server.url)
    with pytest.raises(sglang.SglangError, match="status 400: .*must run between begin_weight_update") as caught:
        client.load([b"\x80\x04N."], "flattened_bucket", "1")
    assert caught.value.url == server.url + "/update_weights_from_tensor" and caught.value.status == 400


def test_a_session_that_a_failed_update_left_open_is_ended(server):
    engine = sglang.Engine(context_of(server))
    engine.begin()
    engine.load(None, views(small=NAMED["small"]))  # The update is aborted here, and the engine's process may die.
    again = sglang.Engine(context_of(server))
    update(again, NAMED)
    assert server.updater.sessions == ["begin", "end", "begin", "end"] and server.model.version == "tandem-1"
    engine.begin()
    assert engine.complete() == f"no tensor has come for {server.url}"


def test_a_failed_load_names_the_url_and_the_remedy(server):
    engine = sglang.Engine(context_of(server))
    server.model.fail_load = "no such parameter"
    engine.begin()
    with pytest.raises(sglang.SglangError, match="/update_weights_from_tensor: status 503: .*send all of them again"):
        engine.load(None, views(**NAMED))


def test_memory_is_released_and_resumed_by_tags(server):
    engine = sglang.Engine(context_of(server, memory={"weights": "1 MiB", "kv_cache": "2 GiB"}))
    regions = sglang.Engine.regions(engine._context)
    assert [(region.tag, region.size_bytes, getattr(region, "outside", False)) for region in regions] == [
        ("weights", 1, False), ("weights", 1 << 20, True), ("kv_cache", 2 << 30, True)]
    server.model.running_count = 1  # A request that still runs: it is aborted first.
    engine.pause("kv_cache")
    engine.pause("weights")
    engine.pause("weights")  # Already released.
    assert server.model._engine_paused and server.crash is None
    with pytest.raises(sglang.SglangError, match="resume the tag weights before an update"):
        engine.load(None, views(**NAMED))
    engine.resume("weights")
    update(engine, NAMED)  # While the cache is released.
    assert server.model._engine_paused
    engine.resume("kv_cache")
    engine.resume("cuda_graph")  # Never released: SGLang's scheduler would end with a KeyError.
    assert server.model.memory == [("pause", "kv_cache"), ("pause", "weights"), ("resume", "weights"),
                                   ("resume", "kv_cache")]
    assert not server.model._engine_paused and server.crash is None
    with pytest.raises(ValueError, match="no memory with the tag 'heap': its tags are cuda_graph, weights, kv_cache"):
        engine.pause("heap")


def test_memory_of_a_server_that_is_not_idle_is_not_released(server):
    engine = sglang.Engine(context_of(server, timeout_s=1))
    server.model.running_count = 2  # Another client goes on.
    with pytest.raises(sglang.SglangError, match="flush_cache.*: status 400: .*stop other clients of the server"):
        engine.pause("kv_cache")
    assert "/release_memory_occupation" not in server.paths and server.crash is None
    server.model.running_count = 0
    engine.pause("kv_cache")
    assert server.model.memory == [("pause", "kv_cache")]


def test_the_traps_are_sglangs_own(server):
    """What the adapter avoids does end the scheduler."""
    client = sglang.Server(server.url)
    server.model.running_count = 1
    with pytest.raises(sglang.SglangError, match="status 503"):
        client.request("/release_memory_occupation", {"tags": ["weights"]})
    assert "should be called only when server is idle" in server.crash
    server.crash, server.model.running_count = None, 0
    with pytest.raises(sglang.SglangError, match="status 503"):
        client.request("/resume_memory_occupation", {"tags": ["weights"]})
    assert server.crash.startswith("KeyError")


def test_answers_of_another_version_are_refused(server):
    engine = sglang.Engine(context_of(server))
    with pytest.raises(sglang.SglangError, match="has given the server no weights since it started"):
        engine.generate([Prompt("a", 1)], Sampling(0.0, 4))
    update(engine, NAMED)
    server.model.version = "somebody's"
    with pytest.raises(sglang.SglangError, match="weight version somebody's, this engine has tandem-1"):
        engine.generate([Prompt("a", 1)], Sampling(0.0, 4))


JOB = """
job: {name: sglang, library: "python:sglang_job", python: PYTHON, max_restarts: 0}
cluster: {num_gpus: 2, gpu_bytes: 8 MiB}
trainer: {num_ranks: 2, lr: 0.1}
engine: {num_engines: 2, rollout_num_gpus_per_engine: 1, sglang: {urls: [URLS], timeout_s: 20}}
rollout: {num_rollout: 2, rollout_batch_size: 4, n_samples_per_prompt: 2, rollout_max_prompt_len: 3,
          rollout_max_response_len: 3, warmup_steps: 0}
update: {mode: bucket, update_weight_buffer_size: 4 KiB}
data: {train: train.jsonl, unseen: unseen.jsonl}
"""


def test_a_job_updates_and_asks_sglang_servers(server, monkeypatch, tmp_path):
    """Two engines of the job of examples/python_job, whose trainers are as there."""
    from sglang_server import SglangServer
    example = pathlib.Path(__file__).resolve().parents[3] / "examples" / "python_job"
    package = pathlib.Path(tandem.__file__).parent.parent
    for file in example.glob("*.jsonl"):
        shutil.copy(file, tmp_path)
    shutil.copy(example / "letters.py", tmp_path)
    (tmp_path / "sglang_job.py").write_text("from letters import Trainer, reward\nfrom tandem.sglang import Engine\n")
    other = SglangServer(monkeypatch)
    try:
        (tmp_path / "job.yaml").write_text(JOB.replace("PYTHON", sys.executable)
                                           .replace("URLS", f'"{server.url}", "{other.url}"'))
        environment = {name: value for name, value in os.environ.items() if name not in ("TANDEM_ADDRESS", "PYTHONPATH")}
        done = subprocess.run([package.parent / "tandem", "run", "--plain", "--out", "out", "job.yaml"], cwd=tmp_path,
                              env={**environment, "OMP_NUM_THREADS": "1"}, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=150, check=False)
    finally:
        other.close()
    assert done.returncode == 0, done.stdout
    for each in (server, other):
        updates_count = each.updater.sessions.count("begin")
        assert each.crash is None and each.model.version == f"tandem-{updates_count}", done.stdout
        assert updates_count >= 3 and each.updater.sessions == ["begin", "end"] * updates_count, done.stdout
        assert each.model.weights["table"].shape == (8, 8) and each.model.weights["table"].any()
    assert torch.equal(server.model.weights["table"], other.model.weights["table"])


def test_every_request_has_a_deadline(server):
    client = sglang.Server(server.url, timeout=0.2)
    server.delay = 1.0
    with pytest.raises(sglang.SglangError, match=f"{server.url}/generate: no answer within 0.2 s"):
        client.generate(["a"], [{"max_new_tokens": 1}])


def test_a_server_that_is_not_there_and_wrong_settings_are_refused():
    with pytest.raises(sglang.SglangError, match="not ready after 0.1 s: http://127.0.0.1:1/health: .*refused.*start the"):
        sglang.Server("http://127.0.0.1:1").wait_until_ready(0.1)
    url = "http://127.0.0.1:1"
    with pytest.raises(ValueError, match="urls has 1 URLs, and there is an engine 1"):
        sglang.Engine(context_of(url, engine=1))
    with pytest.raises(ValueError, match="loader is fast: it is custom or flattened_bucket"):
        sglang.Engine(context_of(url, loader="fast"))
    with pytest.raises(ValueError, match="update.mode is donate: SGLang changes the weights"):
        sglang.Engine(Context({"engine": {"sglang": {"urls": [url]}}}))
    with pytest.raises(ValueError, match="the size '8 GB' is not like"):
        sglang.Engine.regions(context_of(url, memory={"weights": "8 GB"}))
