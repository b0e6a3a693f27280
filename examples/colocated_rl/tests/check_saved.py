#!/usr/bin/env python3
# check_saved.py - loads what a job saved with transformers, and answers the unseen prompts with it.
# SPDX-License-Identifier: Apache-2.0
"""check_saved.py HF_FOLDER UNSEEN.jsonl: exit 0 if model and tokenizer load; prints exact match."""
import json
import sys

import torch
from transformers import AutoTokenizer, Qwen3ForCausalLM


def main():
    folder, unseen = sys.argv[1:]
    model, report = Qwen3ForCausalLM.from_pretrained(folder, output_loading_info=True)
    missing = {name for name in report["missing_keys"]} - {"lm_head.weight"}
    assert not missing and not report["unexpected_keys"], report
    assert not report["mismatched_keys"], report
    tokenizer = AutoTokenizer.from_pretrained(folder)
    pairs = [json.loads(line) for line in open(unseen, encoding="ascii")]
    by_length = {}
    for pair in pairs:
        by_length.setdefault(len(pair["prompt"]), []).append(pair)
    right = 0
    for group in by_length.values():  # of equal length, so that nothing is padded
        inputs = torch.tensor([tokenizer(pair["prompt"])["input_ids"] for pair in group])
        with torch.no_grad():
            outputs = model.generate(inputs, attention_mask=torch.ones_like(inputs))
        for pair, output in zip(group, outputs[:, inputs.shape[1]:]):
            right += tokenizer.decode(output, skip_special_tokens=True) == pair["answer"]
    print(f"tokenizer: {pairs[0]['prompt']} -> {tokenizer(pairs[0]['prompt'])['input_ids']} "
          f"-> {tokenizer.decode(tokenizer(pairs[0]['prompt'])['input_ids'])}")
    print(f"transformers, greedy: {right / len(pairs):.4f} of {len(pairs)} prompts exactly right")


if __name__ == "__main__":
    main()
