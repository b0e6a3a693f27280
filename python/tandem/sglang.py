# SPDX-License-Identifier: Apache-2.0
"""Engines of a job that are SGLang servers: an adapter over HTTP, with the interface of tandem.job.Engine.

A job file's module takes it as its engine, and lets its trainer attach the handles of what it writes:

    from tandem.sglang import Engine, attach

    class Trainer:
        def attach(self, bucket):
            return attach(self.context, bucket)

    update: {mode: bucket}
    engine:
      num_engines: 2
      sglang:
        urls: ["http://127.0.0.1:30000", "http://127.0.0.1:30001"]   # one for each engine
        memory: {weights: 8 GiB, kv_cache: 20 GiB}                   # what each rank's GPU has of it

The servers are started by the user, with --enable-memory-saver if they share GPUs with trainers, and with
--custom-weight-loader tandem.torch_forms.sglang_load (this package must be importable there). An engine has as many
ranks as its server has tensor-parallel ranks; rank 0 talks to the server. Settings of engine.sglang beside these:
loader ("custom"; for servers without the custom loader "flattened_bucket", or "local", which sends each tensor by
itself as a LocalSerializedTensor), timeout_s (60; longest time of one request), api_key.

With attach() each rank of a server opens the bucket of the trainer rank on its GPU. Nothing is copied in between, except
by the loaders "flattened_bucket" and "local": SGLang's own classes read CPU tensors from PyTorch's shared memory only.
The handles go through the gather group to the engine's rank 0, which sends those of all ranks in one request. Without
attach(), for weights of a file, and on CUDA each engine rank copies the bucket into one of its own, and rank 0 gathers
the handles of all ranks. On CUDA that copy is necessary, because the trainer's bucket is memory of cuMemCreate, which
cudaIpc cannot export; the engine makes it, because an update pauses the trainer's memory. Its bytes
(update.update_weight_buffer_size; more if a tensor is larger) are declared with those of the tag weights.

SGLang changes the weights that it serves with each request, so that only update.mode "bucket" fits: after a failed
update the engine serves nothing until it has all of a version. Written against SGLang 0.5.23:

- Updates lie between /begin_weight_update and /end_weight_update; a session that an earlier failure left open is ended.
- Each request of an update records a weight version. These are marked as incomplete; the right one is recorded at the
  end, without abort_all_requests, which is true by default. Answers of another version are refused.
- An engine rank that was restarted copies nothing from its peers into the server: it refuses to generate before the
  next update.
- Memory is released only after generation is paused and the server says that it is idle: the scheduler ends with an
  AssertionError otherwise. A tag that is not released is not resumed, which would end it with a KeyError.
"""
import base64
import json
import time
import urllib.error
import urllib.parse
import urllib.request

from tandem.job import Completion, Region

__all__ = ["Engine", "LOADERS", "Server", "SglangError", "TAGS", "attach"]

# Tags of SGLang's memory, in the order in which it resumes them.
TAGS = ("cuda_graph", "weights", "kv_cache")
# Settings of engine.sglang.loader, and SGLang's load_format for each.
LOADERS = {"custom": "tandem.torch_forms.sglang_load", "flattened_bucket": "flattened_bucket", "local": None}
_MULTIPLIERS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_POLL_SECONDS = 0.2


class SglangError(RuntimeError):
    """A request to an SGLang server failed. url is its URL, status its HTTP status, None without an answer."""

    def __init__(self, message, url, status=None):
        super().__init__(message)
        self.url = url
        self.status = status


