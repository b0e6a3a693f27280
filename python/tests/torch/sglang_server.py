# SPDX-License-Identifier: Apache-2.0
"""A small SGLang server for tests: the scheduler's own code for weights and memory, and its request classes.

Both are read from SGLang's wheel, and so are the methods of the model runner that load tensors. The server has one or
more tensor-parallel ranks, all in this process: each has a scheduler, and a model that is a dictionary of tensors, and
opens its own entry of a request. Around them are the routes of http_server.py that the adapter uses. Requests with unknown fields are refused. What would end the real scheduler (an assertion, a missing
key) ends this server: every later request gets status 503.
"""
import http.server
import io
import json
import pickle
import threading
import types
import typing
import urllib.parse

import msgspec
import torch

import engine_wheels
from tandem import torch_forms

# Routes and the classes of their requests.
REQUESTS = {"/begin_weight_update": "BeginWeightUpdateReqInput", "/end_weight_update": "EndWeightUpdateReqInput",
            "/update_weights_from_tensor": "UpdateWeightsFromTensorReqInput",
            "/update_weight_version": "UpdateWeightVersionReqInput",
            "/release_memory_occupation": "ReleaseMemoryOccupationReqInput",
            "/resume_memory_occupation": "ResumeMemoryOccupationReqInput",
            "/pause_generation": "PauseGenerationReqInput", "/continue_generation": "ContinueGenerationReqInput"}
REPLIES = ("BeginWeightUpdateReqOutput", "EndWeightUpdateReqOutput", "UpdateWeightsFromTensorReqOutput",
           "ReleaseMemoryOccupationReqOutput", "ResumeMemoryOccupationReqOutput")
UPDATER = "sglang/srt/managers/scheduler_components/weight_updater.py"
RUNNER = "sglang/srt/model_executor/model_runner_components/weight_updater.py"


