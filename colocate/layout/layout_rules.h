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

/* For which pipeline stage, layers or experts a layout rule makes tensors. */
enum tdm__layout_rule_scope {
    TDM__RULE_FIRST_STAGE,  /* The rule makes one tensor, in the first pipeline stage. */
    TDM__RULE_EVERY_LAYER,  /* The rule makes a tensor in every layer. */
    TDM__RULE_DENSE_LAYER,  /* The rule makes a tensor in every layer without experts. */
    TDM__RULE_EXPERT_LAYER, /* The rule makes a tensor in every layer with experts. */
    /* The rule makes one tensor for each expert of the rank's expert group. */
    TDM__RULE_EVERY_EXPERT,
    /* The rule makes one tensor for all experts of the rank's expert group, with the expert as the
     * first dimension. */
    TDM__RULE_ALL_EXPERTS,
    TDM__RULE_MTP_LAYER,  /* The rule makes a tensor in every layer of multi-token prediction. */
    TDM__RULE_LAST_STAGE, /* The rule makes one tensor, in the last pipeline stage. */
    /* The rule makes one tensor, in the last pipeline stage if that is not also the first. */
    TDM__RULE_ONLY_LAST_STAGE
};

enum {
    /* Flag: q, k and v are interleaved by query group: those of one group, then those of the
     * next. */
    TDM__RULE_BY_QUERY_GROUP = 1 << 0,
    /* Flag: rows are added at the tensor's end before it is cut, for example to a vocabulary. */
    TDM__RULE_PADDED = 1 << 1,
    /* Flag: several ranks may hold the same part of the tensor, for example a key-value head. */
    TDM__RULE_REPLICATED = 1 << 2,
    /* Flag: the rule makes no tensor; its components are in the tensor of the rule before it. */
    TDM__RULE_ALIAS = 1 << 3
};

/* Largest number of the model's tensors that one tensor of a layout consists of. */
enum { TDM__RULE_COMPONENTS_MAX = 3 };

/* One rule of a table: the tensors of one name. */
struct tdm__layout_rule {
    /* Pattern of the tensor's name. {P} stands for the prefix of the layer, {e} for the expert, {m}
     * for the layer of multi-token prediction. */
    const char *name;
    /* For which stage, layers or experts the rule makes tensors, an enum tdm__layout_rule_scope. */
    uint8_t scope;
    /* TDM__FEATURE_… bits that the model must have; otherwise the rule is skipped. */
    uint32_t required_features;
    uint8_t split; /* Over which ranks the components are divided, an enum tdm__split. */
    uint8_t axis;  /* Axis (0 or 1) along which the components are divided and stacked. */
    uint8_t flags; /* Combination of the flags TDM__RULE_BY_QUERY_GROUP to TDM__RULE_ALIAS. */
    /* Number of components: tensors of the model that this tensor consists of. */
    uint8_t components_count;
    /* Tensors of the model that this tensor consists of, each an enum tdm__tensor_template. */
    uint8_t components[TDM__RULE_COMPONENTS_MAX];
};

/* The table of rules of one kind of layout; static. */
struct tdm__layout_rules {
    /* Text that replaces {P} in the names of tensors of an ordinary layer. */
    const char *layer_prefix;
    /* Text that replaces {P} in the names of tensors of a layer of multi-token prediction. */
    const char *mtp_prefix;
    /* Rules of this kind of layout, in the order of the tensors. */
    const struct tdm__layout_rule *rules;
    uint32_t rules_count; /* Number of entries in `rules`. */
};

/* Returns the rules of a kind of layout, or NULL if that kind does not divide tensors by rules. */
const struct tdm__layout_rules *tdm__layout_rules_of_kind(enum tdm__sharding_kind kind);

/* Writes to `name` the name of the tensor that `rule` makes in a layer. `expert` is the expert's
 * index among the experts of the rank. */
void tdm__layout_rule_tensor_name(const struct tdm__layout_rules *rules,
                                  const struct tdm__layout_rule *rule,
                                  const struct tdm__model *model, uint32_t layer, uint32_t expert,
                                  char name[TDM_TENSOR_NAME_BYTES_MAX]);

#endif
