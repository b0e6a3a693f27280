#!/usr/bin/env python3
# make_data.py - makes the prompts and answers of this folder with the reasoning-gym package.
# SPDX-License-Identifier: Apache-2.0
"""Needs reasoning-gym 0.1.25:  pip install reasoning-gym==0.1.25 && ./make_data.py

The questions of the package are sentences; a model of a character a token gets a short rendering
of them (README.md tells which).  Every task is split by the multiset of the characters of its
question, so that no rearrangement of an unseen question is ever learned from.
"""
import json
import pathlib
import random

import reasoning_gym

HERE = pathlib.Path(__file__).resolve().parent
SEED = 20261


def number_sorting(count):
    """Three or four one-digit numbers: "4646<" asks for "4466", "4646>" for "6644"."""
    dataset = reasoning_gym.create_dataset(
        "number_sorting", size=count, seed=SEED, min_numbers=3, max_numbers=4,
        min_decimals=0, max_decimals=0, min_value=0, max_value=9)
    for entry in dataset:
        metadata = entry["metadata"]
        digits = [str(int(float(number))) for number in metadata["original_numbers"]]
        answer = [str(int(float(number))) for number in metadata["sorted_numbers"]]
        sign = {"ascending": "<", "descending": ">"}[metadata["direction"]]
        yield "".join(digits) + sign, "".join(answer)


def spell_backward(count):
    """A word of three or four letters, in small letters: "sun" asks for "nus"."""
    dataset = reasoning_gym.create_dataset(
        "spell_backward", size=count, seed=SEED, min_word_len=3, max_word_len=4)
    for entry in dataset:
        word = entry["metadata"]["word"].lower()
        if word.isascii() and word.isalpha():
            yield word, entry["answer"].lower()


def split(pairs, unseen_share):
    """Two lists, of seen and of unseen prompts, disjoint as multisets of characters."""
    unique = sorted(set(pairs))
    assert len({prompt for prompt, _ in unique}) == len(unique), "one prompt, two answers"
    keys = sorted({"".join(sorted(answer)) for _, answer in unique})
    random.Random(SEED).shuffle(keys)
    held_out = set(keys[:round(len(keys) * unseen_share)])
    random.Random(SEED + 1).shuffle(unique)
    seen = [pair for pair in unique if "".join(sorted(pair[1])) not in held_out]
    unseen = [pair for pair in unique if "".join(sorted(pair[1])) in held_out]
    multisets = [{"".join(sorted(answer)) for _, answer in part} for part in (seen, unseen)]
    assert not multisets[0] & multisets[1], "the split leaks"
    return seen, unseen


def write(name, pairs):
    with open(HERE / name, "w", encoding="ascii", newline="\n") as file:
        for prompt, answer in pairs:
            file.write(json.dumps({"prompt": prompt, "answer": answer}) + "\n")
    print(f"{name}: {len(pairs)} prompts")


def main():
    for task, count, unseen_share in ((number_sorting, 13000, 1 / 6), (spell_backward, 20000, 1 / 4)):
        seen, unseen = split(list(task(count)), unseen_share)
        write(f"{task.__name__}.train.jsonl", seen)
        write(f"{task.__name__}.unseen.jsonl", unseen)
        assert len(unseen) >= 1000, len(unseen)


if __name__ == "__main__":
    main()
