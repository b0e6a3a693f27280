# SPDX-License-Identifier: Apache-2.0
"""The engine of a job that is vLLM: tandem.vllm.Engine."""
import math
import os
import tempfile

from tandem.job import Completion, Region, Slice

OWN_WEIGHTS, KV_CACHE = "vllm_weights", "kv_cache"  # Tags of what vLLM allocates itself.
_SLEEP_TAGS = {OWN_WEIGHTS: "weights", KV_CACHE: "kv_cache"}  # What vLLM calls them.
_VOCABULARY_PADDING = 64  # Rows to whose multiples each vLLM worker pads its part of the vocabulary.
_ALIGNMENT = 256  # Bytes to whose multiples tensors are placed in the region.
_SEED_MASK = (1 << 63) - 1  # torch's generators take signed seeds.


class Engine:
    """A rank of an engine of a job; each rank is a tensor-parallel worker of vLLM.

    Updates write whole tensors into the region "weights", and the next generate() puts them into vLLM's parameters, of
    which vLLM has this rank's part. So a rank has the whole model, and its part again. An exception says which tensor
    vLLM does not serve after that, unless the job compares log-probabilities (update.logprob_tolerance): then served()
    names that tensor, and the engine is taken out.

    What vLLM allocates itself is declared as outside memory, "kv_cache" and "vllm_weights" (its own part of the
    weights), and takes turns with the trainers': pause() and resume() are vLLM's sleep and wake, tag by tag. vLLM has
    this memory for a moment when it starts, before it is granted. On the CPU the own weights stay in host memory.

    Settings of the section `engine` of the job file: folder, a folder with config.json and the files of the tokenizer;
    dtype (that of the configuration); kv_cache_bytes of each rank (67108864); check, whether vLLM's weights are
    compared with the region after each update (true without update.logprob_tolerance); vllm, more arguments of
    vllm.LLM(). Each rank needs some 30 s to start: job.start_timeout_ms must allow for that. A subclass may have
    model_config(), encode(), decode(), end_tokens() and arguments() of its own; then no folder is needed.
    """

    @classmethod
    def model_config(cls, context):
        """Return the configuration of the model, an object of transformers."""
        from transformers import AutoConfig
        return AutoConfig.from_pretrained(cls._folder(context))

    def encode(self, text):
        """Return the tokens of a prompt."""
        return self._tokenizer().encode(text)

    def decode(self, tokens):
        """Return the text of an answer; tokens are without the end token."""
        return self._tokenizer().decode(tokens)

    def end_tokens(self):
        """Return the tokens with which an answer ends."""
        end = self.config.eos_token_id
        return [] if end is None else list(end) if isinstance(end, (list, tuple)) else [end]

    def arguments(self):
        """Return more arguments of vllm.LLM(), a dict."""
        return self.context.setting("engine.vllm", {})

    @classmethod
    def regions(cls, context):
        """Declare room for whole tensors of the model, and what vLLM allocates."""
        config, dtype = cls.model_config(context), _dtype_of(cls, context)
        _, size_bytes = _places(config, dtype)
        return [Region("weights", size_bytes),
                Region(OWN_WEIGHTS, _own_bytes(config, dtype, context.ranks_count), outside=True),
                Region(KV_CACHE, _kv_cache_bytes(context), keep=False, outside=True)]

    def __init__(self, context):
        """Start vLLM with weights that mean nothing."""
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        self.context = context
        self.config = self.model_config(context)
        self.dtype = _dtype_of(type(self), context)
        self._places, _ = _places(self.config, self.dtype)
        self._loaded = set()
        self._is_stale = True
        self._tokens = None
        self._llm = self._start_llm()
        for tag in (KV_CACHE, OWN_WEIGHTS):
            self.pause(tag)  # Until Tandem has granted it.

    def start(self, memory):
        """Keep the region."""
        self._memory = memory["weights"]

    def layout(self, tensors):
        """Let the trainers write whole tensors of the engine's type."""
        self._compare([tensor.name for tensor in tensors])
        return [Slice(tensor.name, self._memory.address + self._place(tensor), dtype=self._dtype_name)
                for tensor in tensors]

    def begin(self):
        """Forget what load() has got."""
        self._loaded.clear()

    def load(self, weights, tensors):
        """Copy whole tensors; for `update.mode: names` and for files."""
        for tensor in tensors:
            _view(weights.buffer, self._place(tensor), tensor.shape, self.dtype).copy_(tensor.torch())
            self._loaded.add(tensor.name)

    def complete(self):
        """Say what is missing after load()."""
        try:
            self._compare(self._loaded)
        except ValueError as error:
            return str(error)
        return None

    def flush_cache(self):
        """Let the next generate() take the weights of the region: vLLM may be asleep now."""
        self._is_stale = True

    def generate(self, prompts, sampling):
        """Answer prompts. All ranks compute the same answers."""
        from vllm import SamplingParams
        self.refresh()
        ends = self.end_tokens()
        parameters = [SamplingParams(temperature=sampling.temperature, max_tokens=sampling.tokens_max, logprobs=0,
                                     seed=prompt.seed & _SEED_MASK, stop_token_ids=ends, ignore_eos=True,
                                     detokenize=False) for prompt in prompts]
        answers = self._llm.generate([{"prompt_token_ids": list(self.encode(prompt.text))} for prompt in prompts],
                                     parameters, use_tqdm=False)
        return [self._completion(answer.outputs[0], ends) for answer in answers]

    def refresh(self):
        """Put the weights of the region into vLLM's parameters if they are newer."""
        import tandem.vllm
        if not self._is_stale:
            return
        tandem.vllm.update(self._llm, tensors=self._tensors())
        if self.context.setting("engine.check", not _compares_logprobs(self.context)):
            tandem.vllm.check(self._llm)
        self._is_stale = False

    def served(self, tensor, part=None):
        """Return a tensor of the model as this rank serves it: the parts that vLLM has, and the region's elsewhere.

        None: vLLM has no part of it. A tied lm_head counts as a part of the embedding; if it alone differs, the result
        has its name. part is the tensor's Slice of layout(), which is the whole tensor.
        """
        from tandem._vllm_served import parts_of
        self.refresh()
        sent, whole, different = self._tensors(), None, []
        for name, source, box, found in parts_of(self._llm.collective_rpc("get_model")[0], sent):
            if source == tensor.name:
                whole = sent[source].clone() if whole is None else whole
                is_different = found != sent[source][box]
                if is_different.any():
                    different.append(name)
                # A second part for the same place, a tied lm_head, must not hide the first.
                whole[box] = found.where(is_different, whole[box])
        return (different[0], whole) if different else whole

    def pause(self, tag):
        """Free vLLM's memory with this tag: first the KV cache, which is forgotten, then its weights."""
        if tag == KV_CACHE:
            # Only an engine that has no requests, and takes none, may forget the cache; a step lets go of those that
            # have ended.
            self._llm.llm_engine.step()
            self._llm.sleep(level=0)
            self._llm.release_kv_cache_memory()
        else:
            self._llm.sleep(level=1)

    def resume(self, tag):
        """Let vLLM allocate the memory with this tag. It takes requests when it has both."""
        self._llm.wake_up([_SLEEP_TAGS[tag]])

    def close(self):
        """End vLLM's engine."""
        self._llm.llm_engine.engine_core.shutdown()

    @staticmethod
    def _folder(context):
        folder = context.setting("engine.folder")
        if folder is None:
            raise ValueError("the job file has no engine.folder: name a folder with the model's config.json")
        return folder

    def _tokenizer(self):
        """Return the tokenizer of the folder."""
        if self._tokens is None:
            from transformers import AutoTokenizer
            self._tokens = AutoTokenizer.from_pretrained(self._folder(self.context))
        return self._tokens

    @property
    def _dtype_name(self):
        return str(self.dtype).removeprefix("torch.")

    def _start_llm(self):
        """Return a vllm.LLM whose other ranks are those of this engine."""
        context = self.context
        url, self._store = _meet(context)
        import tandem.vllm
        arguments = tandem.vllm.rank_arguments(context.rank, url)
        from vllm import LLM
        config = self.config
        if not getattr(config, "architectures", None):
            config.architectures = [type(_meta_model(config)).__name__]
        if "worker_cls" not in arguments:  # On the CPU Tandem's worker class has a sleep mode.
            arguments["enable_sleep_mode"] = True
        with tempfile.TemporaryDirectory() as folder:
            config.save_pretrained(folder)
            return LLM(folder, load_format="dummy", dtype=self._dtype_name, tensor_parallel_size=context.ranks_count,
                       skip_tokenizer_init=True, seed=context.seed & 0xFFFFFFFF, enforce_eager=True,
                       logprobs_mode="processed_logprobs",
                       kv_cache_memory_bytes=_kv_cache_bytes(context), **{**arguments, **self.arguments()})

    def _compare(self, names):
        """Raise ValueError unless the names are those of the model, with or without the copy of a tied tensor."""
        missing = sorted(name for name, (_, _, is_tied) in self._places.items() if name not in names and not is_tied)
        if missing:
            raise ValueError(f"{len(missing)} tensors of the engine's model are missing, the first is {missing[0]}")

    def _place(self, tensor):
        """Return the offset of a tensor in the region; ValueError if the model has none of this shape."""
        offset, shape, _ = self._places.get(tensor.name, (0, None, False))
        if shape != tuple(tensor.shape):
            raise ValueError(f"the tensor {tensor.name} of shape {tuple(tensor.shape)} is not in the engine's model: "
                             f"{'there is none of that name' if shape is None else f'its shape is {shape}'}")
        return offset

    def _tensors(self):
        """Return the tensors of the region by name, without the copies of tied ones."""
        return {name: _view(self._memory.buffer, offset, shape, self.dtype)
                for name, (offset, shape, is_tied) in self._places.items() if not is_tied}

    def _completion(self, output, ends):
        """Return vLLM's answer as the job wants it."""
        tokens = list(output.token_ids)
        logprobs = [entry[token].logprob for token, entry in zip(tokens, output.logprobs)]
        finished = bool(tokens) and tokens[-1] in ends
        return Completion(tokens, logprobs, self.decode(tokens[:-1] if finished else tokens), finished)


