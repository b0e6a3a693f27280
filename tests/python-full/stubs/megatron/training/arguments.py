# SPDX-License-Identifier: Apache-2.0
"""Stands for the parser of megatron.training, which PyPI does not have, as far as slime's launch reads its result."""
import argparse
import ast

# What slime reads although no argument of the launch names it, and what Megatron would have there.
KNOWN = {
    "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1, "context_parallel_size": 1,
    "expert_model_parallel_size": 1, "expert_tensor_parallel_size": 1, "fp16": False, "bf16": True,
    "seed": 1234, "lr": 1e-6, "micro_batch_size": 1, "distributed_backend": "nccl",
    "distributed_timeout_minutes": 10, "norm_epsilon": 1e-6, "layernorm_epsilon": 1e-6, "moe_layer_freq": 1,
    "qkv_format": "thd", "untie_embeddings_and_output_weights": False, "load": None, "save": None,
    "save_interval": None, "global_batch_size": None, "vocab_size": None, "seq_length": None,
    "hidden_size": None, "num_layers": None, "ffn_hidden_size": None, "num_attention_heads": None,
    "rotary_base": None, "num_query_groups": 2, "kv_channels": 32, "group_query_attention": True,
    "swiglu": True, "no_load_optim": False, "no_load_rng": False, "no_save_optim": False,
    "finetune": False, "use_tensorboard": False, "use_wandb": False,
}


class Arguments(argparse.Namespace):
    """Arguments of which every one exists: those that nobody set are None."""

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return None


def value_read(text):
    """Return the number that a text is, or the text."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def parse_args(extra_args_provider=None, ignore_unknown_args=False):
    """Parse the command line of this process with slime's own arguments and Megatron's of KNOWN."""
    parser = argparse.ArgumentParser(allow_abbrev=False, conflict_handler="resolve")
    for name, default in KNOWN.items():
        parser.add_argument("--" + name.replace("_", "-"), default=default, type=value_read, nargs="?",
                            const=True)
    parser = extra_args_provider(parser)
    return Arguments(**vars(parser.parse_known_args()[0]))


def validate_args(args, defaults=None):
    """Accept everything."""
