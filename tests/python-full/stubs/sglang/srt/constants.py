# SPDX-License-Identifier: Apache-2.0
"""SGLang's names of what occupies the memory of a GPU."""
GPU_MEMORY_TYPE_KV_CACHE = "kv_cache"
GPU_MEMORY_TYPE_WEIGHTS = "weights"
GPU_MEMORY_TYPE_CUDA_GRAPH = "cuda_graph"
