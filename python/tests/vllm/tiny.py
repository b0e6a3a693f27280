# SPDX-License-Identifier: Apache-2.0
"""Small Qwen3 models for the tests of this folder, and how transformers answers with them."""
import pathlib

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

PROMPTS = [[3, 4, 5, 2], [7, 2], [9, 9, 8, 14, 2]]
TOKENS = 8  # Length of an answer.


def config(is_tied=False):
    """Return the configuration of a model of two layers. Both of two ranks have rows of its vocabulary."""
    return Qwen3Config(vocab_size=100, hidden_size=64, intermediate_size=192, num_hidden_layers=2, num_attention_heads=8,
                       num_key_value_heads=4, head_dim=32, tie_word_embeddings=is_tied, max_position_embeddings=64,
                       eos_token_id=1, bos_token_id=None, pad_token_id=0, initializer_range=0.2,
                       architectures=["Qwen3ForCausalLM"])


def model(seed, is_tied=False):
    """Return a model with random weights of a seed."""
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(config(is_tied)).float().eval().requires_grad_(False)


def folder(path, is_tied=False):
    """Write the configuration to a folder, and return it as a text."""
    path = pathlib.Path(path)
    config(is_tied).save_pretrained(path)
    return str(path)


def tensors(source):
    """Return the parameters of a model by name, a tied one once."""
    return {name: parameter.detach() for name, parameter in source.named_parameters()}


def change(source, seed):
    """Add random numbers to all parameters, in place."""
    torch.manual_seed(seed)
    for parameter in source.parameters():
        parameter.add_(0.05 * torch.randn_like(parameter))


def answers(source):
    """Return transformers' greedy answer to each prompt, a list of tokens."""
    found = []
    for prompt in PROMPTS:
        ids = torch.tensor([prompt])
        out = source.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS, do_sample=False,
                              eos_token_id=None, pad_token_id=0)
        found.append(out[0, len(prompt):].tolist())
    return found


def logprobs(source, prompt, answer):
    """Return transformers' log-probability of each token of an answer."""
    logits = source(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1:-1]
    found = torch.log_softmax(logits.double(), -1)
    return [float(found[index, token]) for index, token in enumerate(answer)]


def start(path, ranks, **more):
    """Return a vllm.LLM with Tandem's hooks; its weights are random until the first update."""
    import tandem.vllm
    hooks = tandem.vllm.arguments(**more)
    from vllm import LLM
    return LLM(path, load_format="dummy", dtype="float32", tensor_parallel_size=ranks, enforce_eager=True,
               skip_tokenizer_init=True, max_model_len=64, max_num_seqs=16, kv_cache_memory_bytes=8 << 20,
               logprobs_mode="processed_logprobs", **hooks)


def generate(llm):
    """Return vLLM's greedy answers to the prompts and their log-probabilities."""
    from vllm import SamplingParams
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS],
                           SamplingParams(temperature=0, max_tokens=TOKENS, logprobs=0, ignore_eos=True,
                                          detokenize=False), use_tqdm=False)
    answers_found = [list(output.outputs[0].token_ids) for output in outputs]
    numbers = [[entry[token].logprob for token, entry in zip(output.outputs[0].token_ids, output.outputs[0].logprobs)]
               for output in outputs]
    return answers_found, numbers


def largest_difference(source, found):
    """Return the largest difference between vLLM's log-probabilities and transformers' of the same tokens."""
    return max(abs(one - other) for prompt, answer, numbers in zip(PROMPTS, *found)
               for one, other in zip(numbers, logprobs(source, prompt, answer)))
