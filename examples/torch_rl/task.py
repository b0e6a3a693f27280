# SPDX-License-Identifier: Apache-2.0
"""The task: prompts such as "7425>", whose answer is the sorted digits; tokens are characters."""
import dataclasses
import json

import torch

PAD, END, ANSWER = 0, 1, 2  # Padding, the end of an answer, and "=" between prompt and answer.
SPECIAL = 3
EXACT_BONUS = 0.5  # What each token of an exactly right answer earns in addition.


class Tokenizer:
    """One token for each character, as in examples/colocated_rl."""

    def __init__(self, characters):
        self.characters = characters
        self.ids = {character: SPECIAL + index for index, character in enumerate(characters)}
        self.size = SPECIAL + len(characters)

    def encode(self, text, last):
        """Return the tokens of a text and the token `last`."""
        return [self.ids[character] for character in text] + [last]

    def decode(self, tokens):
        """Return a text of one character for each token; special tokens are "_"."""
        return "".join(self.characters[token - SPECIAL] if token >= SPECIAL else "_" for token in tokens)

    def prompts(self, texts, width):
        """Return a tensor of prompts of `width` tokens, padded in front."""
        return torch.tensor([_fill(self.encode(text, ANSWER), width, in_front=True) for text in texts])


@dataclasses.dataclass
class Completion:
    """An answer of the model."""
    tokens: list
    logprobs: list
    text: str  # Without the end token.
    finished: bool  # Whether the answer has its end token.


def answers(lists, width):
    """Return a tensor of answers of `width` tokens, padded behind, and one with 1 where there is a token."""
    rows = torch.tensor([_fill(tokens, width, in_front=False) for tokens in lists])
    mask = torch.tensor([[index < len(tokens) for index in range(width)] for tokens in lists]).float()
    return rows, mask


def _fill(tokens, width, in_front):
    if len(tokens) > width:
        raise ValueError(f"{len(tokens)} tokens are more than the {width} that the job file allows")
    padding = [PAD] * (width - len(tokens))
    return padding + list(tokens) if in_front else list(tokens) + padding


def reward(prompt, answer, completion):
    """Return the reward of an answer, 1 if it is exactly right, and those of its tokens."""
    exact = completion.finished and completion.text == answer
    rewards = []
    for index in range(len(completion.tokens)):
        if completion.finished and index + 1 == len(completion.tokens):
            is_right = index == len(answer)
        else:
            is_right = index < min(len(answer), len(completion.text)) and completion.text[index] == answer[index]
        rewards.append(float(is_right) + EXACT_BONUS * exact)
    return float(exact), rewards


def read(path):
    """Return the (prompt, answer) pairs of a file."""
    with open(path, encoding="utf-8") as file:
        return [(line["prompt"], line["answer"]) for line in map(json.loads, file)]
