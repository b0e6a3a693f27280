# SPDX-License-Identifier: Apache-2.0
"""The size of a vocabulary as megatron.training pads it. megatron.core has no such module."""


def _vocab_size_with_padding(vocab_size, args):
    unit = 128 * args.tensor_model_parallel_size
    return -(-vocab_size // unit) * unit