class Base(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """In place of BaseReq, which is packed as an array."""


class Model:
    """What stands for the model, the memory and the scheduler of the server."""

    def __init__(self):
        self.weights = {}
        self.loads = []          # Names of the tensors of each call of load_weights().
        self.memory = []         # What torch_memory_saver was asked for.
        self.versions = []       # Each version that was recorded.
        self.version = "default"
        self.fail_load = None    # Text of an exception of the next load.
        self.running_count = 0   # Requests that run.
        self._engine_paused = False

    def load_weights(self, tensors):
        if self.fail_load is not None:
            text, self.fail_load = self.fail_load, None
            raise ValueError(text)
        self.loads.append([name for name, _ in tensors])
        self.weights.update({name: tensor.clone() for name, tensor in tensors})

    def named_buffers(self):
        return []

    def record_weight_version_change(self, new_version):
        if new_version is not None:
            self.version = new_version
            self.versions.append(new_version)


class Updater:
    """WeightUpdater of the model runner, whose methods that load tensors are SGLang's own."""

    def __init__(self, model, methods):
        self.model = model
        self.methods = methods
        self.device = "cpu"
        self.custom_weight_loaders = ["tandem.torch_forms.sglang_load"]
        self.sessions = []

    def get_model(self):
        return self.model

    def _assert_weight_cache_inactive(self, _):
        pass

    def begin_weight_update(self):
        self.sessions.append("begin")

    def end_weight_update(self, run_post_load):
        self.sessions.append("end")

    def update_weights_from_tensor(self, named_tensors, load_format):
        return self.methods.update_weights_from_tensor(self, named_tensors, load_format)

    def _update_weights_from_flattened_bucket(self, flattened_tensor_bucket_dict):
        return self.methods._update_weights_from_flattened_bucket(self, flattened_tensor_bucket_dict)


class SglangServer:
    """The server; url is where it listens. model, updater and manager are those of rank 0."""

    def __init__(self, monkeypatch, ranks=1):
        self.models = [Model() for _ in range(ranks)]
        self.model = self.models[0]
        self.crash = None
        self.paths = []
        self.delay = 0.0
        self._read_wheel(monkeypatch)
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.do_POST()

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                status, reply = server.answer(self.path, body)
                data = json.dumps(reply).encode()
                try:
                    self.send_response(status)
                    self.end_headers()
                    self.wfile.write(data)
                except ConnectionError:
                    pass  # The client has given up.

            def log_message(self, *_):
                pass

        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self):
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _read_wheel(self, monkeypatch):
        """Put the scheduler's object for weights together from the wheel."""
        self.requests = engine_wheels.load_names(
            "sglang/srt/managers/io_struct.py", {*REQUESTS.values(), *REPLIES}, monkeypatch, BaseReq=Base,
            Base64Bytes=type("Base64Bytes", (), {}), Annotated=typing.Annotated, Any=typing.Any, Dict=typing.Dict,
            List=typing.List, Literal=typing.Literal, Optional=typing.Optional)
        bucket = engine_wheels.load("sglang/srt/weight_sync/tensor_bucket.py", monkeypatch)
        common = engine_wheels.load_names(
            "sglang/srt/utils/common.py", {"SafeUnpickler", "MultiprocessingSerializer", "_safe_load_torch_storage"},
            monkeypatch, pickle=pickle, io=io, torch=torch, ForkingPickler=torch_forms.ForkingPickler)
        self.parallel = types.SimpleNamespace(tp_group=types.SimpleNamespace(cpu_group=None), tp_rank=0)
        runner = engine_wheels.load_names(
            RUNNER, {"LocalSerializedTensor", "_unwrap_tensor"}, monkeypatch, torch=torch, List=typing.List,
            MultiprocessingSerializer=common.MultiprocessingSerializer)
        methods = engine_wheels.load_methods(
            RUNNER, "WeightUpdater", {"update_weights_from_tensor", "_update_weights_from_flattened_bucket"}, torch=torch,
            _unsupported_derived_weight_cache_error=lambda _: None, monkey_patch_torch_reductions=lambda: None,
            get_parallel=lambda: self.parallel, _unwrap_tensor=runner._unwrap_tensor,
            dynamic_import=lambda _: torch_forms.sglang_load, FlattenedTensorBucket=bucket.FlattenedTensorBucket,
            FlattenedTensorMetadata=bucket.FlattenedTensorMetadata)
        constants = engine_wheels.load("sglang/srt/constants.py", monkeypatch)
        manager = engine_wheels.load_names(
            UPDATER, {"SchedulerWeightUpdaterManager", "_WeightUpdateSession", "_parse_runner_selector",
                      "_export_static_state", "_import_static_state"}, monkeypatch,
            **{name: getattr(self.requests, name) for name in (*REQUESTS.values(), *REPLIES)},
            **{name: value for name, value in vars(constants).items() if name.startswith("GPU_MEMORY")},
            msgspec=msgspec, logger=types.SimpleNamespace(error=lambda *_: None), time=__import__("time"),
            contextmanager=__import__("contextlib").contextmanager, get_parallel=lambda: self.parallel,
            get_model=lambda: types.SimpleNamespace(weight_cache_mode="off"),
            DisaggregationMode=types.SimpleNamespace(DECODE=1, PREFILL=2),
            torch=types.SimpleNamespace(
                distributed=types.SimpleNamespace(barrier=lambda *_, **__: None), inference_mode=torch.inference_mode,
                get_device_module=lambda: types.SimpleNamespace(synchronize=lambda: None)))
        self.managers = [self._manager_of(rank, methods, manager, common) for rank in range(len(self.models))]
        self.updater = self.managers[0].updater

    def _manager_of(self, rank, methods, manager, common):
        """Return the scheduler's object for weights of one rank."""
        model = self.models[rank]
        model.disaggregation_mode = None
        updater = Updater(model, methods)
        runner = types.SimpleNamespace(weight_updater=updater, model=model)
        worker = types.SimpleNamespace(
            weight_update_runners=lambda: [("target", runner)], model_runner=runner,
            deserialize_own_rank=lambda entries: common.MultiprocessingSerializer.deserialize(entries[rank]))
        saver = types.SimpleNamespace(pause=lambda tag: model.memory.append(("pause", tag)),
                                      resume=lambda tag: model.memory.append(("resume", tag)))
        made = manager.SchedulerWeightUpdaterManager(
            tp_worker=worker, draft_worker=None, memory_saver_adapter=saver,
            flush_cache=lambda **_: model.running_count == 0,
            is_fully_idle=lambda ignore_waiting=False: model.running_count == 0, scheduler=model)
        return types.SimpleNamespace(manager=made, updater=updater)

    def answer(self, path, body):
        """Return the status and the JSON of a request."""
        path, _, query = path.partition("?")
        self.paths.append(path)
        if self.crash is not None:
            return 503, {"error": {"message": "the scheduler has ended"}}
        if self.delay and path != "/health":
            threading.Event().wait(self.delay)
        if path == "/health":
            return 200, {}
        if path == "/flush_cache":
            float(urllib.parse.parse_qs(query)["timeout"][0])
            idle = self.model.running_count == 0
            return (200, "Cache flushed.") if idle else (400, "Flush cache failed.")
        if path == "/generate":
            return 200, self._generate(json.loads(body))
        if path not in REQUESTS:
            return 404, {"detail": "Not Found"}
        try:
            request = msgspec.convert(json.loads(body), getattr(self.requests, REQUESTS[path]))
        except msgspec.ValidationError as error:
            return 422, {"detail": str(error)}
        return self._control(path, request)

    def _control(self, path, request):
        """Carry out a request with the scheduler's code."""
        model = self.model
        if path in ("/pause_generation", "/continue_generation"):
            for each in self.models:
                each._engine_paused = path == "/pause_generation"
            if model._engine_paused and request.mode == "abort":
                model.running_count = max(model.running_count - 1, 0)  # Others than this client's may come again.
            return 200, {"status": "ok"}
        if path == "/update_weight_version":
            if request.abort_all_requests:
                return 400, {"success": False, "message": "all requests were aborted"}
            for each in self.models:
                each.record_weight_version_change(request.new_version)
            return 200, {"success": True, "new_version": request.new_version}
        try:
            replies = []
            for self.parallel.tp_rank, each in enumerate(self.managers):
                replies.append(getattr(each.manager, path[1:])(request))
        except (AssertionError, KeyError, NotImplementedError, ValueError) as error:
            self.crash = f"{type(error).__name__}: {error}"
            return 503, {"error": {"message": "the scheduler has ended"}}
        # Of several ranks the first one that has failed.
        reply = next((reply for reply in replies if not getattr(reply, "success", True)), replies[0])
        if not hasattr(reply, "success"):
            return 200, None
        return 200 if reply.success else 400, {"success": reply.success, "message": reply.message}

    def _generate(self, request):
        """Answer each text with itself, or by odd seeds with the letters after it, and the version of the weights."""
        assert request["return_logprob"] is True and not self.model._engine_paused
        answers = []
        for text, params in zip(request["text"], request["sampling_params"], strict=True):
            ids = [(ord(letter) - ord("a") + params["sampling_seed"] % 2) % 8 for letter in text]
            ids = ids[:params["max_new_tokens"]]
            answers.append({"text": "".join(chr(ord("a") + token) for token in ids), "meta_info": {
                "weight_version": self.model.version,
                "finish_reason": {"type": "stop" if len(ids) == len(text) else "length"},
                "output_token_logprobs": [[-0.5 * token, token, None] for token in ids]}})
        return answers