def _dtype_of(cls, context):
    """Return the type of the engine's weights, as torch calls it."""
    import torch
    name = context.setting("engine.dtype")
    return getattr(torch, name) if name else cls.model_config(context).dtype or torch.float32


def _kv_cache_bytes(context):
    """Return the bytes of the KV cache of each rank."""
    return int(context.setting("engine.kv_cache_bytes", 64 << 20))


def _compares_logprobs(context):
    """Return whether the job compares the log-probabilities of engines with the trainer's."""
    return any(context.setting(f"update.{name}", 0) > 0
               for name in ("logprob_tolerance", "logprob_tolerance_converted"))


def _own_bytes(config, dtype, ranks):
    """Return the most bytes that vLLM's own weights need on each of the ranks.

    Matrices are divided among the ranks, the vocabulary in parts that are padded. A tied lm_head has a copy on the CPU.
    """
    elements = 0
    for name, tensor in _meta_model(config).named_parameters(remove_duplicate=False):
        shape = list(tensor.shape)
        if name.endswith(("embed_tokens.weight", "lm_head.weight")):
            shape[0] = -(-shape[0] // _VOCABULARY_PADDING) * _VOCABULARY_PADDING
        if len(shape) > 1:
            shape[0] = -(-shape[0] // ranks)
        elements += math.prod(shape)
    return elements * dtype.itemsize


def _meta_model(config):
    """Return the model of a configuration, without memory."""
    import torch
    from transformers import AutoModelForCausalLM
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def _places(config, dtype):
    """Return {name: (offset, shape, whether it is tied to one before)} of the model's tensors, and their bytes."""
    places, used, seen = {}, 0, set()
    for name, tensor in _meta_model(config).named_parameters(remove_duplicate=False):
        places[name] = (used, tuple(tensor.shape), id(tensor) in seen)
        seen.add(id(tensor))
        used += -(-tensor.numel() * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
    return places, used


def _view(buffer, offset, shape, dtype):
    """Return a tensor that lies in a buffer."""
    import torch
    return torch.frombuffer(buffer, dtype=dtype, count=math.prod(shape), offset=offset).view(shape)


def _meet(context):
    """Return the URL at which the ranks of an engine meet, and the server of rank 0, which must be kept."""
    import numpy
    from torch.distributed import TCPStore
    port, store = numpy.zeros(1), None
    if context.rank == 0:
        store = TCPStore("127.0.0.1", 0, context.ranks_count, is_master=True, wait_for_workers=False, multi_tenant=True)
        port[0] = store.port
    context.group.all_reduce(port, op="max")
    return f"tcp://127.0.0.1:{int(port[0])}", store