class Server:
    """One SGLang server, and what this process has asked of it. timeout, in seconds, bounds each request."""

    def __init__(self, url, timeout=60.0, api_key=None):
        self.url = url.rstrip("/")
        self.timeout = timeout
        self.released = set()
        self._api_key = api_key
        self._is_paused = False
        self._is_updating = False

    def request(self, path, body=None, remedy="look into the server's log", method="POST"):
        """Send a request and return the JSON of the reply, None without JSON; SglangError says what to do."""
        headers = {"Content-Type": "application/json"}
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key}"
        data = None if method == "GET" else json.dumps(body or {}).encode()
        url = self.url + path
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                text = response.read()
        except urllib.error.HTTPError as error:
            message = _message_of(error.read())
            raise SglangError(f"{url}: status {error.code}: {message}: {remedy}", url, error.code) from None
        except TimeoutError:
            raise SglangError(f"{url}: no answer within {self.timeout:g} s: {remedy}, or set engine.sglang.timeout_s",
                              url) from None
        except (urllib.error.URLError, OSError) as error:
            cause = getattr(error, "reason", error)
            if isinstance(cause, TimeoutError):
                cause = f"no answer within {self.timeout:g} s"
            raise SglangError(f"{url}: {cause}: start the server, or look why it has ended", url) from None
        try:
            return json.loads(text)
        except ValueError:
            return None

    def wait_until_ready(self, timeout):
        """Wait until the server answers; SglangError after timeout seconds."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                return self.request("/health", method="GET")
            except SglangError as error:
                if time.monotonic() + _POLL_SECONDS > deadline:
                    raise SglangError(f"the server is not ready after {timeout:g} s: {error}", self.url,
                                      error.status) from None
            time.sleep(_POLL_SECONDS)

    # ---- memory ----

    def release(self, *tags):
        """Release memory by tags, after all requests have ended: running ones are aborted."""
        tags = [tag for tag in _known(tags) if tag not in self.released]
        if not tags:
            return
        self._pause()
        if not self.released:
            self.flush_cache()  # The only request that tells whether the server is idle.
        self.request("/release_memory_occupation", {"tags": tags},
                     remedy="start the server with --enable-memory-saver, and look into its log")
        self.released |= set(tags)

    def resume(self, *tags):
        """Resume memory by tags; generation goes on when nothing is released any more."""
        tags = [tag for tag in _known(tags) if tag in self.released]
        if not tags:
            return
        self.request("/resume_memory_occupation", {"tags": tags}, remedy="look whether the GPU has the memory free")
        self.released -= set(tags)
        self._continue()

    def _pause(self):
        """Abort all requests and take no new ones."""
        if not self._is_paused:
            self.request("/pause_generation", {"mode": "abort"})
            self._is_paused = True

    def _continue(self):
        """Take requests again, unless memory is released or an update goes on."""
        if self._is_paused and not self.released and not self._is_updating:
            self.request("/continue_generation", {})
            self._is_paused = False

    # ---- weights ----

    def begin_update(self):
        """Open a session for new weights; nothing is generated until end_update()."""
        if "weights" in self.released:
            raise SglangError(f"{self.url}: the weights are released: resume the tag weights before an update", self.url)
        self._pause()
        self._is_updating = True
        try:
            self.request("/begin_weight_update", {})
        except SglangError as error:
            if "already open" not in str(error):
                raise
            # An update failed before. What it loaded is loaded again.
            self.request("/end_weight_update", {})
            self.request("/begin_weight_update", {})

    def load(self, entries, load_format, version):
        """Load tensors; entries has the bytes for each tensor-parallel rank (tandem.torch_forms)."""
        self.request("/update_weights_from_tensor",
                     {"serialized_named_tensors": [base64.b64encode(entry).decode() for entry in entries],
                      "load_format": load_format, "flush_cache": False, "weight_version": f"{version}-incomplete"},
                     remedy="the engine's weights are incomplete: send all of them again")

    def end_update(self, version):
        """Close the session, record the version, and drop what was computed from the old weights."""
        self.request("/end_weight_update", {}, remedy="the engine's weights are incomplete: send all of them again")
        self.flush_cache()
        self.request("/update_weight_version", {"new_version": version, "abort_all_requests": False})
        self._is_updating = False
        self._continue()

    def flush_cache(self):
        """Drop the prefix cache, once the server is idle: SglangError if it is not within the timeout."""
        wait = max(self.timeout - 1, 0)
        self.request("/flush_cache?" + urllib.parse.urlencode({"timeout": f"{wait:g}"}),
                     remedy=f"requests still run after {wait:g} s: end them, and stop other clients of the server")

    # ---- answers ----

    def generate(self, texts, sampling_params):
        """Return SGLang's answers to texts, with log-probabilities; sampling_params has a dictionary for each."""
        return self.request("/generate", {"text": texts, "sampling_params": sampling_params, "return_logprob": True})


def _known(tags):
    """Return the tags in the order of TAGS; ValueError names one that SGLang does not have."""
    for tag in tags:
        if tag not in TAGS:
            raise ValueError(f"SGLang has no memory with the tag {tag!r}: its tags are {', '.join(TAGS)}")
    return [tag for tag in TAGS if tag in tags]


def _message_of(body):
    """Return the message in the body of a failed request."""
    text = body.decode(errors="replace").strip()
    try:
        found = json.loads(text)
    except ValueError:
        return text[:500] or "no message"
    while isinstance(found, dict):
        found = found.get("message", found.get("error", found.get("detail", text)))
    return str(found)[:500]


