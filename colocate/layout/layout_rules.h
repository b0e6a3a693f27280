/* layout_rules.h - what a layout makes of a model's tensors: the tables of Megatron and of engines.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_LAYOUT_LAYOUT_RULES_H
#define TDM_COLOCATE_LAYOUT_LAYOUT_RULES_H

#include "colocate/layout/model.h"
#include "colocate/layout/sharding.h"

/* A rule stands for the tensors of one name.  Such a tensor consists of one to three of the
 * model's tensors, the components.  Each part is cut over a split, and a rank's pieces of the
 * components lie one behind the other: so gate and up become fc1, and q, k, v a fused one. */

enum tdm__layout_rule_scope {
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
    TDM__RULE_BY_QUERY_GROUP =
        1 << 0,                    /* the components of one query group, then those of the next */
    TDM__RULE_PADDED = 1 << 1,     /* rows are added behind the last one before it is cut */
    TDM__RULE_REPLICATED = 1 << 2, /* several ranks may hold the same unit (a key-value head) */
    TDM__RULE_ALIAS = 1 << 3       /* no memory of its own: the tensor of the rule before it */
};

enum { TDM__RULE_COMPONENTS_MAX = 3 };

struct tdm__layout_rule {
    const char *name;           /* {P}: of the layer, {e}: of the expert, {m}: of the MTP layer */
    uint8_t scope;              /* enum tdm__layout_rule_scope */
    uint32_t required_features; /* TDM__FEATURE_… */
    uint8_t split;              /* enum tdm__split */
    uint8_t axis; /* that is cut, and along which the components lie one behind the other */
    uint8_t flags;
    uint8_t components_count;
    uint8_t components[TDM__RULE_COMPONENTS_MAX]; /* enum tdm__tensor_template */
};

struct tdm__layout_rules {
    const char *layer_prefix; /* for {P} */
    const char *mtp_prefix;
    const struct tdm__layout_rule *rules;
    uint32_t rules_count;
};

/* NULL for a kind that has no table. */
const struct tdm__layout_rules *tdm__layout_rules_of_kind(enum tdm__sharding_kind kind);

/* The name of the tensor that `rule` makes in a layer, for an expert (its number among those of
 * the rank). */
void tdm__layout_rule_tensor_name(const struct tdm__layout_rules *rules,
                                  const struct tdm__layout_rule *rule,
                                  const struct tdm__model *model, uint32_t layer, uint32_t expert,
                                  char name[TDM_TENSOR_NAME_BYTES_MAX]);

#endif
