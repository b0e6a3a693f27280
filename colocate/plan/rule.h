/* rule.h - what a layout makes of a model's tensors: the tables of Megatron and of engines. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_PLAN_RULE_H
#define TDM_COLOCATE_PLAN_RULE_H

#include "colocate/plan/model.h"
#include "colocate/plan/sharding.h"

/* A rule stands for the tensors of one name.  Such a tensor consists of one to three of the
 * model's tensors, the parts.  Each part is cut over a split, and a rank's pieces of the parts
 * lie one behind the other: so gate and up become fc1, and q, k, v a fused one. */

enum tdm__rule_scope {
    TDM__RULE_FIRST_STAGE,
    TDM__RULE_EVERY_LAYER,
    TDM__RULE_DENSE_LAYER,
    TDM__RULE_EXPERT_LAYER,
    TDM__RULE_EVERY_EXPERT, /* of the rank's group: a tensor each */
    TDM__RULE_ALL_EXPERTS,  /* of the rank's group: one tensor, with a dimension in front */
    TDM__RULE_MTP_LAYER,
    TDM__RULE_LAST_STAGE,
    TDM__RULE_ONLY_LAST_STAGE /* where that is not also the first */
};

enum {
    TDM__RULE_BY_GROUP = 1 << 0, /* the parts of one query group, then those of the next */
    TDM__RULE_PADDED = 1 << 1,   /* rows are added behind the last one before it is cut */
    TDM__RULE_REPEATED = 1 << 2, /* several ranks may hold the same unit (a key-value head) */
    TDM__RULE_ALIAS = 1 << 3     /* no memory of its own: the tensor of the rule before it */
};

enum { TDM__RULE_PARTS_MAX = 3 };

struct tdm__rule {
    const char *name; /* {P}: of the layer, {e}: of the expert, {m}: of the MTP layer */
    uint8_t scope;    /* enum tdm__rule_scope */
    uint32_t needs;   /* TDM__NEEDS_… */
    uint8_t split;    /* enum tdm__split */
    uint8_t axis;     /* that is cut, and along which the parts lie one behind the other */
    uint8_t flags;
    uint8_t parts_count;
    uint8_t parts[TDM__RULE_PARTS_MAX]; /* enum tdm__template */
};

struct tdm__rules {
    const char *layer_prefix; /* for {P} */
    const char *mtp_prefix;
    const struct tdm__rule *rules;
    uint32_t rules_count;
};

/* NULL for a kind that has no table. */
const struct tdm__rules *tdm__rules_of(enum tdm__sharding_kind kind);

/* The name of the tensor that `rule` makes in a layer, for an expert (its number among those of
 * the rank). */
void tdm__rule_name(const struct tdm__rules *rules, const struct tdm__rule *rule,
                    const struct tdm__model *model, uint32_t layer, uint32_t expert,
                    char name[TDM_TENSOR_NAME_BYTES_MAX]);

#endif