def _size(text):
    """Return the bytes of a size such as "8 GiB"."""
    number, _, unit = str(text).strip().partition(" ")
    if (unit or "B") not in _MULTIPLIERS or not number.replace(".", "", 1).isdigit():
        raise ValueError(f"the size {text!r} is not like \"8 GiB\"")
    return int(float(number) * _MULTIPLIERS[unit or "B"])


def _loader_of(context):
    """Return the setting engine.sglang.loader; ValueError if there is no such loader."""
    loader = context.setting("engine.sglang.loader", "custom")
    if loader not in LOADERS:
        raise ValueError(f"engine.sglang.loader is {loader}: it is one of {', '.join(LOADERS)}")
    return loader


def _bucket_bytes(context):
    """Return the size of a bucket of an update. The default is that of colocate/job/job_file.c."""
    return _size(context.setting("update.update_weight_buffer_size", "64 KiB"))


def _part_of(loader, bucket, named):
    """Return what one rank gives for its part of a request; with None as the bucket the tensors lie in a region."""
    from tandem import torch_forms
    if loader == "custom":
        return torch_forms.sglang_custom_payload(bucket, named)
    if loader == "flattened_bucket":
        return torch_forms.sglang_flattened_payload(bucket, named)
    return torch_forms.sglang_pairs(named if bucket is None else bucket.pack(named))


def attach(context, bucket):
    """Return what the method attach(bucket) of a class Trainer returns for engines that are SGLang servers.

    context is the trainer's Context, bucket an UpdateBucket. None on CUDA, where the engines copy the bucket.
    """
    if context.device == "cuda":
        return None
    if bucket.tensors is None:
        raise ValueError("the engines have a layout, so that a bucket has slices: tandem.sglang.Engine has none")
    return _part_of(_loader_of(context), None, [(view.name, view.torch()) for view in bucket.tensors])


