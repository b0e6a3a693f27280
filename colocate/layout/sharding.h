/* sharding.h - the description of a layout: how the ranks of a trainer or an engine divide a
 * model. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_LAYOUT_SHARDING_H
#define TDM_COLOCATE_LAYOUT_SHARDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tandem/tensor.h>

/* Kinds of layout: ways to divide a model's tensors over ranks. */
enum tdm__sharding_kind {
    /* Whole tensors under Hugging Face's names: files, and FSDP's full state. */
    TDM__SHARDING_WHOLE,
    /* FSDP's sharded state: equal pieces of dimension 0. */
    TDM__SHARDING_FSDP_SHARDED,
    /* FSDP's local state: the elements of each layer in a row, cut into equal pieces. */
    TDM__SHARDING_FSDP_LOCAL,
    /* Megatron-core's way to divide tensors; layout_rules.h has its rules. */
    TDM__SHARDING_MEGATRON,
    /* The way of an inference engine such as SGLang; layout_rules.h has its rules. */
    TDM__SHARDING_ENGINE
};

/* Groups of ranks over which a tensor may be divided. Megatron has one size for all splits except
 * the experts; engines have a size for each split. */
enum tdm__split {
    TDM__SPLIT_NONE,      /* The tensor is not divided. */
    TDM__SPLIT_ATTENTION, /* Divided over the ranks of the attention's tensor parallelism. */
    TDM__SPLIT_DENSE,     /* Divided over the ranks of the tensor parallelism of dense layers. */
    TDM__SPLIT_SHARED,    /* Divided over the ranks of the tensor parallelism of shared experts. */
    /* Divided over the ranks of the tensor parallelism of embedding and output layer. */
    TDM__SPLIT_VOCABULARY,
    TDM__SPLIT_EXPERT, /* Divided over the ranks of the tensor parallelism inside an expert. */
    TDM__SPLITS_COUNT  /* Number of splits in this enum. */
};

enum {
    TDM__STAGES_MAX = 64,             /* Largest number of pipeline stages of a layout. */
    TDM__SHARDING_RANKS_MAX = 1 << 14 /* Largest number of ranks of a layout. */
};

/* A layout. Ranks are numbered as in Megatron: the ranks of a pipeline stage are contiguous; in a
 * stage the tensor parallel index changes fastest, then the expert group, and data parallelism
 * slowest. */
struct tdm__sharding {
    enum tdm__sharding_kind kind; /* Kind of the layout, which decides how tensors are divided. */
    enum tdm_dtype dtype;  /* Data type of the weights on the ranks; 0 for the model's own dtype. */
    uint32_t ranks_count;  /* Number of ranks that divide the model. */
    uint32_t shards_count; /* Number of pieces into which FSDP cuts tensors; 1 for other kinds. */
    /* For each enum tdm__split the number of ranks that divide a tensor; at least 1. */
    uint32_t sizes[TDM__SPLITS_COUNT];
    /* Expert parallelism: number of groups of ranks, each of which holds an equal part of the
     * experts; at least 1. */
    uint32_t expert_groups;
    uint32_t stages_count; /* Number of pipeline stages; at least 1. */
    /* Number of layers in each pipeline stage. If the first entry is 0, layers are spread evenly,
     * and the first stages get the remaining layers. */
    uint32_t stage_layers[TDM__STAGES_MAX];
    /* Rows are added to the vocabulary's tensors until their number is a multiple of this one. */
    uint32_t vocabulary_multiple;
};

/* Returns the layout of whole tensors on every rank, with all sizes 1. */
struct tdm__sharding tdm__sharding_whole(uint32_t ranks_count);

/* Checks that all sizes of a layout are within their limits and divide the number of ranks. Returns
 * TDM_E_INVAL with a message that names the field. */
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
/* Returns the index of a rank among the ranks that `split` divides a tensor over. */
uint32_t tdm__sharding_split_index(const struct tdm__sharding *sharding, enum tdm__split split,
                                   uint32_t rank);
/* Returns the index of the expert group to which a rank belongs. */
uint32_t tdm__sharding_expert_group_index(const struct tdm__sharding *sharding, uint32_t rank);

/* A range of layers: from `first` up to, but without, `end`. */
struct tdm__layer_range {
    uint32_t first; /* Index of the range's first layer. */
    uint32_t end;   /* Index after the range's last layer. */
};

/* Computes which of `layers_count` layers pipeline stage `stage` holds. Fails with TDM_E_INVAL if
 * the layout's stage_layers have another sum. */
tdm_status tdm__sharding_stage_layers(const struct tdm__sharding *sharding, uint32_t stage,
                                      uint32_t layers_count, struct tdm__layer_range *range_out);

#endif
