#!/usr/bin/env python3
# make_golden.py - makes golden/: a tiny random checkpoint, and the logits transformers gives it.
# SPDX-License-Identifier: Apache-2.0
"""Needs torch and transformers:  ./make_golden.py

Writes golden/config.json, golden/model.safetensors and golden/logits.txt (a line of tokens, then a
line of logits for each).  The weights are large on purpose, so that every part of the model weighs
in: normal initial values leave attention nearly uniform.
"""
import pathlib

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

FOLDER = pathlib.Path(__file__).resolve().parent / "golden"


def main():
    torch.manual_seed(20261)
    config = Qwen3Config(
        vocab_size=15, hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=6, intermediate_size=24, max_position_embeddings=32,
        rms_norm_eps=1e-6, tie_word_embeddings=True, attention_bias=False,
        use_sliding_window=False, rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
        attn_implementation="eager")
    model = Qwen3ForCausalLM(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(0.0, 0.4)
    tokens = torch.randint(0, config.vocab_size, (1, 12))
    with torch.no_grad():
        logits = model(tokens).logits[0]
    model.save_pretrained(FOLDER)
    with open(FOLDER / "logits.txt", "w", encoding="ascii") as file:
        file.write(" ".join(str(int(token)) for token in tokens[0]) + "\n")
        for row in logits:
            file.write(" ".join(f"{float(value):.9g}" for value in row) + "\n")
    (FOLDER / "generation_config.json").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
