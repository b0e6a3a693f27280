/* sharding.h - a layout as data: how the ranks of a trainer or an engine cut a model. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_LAYOUT_SHARDING_H
#define TDM_COLOCATE_LAYOUT_SHARDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tandem/tensor.h>

enum tdm__sharding_kind {
    TDM__SHARDING_WHOLE,        /* Hugging Face's names, all of each tensor: files, FSDP's full */
    TDM__SHARDING_FSDP_SHARDED, /* FSDP's sharded state: equal pieces of dimension 0 */
    TDM__SHARDING_FSDP_LOCAL,   /* FSDP's local state: a piece of each layer's elements in a row */
    TDM__SHARDING_MEGATRON,     /* the tables of layout_rules.h, from here */
    TDM__SHARDING_ENGINE
};

/* What a tensor may be cut over.  Megatron has one size for all but the experts; engines cut
 * attention, dense layers, shared experts and the vocabulary each in its own way. */
enum tdm__split {
    TDM__SPLIT_NONE,
    TDM__SPLIT_ATTENTION,
    TDM__SPLIT_DENSE,
    TDM__SPLIT_SHARED,
    TDM__SPLIT_VOCABULARY,
    TDM__SPLIT_EXPERT, /* inside an expert */
    TDM__SPLITS_COUNT
};

enum { TDM__STAGES_MAX = 64, TDM__SHARDING_RANKS_MAX = 1 << 14 };

/* Ranks are numbered as Megatron does: those of one pipeline stage together; in it the splits
 * turn fastest, experts next, data parallelism slowest. */
struct tdm__sharding {
    enum tdm__sharding_kind kind;
    enum tdm_dtype dtype; /* what is cast to; 0: the model's own */
    uint32_t ranks_count;
    uint32_t shards_count;                  /* of rows and flat pieces; else 1 */
    uint32_t sizes[TDM__SPLITS_COUNT];      /* each at least 1 */
    uint32_t expert_groups;                 /* expert parallelism, at least 1 */
    uint32_t stages_count;                  /* pipeline parallelism, at least 1 */
    uint32_t stage_layers[TDM__STAGES_MAX]; /* [0] is 0: as even as can be, first ones first */
    uint32_t vocabulary_multiple; /* rows are added until the vocabulary is a multiple of it */
};

/* One for a single rank: everything 1, whole. */
struct tdm__sharding tdm__sharding_whole(uint32_t ranks_count);

/* All sizes within their limits and dividing the ranks.  TDM_E_INVAL names the field. */
tdm_status tdm__sharding_validate(const struct tdm__sharding *sharding);

/* From a JSON object, checked:
 *     {"layout": "megatron", "ranks": 128, "tp": 8, "pp": 4, "ep": 32}
 * - every layout: "ranks" (1), "dtype" ("BF16" …);
 * - "hugging_face": no more;
 * - "fsdp": "state" ("full", "sharded" or "local"), "shards" (as many as ranks);
 * - "megatron": "tp", "pp", "ep", "etp" (1), "stage_layers" (a list: layers of each stage),
 *   "vocabulary_multiple" (128, times tp);
 * - "engine": "tp", "ep", "etp" (1), "attention_tp", "dense_tp", "shared_tp", "vocabulary_tp"
 *   (tp), "vocabulary_multiple" (64).
 * TDM_E_PROTOCOL for what is no such object, also for a field that is not of this layout. */
tdm_status tdm__sharding_parse(const char *text, size_t size_bytes, const char *name,
                               struct tdm__sharding *sharding_out);

/* The place of a rank: its pipeline stage, in a split, among the groups of experts. */
uint32_t tdm__sharding_stage_index(const struct tdm__sharding *sharding, uint32_t rank);
uint32_t tdm__sharding_split_index(const struct tdm__sharding *sharding, enum tdm__split split,
                                   uint32_t rank);
uint32_t tdm__sharding_expert_group_index(const struct tdm__sharding *sharding, uint32_t rank);

struct tdm__layer_range {
    uint32_t first;
    uint32_t end;
};

/* Which of `layers_count` layers the stage holds.  TDM_E_INVAL when stage_layers says another
 * sum. */
tdm_status tdm__sharding_stage_layers(const struct tdm__sharding *sharding, uint32_t stage,
                                      uint32_t layers_count, struct tdm__layer_range *range_out);

#endif
