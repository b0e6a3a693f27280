/* layout_rules.h - the tables that say which tensors a Megatron or an engine layout makes of a
 * model's tensors. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_LAYOUT_LAYOUT_RULES_H
#define TDM_COLOCATE_LAYOUT_LAYOUT_RULES_H

#include "colocate/layout/model.h"
#include "colocate/layout/sharding.h"

/* A rule describes the tensors of one name in a layout. Such a tensor consists of one to three of
 * the model's tensors, its components. Each component is cut over a split, and a rank's pieces of
 * the components are stored one after the other: gate and up become fc1, and q, k and v become
 * one fused tensor. */

/* Where in the model a rule makes tensors. */
enum tdm__layout_rule_scope {
    TDM__RULE_FIRST_STAGE,  /* Once, in the first pipeline stage. */
    TDM__RULE_EVERY_LAYER,  /* In every layer. */
    TDM__RULE_DENSE_LAYER,  /* In every layer without experts. */
    TDM__RULE_EXPERT_LAYER, /* In every layer with experts. */
    /* One tensor for each expert of the rank's expert group. */
    TDM__RULE_EVERY_EXPERT,
    /* One tensor for all experts of the rank's expert group, with the expert as the first
     * dimension. */
    TDM__RULE_ALL_EXPERTS,
    TDM__RULE_MTP_LAYER,  /* In every layer of multi-token prediction. */
    TDM__RULE_LAST_STAGE, /* Once, in the last pipeline stage. */
    /* Once, in the last pipeline stage if it is not also the first. */
    TDM__RULE_ONLY_LAST_STAGE
};

enum {
    /* Flag: the components are interleaved by query group: those of one group, then the next. */
    TDM__RULE_BY_QUERY_GROUP = 1 << 0,
    /* Flag: rows are added behind the last one before the tensor is cut (vocabulary). */
    TDM__RULE_PADDED = 1 << 1,
    /* Flag: several ranks may hold the same unit, for example a key-value head. */
    TDM__RULE_REPLICATED = 1 << 2,
    /* Flag: the rule makes no tensor; its components are in the tensor of the rule before it. */
    TDM__RULE_ALIAS = 1 << 3
};

/* Most components of a tensor. */
enum { TDM__RULE_COMPONENTS_MAX = 3 };

/* One rule of a table: the tensors of one name. */
struct tdm__layout_rule {
    /* Pattern of the name. {P} is the prefix of the layer, {e} the expert, {m} the layer of
     * multi-token prediction. */
    const char *name;
    uint8_t scope; /* An enum tdm__layout_rule_scope. */
    /* TDM__FEATURE_… bits that the model must have, or the rule is skipped. */
    uint32_t required_features;
    /* The enum tdm__split that the components are cut over. */
    uint8_t split;
    /* Axis (0 or 1) that is cut and along which the components follow each other. */
    uint8_t axis;
    /* Flags TDM__RULE_BY_QUERY_GROUP to TDM__RULE_ALIAS. */
    uint8_t flags;
    uint8_t components_count; /* Number of components. */
    /* The components, each an enum tdm__tensor_template. */
    uint8_t components[TDM__RULE_COMPONENTS_MAX];
};

/* The table of rules of one kind of layout; static. */
struct tdm__layout_rules {
    const char *layer_prefix; /* Text for {P} in an ordinary layer. */
    /* Text for {P} in a layer of multi-token prediction. */
    const char *mtp_prefix;
    const struct tdm__layout_rule *rules; /* Rules in the order of the tensors. */
    uint32_t rules_count;                 /* Number of rules. */
};

/* Returns the table of a kind of layout, or NULL if the kind has no table. */
const struct tdm__layout_rules *tdm__layout_rules_of_kind(enum tdm__sharding_kind kind);

/* Writes the name of the tensor that `rule` makes in a layer. `expert` is the expert's number
 * among those of the rank. */
void tdm__layout_rule_tensor_name(const struct tdm__layout_rules *rules,
                                  const struct tdm__layout_rule *rule,
                                  const struct tdm__model *model, uint32_t layer, uint32_t expert,
                                  char name[TDM_TENSOR_NAME_BYTES_MAX]);

#endif
