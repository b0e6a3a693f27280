/* sharding.h - the description of a layout: how the ranks of a trainer or an engine divide a
 * model. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_LAYOUT_SHARDING_H
#define TDM_COLOCATE_LAYOUT_SHARDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tandem/tensor.h>

/* Kinds of layout. */
enum tdm__sharding_kind {
    /* Whole tensors under Hugging Face's names: files, and FSDP's full state. */
    TDM__SHARDING_WHOLE,
    /* FSDP's sharded state: equal pieces of dimension 0. */
    TDM__SHARDING_FSDP_SHARDED,
    /* FSDP's local state: a piece of the elements of each layer in a row. */
    TDM__SHARDING_FSDP_LOCAL,
    /* Megatron-core; its rules are in layout_rules.h. */
    TDM__SHARDING_MEGATRON,
    /* An inference engine such as SGLang; its rules are in layout_rules.h. */
    TDM__SHARDING_ENGINE
};

/* What a tensor may be divided over. Megatron has one size for all splits except the experts;
 * engines have a size for each. */
enum tdm__split {
    TDM__SPLIT_NONE,      /* Not divided. */
    TDM__SPLIT_ATTENTION, /* Tensor parallelism of the attention. */
    TDM__SPLIT_DENSE,     /* Tensor parallelism of dense layers. */
    TDM__SPLIT_SHARED,    /* Tensor parallelism of shared experts. */
    /* Tensor parallelism of the embedding and the output layer. */
    TDM__SPLIT_VOCABULARY,
    TDM__SPLIT_EXPERT, /* Tensor parallelism inside an expert. */
    TDM__SPLITS_COUNT  /* Number of splits. */
};

/* Most ranks of a layout. */
enum { TDM__STAGES_MAX = 64, TDM__SHARDING_RANKS_MAX = 1 << 14 };

/* A layout. Ranks are numbered as in Megatron: the ranks of a pipeline stage are contiguous; in a
 * stage the tensor parallel index changes fastest, then the expert group, and data parallelism
 * slowest. */
struct tdm__sharding {
    enum tdm__sharding_kind kind; /* Kind of the layout. */
    /* Dtype that weights are cast to; 0 for the model's own. */
    enum tdm_dtype dtype;
    uint32_t ranks_count; /* Number of ranks. */
    /* Number of pieces of FSDP's states; 1 for other kinds. */
    uint32_t shards_count;
    /* Number of ranks that each split divides a tensor over; at least 1. */
    uint32_t sizes[TDM__SPLITS_COUNT];
    /* Expert parallelism: number of groups of experts; at least 1. */
    uint32_t expert_groups;
    /* Pipeline parallelism: number of stages; at least 1. */
    uint32_t stages_count;
    /* Layers of each stage. If the first is 0, layers are spread evenly, and the first stages get
     * the remaining ones. */
    uint32_t stage_layers[TDM__STAGES_MAX];
    /* Rows are added until the vocabulary is a multiple of this. */
    uint32_t vocabulary_multiple;
};

/* Returns the layout of whole tensors on every rank, with all sizes 1. */
struct tdm__sharding tdm__sharding_whole(uint32_t ranks_count);

/* Checks that all sizes are within their limits and divide the ranks. TDM_E_INVAL names the
 * field. */
tdm_status tdm__sharding_validate(const struct tdm__sharding *sharding);

/* Parses a layout from a JSON object and validates it, for example {"layout": "megatron",
 * "ranks": 128, "tp": 8, "pp": 4, "ep": 32}. `name` is for errors. The fields, with their
 * defaults in parentheses:
 *
 * - every layout: "ranks" (1), "dtype" ("BF16" …);
 *
 * - "hugging_face": no other fields;
 *
 * - "fsdp": "state" ("full", "sharded" or "local"), "shards" (the number of ranks);
 *
 * - "megatron": "tp", "pp", "ep", "etp" (1), "stage_layers" (a list with the layers of each
 * stage), "vocabulary_multiple" (128, times tp);
 *
 * - "engine": "tp", "ep", "etp" (1), "attention_tp", "dense_tp", "shared_tp", "vocabulary_tp"
 * (tp), "vocabulary_multiple" (64).
 *
 * Fails with TDM_E_PROTOCOL for any other text, also for a field that this layout does not have. */
tdm_status tdm__sharding_parse(const char *text, size_t size_bytes, const char *name,
                               struct tdm__sharding *sharding_out);

/* Returns the pipeline stage of a rank. */
uint32_t tdm__sharding_stage_index(const struct tdm__sharding *sharding, uint32_t rank);
/* Returns the index of a rank in a split. */
uint32_t tdm__sharding_split_index(const struct tdm__sharding *sharding, enum tdm__split split,
                                   uint32_t rank);
/* Returns the index of a rank's expert group. */
uint32_t tdm__sharding_expert_group_index(const struct tdm__sharding *sharding, uint32_t rank);

/* A range of layers: from `first` up to, but without, `end`. */
struct tdm__layer_range {
    uint32_t first; /* First layer of the range. */
    uint32_t end;   /* Layer after the last one of the range. */
};

/* Computes which of `layers_count` layers a stage holds. Fails with TDM_E_INVAL if stage_layers
 * has another sum. */
tdm_status tdm__sharding_stage_layers(const struct tdm__sharding *sharding, uint32_t stage,
                                      uint32_t layers_count, struct tdm__layer_range *range_out);

#endif
