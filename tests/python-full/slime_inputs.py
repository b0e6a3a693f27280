# SPDX-License-Identifier: Apache-2.0
"""Writes what slime reads: the configuration and tokenizer of a tiny Qwen3 model, and prompts. Argument: a folder."""
import json
import pathlib
import sys

from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config

SYMBOLS = "0123456789+=?;"

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
words = {symbol: number for number, symbol in enumerate(SYMBOLS)}
words["<other>"] = len(words)
tokenizer = Tokenizer(models.WordLevel(words, unk_token="<other>"))
tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<other>", pad_token="?",
                        eos_token=";").save_pretrained(folder)
Qwen3Config(vocab_size=16, hidden_size=64, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=32, tie_word_embeddings=True, rms_norm_eps=1e-6,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            architectures=["Qwen3ForCausalLM"]).save_pretrained(folder)
with open(folder / "prompts.jsonl", "w", encoding="utf-8") as prompts:
    for first in range(8):
        for second in range(8):
            print(json.dumps({"prompt": f"{first}+{second}=", "label": str(first + second)}), file=prompts)
