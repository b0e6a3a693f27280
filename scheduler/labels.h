/* labels.h - labels of nodes, and the label constraints of actors. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_LABELS_H
#define TDM_SCHEDULER_LABELS_H

#include "runtime/wire/message.h"

#include <stdbool.h>
#include <stdint.h>
#include <tandem/actor.h>

/* Size in bytes of the text of a label or constraint, including the terminating NUL. */
enum { TDM__LABEL_BYTES = 128 };

/* Labels of a node ("NAME=value"), or constraints of an actor. A constraint has the operator "=" or
 * "!=", and in(a,b) or exists() are allowed as its value. All zero is an empty set. */
struct tdm__labels {
    uint32_t count; /* Number of valid entries in `texts`. */
    /* The labels or constraints as text, each ending with NUL. */
    char texts[TDM_LABELS_MAX][TDM__LABEL_BYTES];
};

/* Adds a label of a node to a set. Returns TDM_E_INVAL if the text is not NAME=value or the set has
 * a label of that name already. */
tdm_status tdm__labels_add(struct tdm__labels *labels, const char *text);
/* Adds a constraint of an actor to a set. Returns TDM_E_INVAL unless the operator is "=" or "!=",
 * and for a list with an empty member. */
tdm_status tdm__labels_add_constraint(struct tdm__labels *constraints, const char *text);
/* Returns whether the node's labels satisfy all constraints. A constraint with "!=" also holds on
 * nodes without a label of that name. */
bool tdm__labels_match(const struct tdm__labels *labels, const struct tdm__labels *constraints);

/* Returns the labels as a list of strings for a message, which borrows them. */
struct tdm__message_list tdm__labels_list(const struct tdm__labels *labels);
/* Reads a decoded list of strings and checks that they are constraints. Returns TDM_E_PROTOCOL if
 * they are not. */
tdm_status tdm__labels_of_list(const struct tdm__message_list *list,
                               struct tdm__labels *labels_out);

#endif
