# SPDX-License-Identifier: Apache-2.0
"""Small GPT models of megatron-core on the CPU, for the tests of tandem.megatron.

Megatron-core asks for CUDA in a few places although nothing of these models needs it; prepare() answers for the CPU.
"""
import contextlib

import torch
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.tensor_parallel import random as megatron_random
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, set_tensor_model_parallel_attributes
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.module import MegatronModule
from torch.testing._internal.distributed.fake_pg import FakeStore

VOCABULARY = 1000
PADDED = 1024  # The next multiple of 128 × TP.
HIDDEN, FFN, EXPERT_FFN, HEADS, GROUPS, HEAD_DIM, LAYERS, EXPERTS = 64, 192, 96, 8, 4, 16, 4, 4
TP, PP, EP = 2, 2, 2

# The models as config.json describes them.
DENSE = {"model_type": "qwen3", "torch_dtype": "float32", "num_hidden_layers": LAYERS, "hidden_size": HIDDEN,
         "vocab_size": VOCABULARY, "num_attention_heads": HEADS, "num_key_value_heads": GROUPS, "head_dim": HEAD_DIM,
         "intermediate_size": FFN, "tie_word_embeddings": False}
TIED = {**DENSE, "tie_word_embeddings": True}
MOE = {**DENSE, "model_type": "glm4_moe", "attention_bias": True, "use_qk_norm": True, "n_routed_experts": EXPERTS,
       "moe_intermediate_size": EXPERT_FFN, "n_shared_experts": 1, "first_k_dense_replace": 1}


def prepare():
    """Let megatron-core build and read models without CUDA."""
    torch.cuda.current_device = lambda: "cpu"
    torch.Tensor.cuda = lambda self, *_, **__: self
    torch.cuda.get_rng_state = lambda *_: torch.get_rng_state()

    class Tracker(megatron_random.CudaRNGStatesTracker):
        @contextlib.contextmanager
        def fork(self, name=None):
            yield

    megatron_random._CUDA_RNG_STATE_TRACKER = Tracker()
    megatron_random._CUDA_RNG_STATE_TRACKER_INITIALIZED = True


def initialize(etp):
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=TP, pipeline_model_parallel_size=PP, expert_model_parallel_size=EP,
        expert_tensor_parallel_size=etp, create_gloo_process_groups=False)


@contextlib.contextmanager
def fake_rank(rank, ranks, etp):
    """Be one of `ranks` ranks without the others: the groups are there, and move nothing."""
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    initialize(etp)
    yield
    parallel_state.destroy_model_parallel()
    torch.distributed.destroy_process_group()


def build(described, etp, names):
    """Build this rank's part of a model; `names` is "local" or "te", whose names the layers have."""
    is_moe = "n_routed_experts" in described
    experts = {"num_moe_experts": EXPERTS, "moe_router_topk": 2, "moe_ffn_hidden_size": EXPERT_FFN,
               "moe_layer_freq": [0] + [1] * (LAYERS - 1), "moe_token_dispatcher_type": "allgather",
               "moe_router_enable_expert_bias": True, "moe_router_score_function": "sigmoid",
               "moe_router_load_balancing_type": "none", "moe_shared_expert_intermediate_size": EXPERT_FFN}
    config = TransformerConfig(
        num_layers=LAYERS, hidden_size=HIDDEN, ffn_hidden_size=FFN, num_attention_heads=HEADS,
        num_query_groups=GROUPS, kv_channels=HEAD_DIM, qk_layernorm=True, add_bias_linear=False,
        add_qkv_bias=described.get("attention_bias", False), gated_linear_unit=True,
        activation_func=torch.nn.functional.silu, normalization="RMSNorm", use_cpu_initialization=True,
        tensor_model_parallel_size=TP, pipeline_model_parallel_size=PP, expert_model_parallel_size=EP if is_moe else 1,
        expert_tensor_parallel_size=etp, pipeline_dtype=torch.float32, params_dtype=torch.float32,
        gradient_accumulation_fusion=False, bias_activation_fusion=False, bias_dropout_fusion=False,
        masked_softmax_fusion=False, apply_rope_fusion=False, batch_p2p_comm=False, **(experts if is_moe else {}))
    spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization="RMSNorm")
    if names == "te":
        for layer in spec.layer_specs:
            _name_like_transformer_engine(layer.submodules)
    return GPTModel(config=config, transformer_layer_spec=spec, vocab_size=PADDED, max_sequence_length=64,
                    pre_process=parallel_state.is_pipeline_first_stage(),
                    post_process=parallel_state.is_pipeline_last_stage(),
                    share_embeddings_and_output_weights=described["tie_word_embeddings"],
                    position_embedding_type="rope")


class NormColumn(ColumnParallelLinear):
    """A layer with the norm before it, whose weight is `layer_norm_weight` as in Transformer Engine's layers."""
    def __init__(self, input_size, output_size, *, config, **options):
        super().__init__(input_size, output_size, config=config, **options)
        self.layer_norm_weight = torch.nn.Parameter(torch.ones(input_size))


class Grouped(MegatronModule):
    """The experts of a rank as weight0, weight1 and so on, as in Transformer Engine's layers."""
    def __init__(self, num_local_experts, config, *_, **__):
        super().__init__(config)
        rows = config.moe_ffn_hidden_size // parallel_state.get_expert_tensor_parallel_world_size()
        for name, shape in (("linear_fc1", (2 * rows, config.hidden_size)), ("linear_fc2", (config.hidden_size, rows))):
            layer = torch.nn.Module()
            setattr(self, name, layer)
            for expert in range(num_local_experts):
                weight = torch.nn.Parameter(torch.zeros(shape))
                # Transformer Engine says dimension 0 for both layers.
                set_tensor_model_parallel_attributes(weight, True, 0, 1)
                layer.register_parameter(f"weight{expert}", weight)


def _name_like_transformer_engine(layer):
    layer.self_attention.submodules.linear_qkv = NormColumn
    layer.input_layernorm = IdentityOp
    if getattr(layer.mlp.submodules, "experts", None) is not None:
        layer.mlp.submodules.experts = Grouped
    else:
        layer.mlp.submodules.linear_fc1 = NormColumn
        layer.pre_mlp_layernorm = IdentityOp
    layer.sharded_state_dict_keys_map = {}
