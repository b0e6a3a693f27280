# SPDX-License-Identifier: Apache-2.0
"""An engine of one or more ranks: transformers' model with its weights in one buffer, which answers prompts."""
import numpy
import torch
from transformers import DynamicCache

import model as models
import parallel
import task
import views


def dtype_of(settings):
    """Return the type of an engine's weights: that of the setting engine.dtype, or float32."""
    return getattr(torch, settings.get("engine", {}).get("dtype", "float32"))


class Generator:
    """Answers prompts with the weights that lie in a buffer. All ranks of an engine make the same calls."""

    def __init__(self, settings, buffer, ranks=1, sum_over_ranks=None):
        """Make the parameters views of the buffer; their contents are whatever it has.

        More ranks than one need sum_over_ranks(tensor), which returns the sum of the tensors of all ranks.
        """
        self.settings = settings
        self.tokenizer = task.Tokenizer(settings["model"]["characters"])
        self.model = models.create(parallel.settings_of_rank(settings["model"], ranks), 0, dtype_of(settings))
        self.model.eval().requires_grad_(False)
        if ranks > 1:
            parallel.connect(self.model, sum_over_ranks)
        allocator = views.BufferAllocator(buffer)
        for parameter in self.model.parameters():  # Tied parameters are one.
            parameter.data = allocator.empty(parameter.shape, parameter.dtype)

    @staticmethod
    def region_bytes(settings, ranks=1):
        """Return the bytes of the buffer of each rank."""
        model = models.create(parallel.settings_of_rank(settings["model"], ranks), dtype=dtype_of(settings))
        return views.shard_bytes(model, 1)

    @torch.no_grad()
    def generate(self, texts, seeds, temperature, tokens_max):
        """Return a task.Completion for each prompt; each seed decides its answer alone. Temperature 0 takes the most
        probable token. A prompt that is there several times is read once."""
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        rows = torch.tensor([places[text] for text in texts])  # Row of each prompt among the different ones.
        prompts = self.tokenizer.prompts(places, self.settings["rollout"]["rollout_max_prompt_len"])
        draws = torch.tensor(numpy.stack([numpy.random.Generator(numpy.random.Philox(seed)).random(tokens_max)
                                          for seed in seeds])) if temperature > 0 else None
        mask = (prompts != task.PAD).long()
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        cache, ids = DynamicCache(), prompts
        tokens, logprobs = [], []
        for index in range(tokens_max):
            logits = self.model(input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache,
                                use_cache=True, logits_to_keep=1).logits[:, -1]
            if index == 0:  # From here on each answer has a row.
                cache.batch_select_indices(rows)
                logits, mask, positions = logits[rows], mask[rows], positions[rows]
            found = torch.log_softmax(logits.float() / (temperature or 1.0), -1)
            if temperature > 0:
                # The first token at which the sum of the probabilities exceeds the draw.
                sums = found.double().exp().cumsum(-1)
                chosen = (sums > draws[:, index:index + 1] * sums[:, -1:]).int().argmax(-1)
            else:
                chosen = found.argmax(-1)
            tokens.append(chosen)
            logprobs.append(found.gather(-1, chosen[:, None]).squeeze(-1))
            ids, positions = chosen[:, None], positions[:, -1:] + 1
            mask = torch.cat([mask, torch.ones_like(ids)], 1)
        return [self._completion(row, numbers) for row, numbers in
                zip(torch.stack(tokens, 1).tolist(), torch.stack(logprobs, 1).tolist())]

    def _completion(self, tokens, logprobs):
        """Return the answer up to its end token."""
        finished = task.END in tokens
        count = tokens.index(task.END) + 1 if finished else len(tokens)
        text = self.tokenizer.decode(tokens[:count - finished])
        return task.Completion(tokens[:count], logprobs[:count], text, finished)
