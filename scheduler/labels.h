/* labels.h - what nodes say of themselves, and what actors want of them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_LABELS_H
#define TDM_SCHEDULER_LABELS_H

#include "runtime/wire/message.h"

#include <stdbool.h>
#include <stdint.h>
#include <tandem/actor.h>

enum { TDM__LABEL_BYTES = 128 }; /* with the NUL */

/* "NAME=value" each; among wishes also "NAME!=value", and in(a,b) or exists() for the value.
 * Start from zeros. */
struct tdm__labels {
    uint32_t count;
    char texts[TDM_LABELS_MAX][TDM__LABEL_BYTES];
};

/* A node's own: TDM_E_INVAL for what is not NAME=value or has a name a second time. */
tdm_status tdm__labels_add(struct tdm__labels *labels, const char *text);
/* An actor's wish: TDM_E_INVAL for another operator and for a list with an empty member. */
tdm_status tdm__labels_add_constraint(struct tdm__labels *wishes, const char *text);
/* "!=" holds also on nodes that do not have the name. */
bool tdm__labels_match(const struct tdm__labels *labels, const struct tdm__labels *wishes);

/* The labels as a list of strings in a message, which borrows them. */
struct tdm__message_list tdm__labels_list(const struct tdm__labels *labels);
/* Reads a decoded list of strings, and checks that they are wishes: TDM_E_PROTOCOL. */
tdm_status tdm__labels_of_list(const struct tdm__message_list *list,
                               struct tdm__labels *labels_out);

#endif