class Engine:
    """An engine rank of a job whose model is in an SGLang server; see the module's description."""

    @classmethod
    def regions(cls, context):
        """Declare the server's memory and the bucket of copies as outside memory, and the region of every engine."""
        sizes = {_known([tag])[0]: _size(size) for tag, size in context.setting("engine.sglang.memory", {}).items()}
        sizes["weights"] = sizes.get("weights", 0) + _bucket_bytes(context)
        # Tandem's own region is empty: the weights are in the server. resume() and pause() are for the others.
        return [Region("weights", 1), *(Region(tag, size, keep=False, outside=True) for tag, size in sizes.items())]

    def __init__(self, context):
        mode = context.setting("update.mode", "donate")
        if mode != "bucket":
            raise ValueError(f"update.mode is {mode}: SGLang changes the weights that it serves, so set it to bucket")
        urls = context.setting("engine.sglang.urls", [])
        if context.engine >= len(urls):
            raise ValueError(f"engine.sglang.urls has {len(urls)} URLs, and there is an engine {context.engine}: name "
                             "one for each engine")
        from tandem import torch_forms  # Imports PyTorch, which takes longer than an update should.
        self._forms = torch_forms
        self._context = context
        self._loader = _loader_of(context)
        self._has_weights = "weights" in context.setting("engine.sglang.memory", {})
        self._server = None
        if context.rank == 0:
            self._server = Server(urls[context.engine], float(context.setting("engine.sglang.timeout_s", 60)),
                                  context.setting("engine.sglang.api_key"))
        self._bucket = None         # Of copies; None before it is needed, and while the tag weights is paused.
        self._needs_bucket = False  # Whether an update had to copy.
        self._is_attached = False   # Whether this rank's trainer rank has attached its handles of the next bucket.
        self._parts = None          # Rank 0: what the trainer ranks have attached for all ranks.
        self._updates_count = 0
        self._has_session = False
        self._version = None

    def start(self, memory):
        """Wait until the server answers."""
        if self._server is not None:
            self._server.wait_until_ready(self._server.timeout)

    def resume(self, tag):
        """Let the server allocate its memory with this tag, and allocate the bucket of copies with the weights."""
        if self._is_servers(tag):
            self._server.resume(tag)
        if tag == "weights" and self._needs_bucket:
            self._make_bucket(_bucket_bytes(self._context))

    def pause(self, tag):
        """Let the server free its memory with this tag, and free the bucket of copies with the weights."""
        if tag == "weights" and self._bucket is not None:
            self._bucket = None
            if self._context.device == "cuda":
                import torch
                torch.cuda.empty_cache()
        if self._is_servers(tag):
            self._server.release(tag)

    def _is_servers(self, tag):
        """Return whether this rank asks the server for memory with this tag: it is not only that of the copies."""
        return self._server is not None and (tag != "weights" or self._has_weights)

    def _make_bucket(self, size_bytes):
        """Have a bucket of copies of at least this size, with its memory."""
        self._needs_bucket = True
        if self._bucket is None or self._bucket.size_bytes < size_bytes:
            self._bucket = None
            self._bucket = self._forms.Bucket(size_bytes, "cuda" if self._context.device == "cuda" else "cpu")
            self._bucket.flat.zero_()

    def begin(self):
        """Begin an update, which opens a session with its first tensors."""
        self._has_session = False
        self._version = None
        self._is_attached = False

    def gathered(self, index, buckets_count, parts):
        """Keep on rank 0 what the trainer ranks have attached for all ranks of the engine."""
        missing = [str(rank) for rank, part in enumerate(parts) if not part]
        if missing:
            raise ValueError(f"no handles are attached for the ranks {', '.join(missing)} of {len(parts)}: let attach() of "
                             "every trainer rank return those of tandem.sglang.attach(), or of none")
        self._parts = parts

    def attached(self, index, buckets_count, data):
        """Notice on every rank that its part need not be made here."""
        self._is_attached = True

    def _parts_of_copies(self, tensors):
        """Copy the tensors where the server's rank on this GPU opens them; return the parts of all ranks on rank 0."""
        # With the larger types first a flattened bucket needs no gaps.
        named = sorted(((view.name, view.torch()) for view in tensors), key=lambda pair: -pair[1].element_size())
        alignment = self._forms.ALIGNMENT
        self._make_bucket(sum(-(-tensor.numel() * tensor.element_size() // alignment) * alignment
                              for _, tensor in named))
        part = _part_of(self._loader, self._bucket, named)
        group = self._context.group
        return [part] if group is None or group.ranks_count == 1 else group.gather(part)

    def load(self, weights, tensors):
        """Let the server load the tensors: from the trainers' buckets if these are attached, else from copies."""
        if self._is_attached:
            parts, self._parts, self._is_attached = self._parts, None, False
        else:
            parts = self._parts_of_copies(tensors)
        if self._server is None:
            return
        entries = self._forms.sglang_payloads(parts) if self._loader == "local" else parts
        if not self._has_session:
            self._server.begin_update()
            self._has_session = True
            self._updates_count += 1
        self._server.load(entries, LOADERS[self._loader], f"tandem-{self._updates_count}")

    def complete(self):
        """End the session; what the server itself misses, it does not tell."""
        if self._server is None:
            return None
        if not self._has_session:
            return f"no tensor has come for {self._server.url}"
        version = f"tandem-{self._updates_count}"
        self._server.end_update(version)
        self._has_session = False
        self._version = version
        return None

    def flush_cache(self):
        """Do nothing: the end of the session has dropped the server's cache."""

    def generate(self, prompts, sampling):
        """Answer the prompts, on rank 0."""
        if self._server is None:
            return None
        if self._version is None:
            raise SglangError(f"{self._server.url}: this process has given the server no weights since it started, so "
                              "that their version is not known: restart the job, which sends them again",
                              self._server.url)
        answers = self._server.generate(
            [prompt.text for prompt in prompts],
            [{"temperature": sampling.temperature, "max_new_tokens": sampling.tokens_max,
              "sampling_seed": prompt.seed & 0x7fffffff} for prompt in prompts])
        return [self._completion(answer) for answer in answers]

    def _completion(self, answer):
        """Return the Completion of one of SGLang's answers."""
        meta = answer["meta_info"]
        version = meta.get("weight_version")
        if version != self._version:
            raise SglangError(f"{self._server.url}: an answer has the weight version {version}, this engine has "
                              f"{self._version}: another client has changed the server's weights", self._server.url)
        reason = (meta.get("finish_reason") or {}).get("type")
        if reason not in ("stop", "length"):
            raise SglangError(f"{self._server.url}: an answer has ended with {reason!r}: another client has aborted it, "
                              "or look into the server's log", self._server.url)
        pairs = meta["output_token_logprobs"]
        return Completion([pair[1] for pair in pairs], [pair[0] for pair in pairs], answer["text"], reason == "stop")

    def close(self):
        """Drop the bucket; the server goes on."""
        self._bucket = None
