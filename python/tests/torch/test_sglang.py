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


@pytest.mark.parametrize("loader", ["custom", "flattened_bucket", "local"])
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
        ("weights", 1, False), ("weights", (1 << 20) + (64 << 10), True), ("kv_cache", 2 << 30, True)]
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


def test_the_bucket_of_copies_is_declared_and_freed_with_the_weights(server):
    """The server's own memory is not declared: it is not asked to release any."""
    context = context_of(server)
    context.config["update"]["update_weight_buffer_size"] = "8 KiB"
    assert [(region.tag, region.size_bytes, region.outside) for region in sglang.Engine.regions(context)] == [
        ("weights", 1, False), ("weights", 8 << 10, True)]
    engine = sglang.Engine(context)
    engine.resume("weights")
    assert engine._bucket is None  # Not needed if the trainers attach their handles.
    update(engine, NAMED)
    assert engine._bucket.size_bytes == 3 * torch_forms.ALIGNMENT
    engine.pause("weights")
    assert engine._bucket is None
    engine.resume("weights")
    assert engine._bucket.size_bytes == 8 << 10
    update(engine, NAMED)
    assert engine._bucket.size_bytes == 8 << 10 and server.model.memory == []


def test_handles_of_some_ranks_only_are_refused(server):
    engine = sglang.Engine(context_of(server))
    with pytest.raises(ValueError, match="no handles are attached for the ranks 1 of 2: let attach.. of every trainer"):
        engine.gathered(0, 1, [b"handles", b""])
    cuda = types.SimpleNamespace(device="cuda")
    assert sglang.attach(cuda, None) is None
    with pytest.raises(ValueError, match="the engines have a layout"):
        sglang.attach(context_of(server), types.SimpleNamespace(tensors=None))


def test_handles_of_a_failed_update_are_not_used_again(server):
    """The bucket was refused after its handles had come; the next weights are those of a file."""
    engine = sglang.Engine(context_of(server))
    engine.begin()
    engine.gathered(0, 1, [b"handles of memory that is gone"])
    engine.attached(0, 1, b"handles of memory that is gone")
    update(engine, NAMED)
    assert all(torch.equal(server.model.weights[name], tensor) for name, tensor in NAMED.items())


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
engine: {num_engines: ENGINES, rollout_num_gpus_per_engine: RANKS, sglang: {urls: [URLS], timeout_s: 20, loader: LOADER}}
rollout: {num_rollout: 2, rollout_batch_size: 4, n_samples_per_prompt: 2, rollout_max_prompt_len: 3,
          rollout_max_response_len: 3, warmup_steps: 0}
update: {mode: bucket, update_weight_buffer_size: 4 KiB}
data: {train: train.jsonl, unseen: unseen.jsonl}
"""
# The job of examples/python_job, whose trainers attach handles, and whose engines say when they copy a bucket.
LIBRARY = """
import os

import letters
from letters import reward
from tandem import sglang


class Trainer(letters.Trainer):
    def __init__(self, context):
        super().__init__(context)
        self.context = context
        open(f"trainer-{context.rank}", "w").write(str(os.getpid()))

    def attach(self, bucket):
        return sglang.attach(self.context, bucket) if IS_ATTACHED else None


class Engine(sglang.Engine):
    def _make_bucket(self, size_bytes):
        open(f"copied-{self._context.engine}-{self._context.rank}", "w").close()
        super()._make_bucket(size_bytes)
"""


@pytest.mark.parametrize("loader, ranks, is_attached", [
    ("custom", 2, True), ("flattened_bucket", 1, True), ("local", 2, True), ("custom", 2, False), ("local", 1, False)])
def test_a_job_updates_and_asks_sglang_servers(monkeypatch, tmp_path, loader, ranks, is_attached):
    """Engines of one or two tensor-parallel ranks, which get PyTorch's handles from the trainers or make them."""
    from sglang_server import SglangServer
    engine_wheels.source_of("sglang/srt/constants.py")  # Skips without the wheel.
    example = pathlib.Path(__file__).resolve().parents[3] / "examples" / "python_job"
    package = pathlib.Path(tandem.__file__).parent.parent
    for file in example.glob("*.jsonl"):
        shutil.copy(file, tmp_path)
    shutil.copy(example / "letters.py", tmp_path)
    (tmp_path / "sglang_job.py").write_text(LIBRARY.replace("IS_ATTACHED", str(is_attached)))
    opened = []  # What the ranks of the servers have opened: the process and the name of the file.
    tensor_of = torch_forms.tensor_of

    def open_handle(handle):
        opened.append((handle["pid"], os.readlink(f"/proc/{handle['pid']}/fd/{handle['fd']}")))
        return tensor_of(handle)

    monkeypatch.setattr(torch_forms, "tensor_of", open_handle)
    servers = [SglangServer(monkeypatch, ranks) for _ in range(2 // ranks)]
    try:
        urls = ", ".join(f'"{server.url}"' for server in servers)
        (tmp_path / "job.yaml").write_text(JOB.replace("PYTHON", sys.executable).replace("URLS", urls)
                                           .replace("ENGINES", str(2 // ranks)).replace("RANKS", str(ranks))
                                           .replace("LOADER", loader))
        environment = {name: value for name, value in os.environ.items() if name not in ("TANDEM_ADDRESS", "PYTHONPATH")}
        done = subprocess.run([package.parent / "tandem", "run", "--plain", "--out", "out", "job.yaml"], cwd=tmp_path,
                              env={**environment, "OMP_NUM_THREADS": "1"}, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=250, check=False)
    finally:
        for server in servers:
            server.close()
    assert done.returncode == 0, done.stdout
    models = [model for server in servers for model in server.models]
    for server in servers:
        updates_count = server.updater.sessions.count("begin")
        assert server.crash is None and server.model.version == f"tandem-{updates_count}", done.stdout
        assert updates_count >= 3 and server.updater.sessions == ["begin", "end"] * updates_count, done.stdout
    assert all(model.weights["table"].shape == (8, 8) and model.weights["table"].any() for model in models)
    assert torch.equal(models[0].weights["table"], models[1].weights["table"])
    assert len(list(tmp_path.glob("copied-*"))) == (0 if is_attached else 2), done.stdout
    if loader == "custom":
        trainers = {int((tmp_path / f"trainer-{rank}").read_text()) for rank in range(2)}
        assert len({pid for pid, _ in opened}) == 2 and ({pid for pid, _ in opened} == trainers) == is_attached
        # The memory of a virtual GPU, or a bucket of the engine.
        assert all(("tandem-block" if is_attached else "tandem-bucket") in name for _, name in opened)


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
    with pytest.raises(ValueError, match="loader is fast: it is one of custom, flattened_bucket, local"):
        sglang.Engine(context_of(url, loader="fast"))
    with pytest.raises(ValueError, match="update.mode is donate: SGLang changes the weights"):
        sglang.Engine(Context({"engine": {"sglang": {"urls": [url]}}}))
    with pytest.raises(ValueError, match="the size '8 GB' is not like"):
        sglang.Engine.regions(context_of(url, memory={"weights": "8 GB"}))
