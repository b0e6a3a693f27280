/* ref.h - the result of a call or of a put, present or to come. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_REF_H
#define TDM_ACTORS_REF_H

#include <stdbool.h>
#include <tandem/actor.h>

/* Held by the user (until tdm_ref_release), by the call in flight that will complete it, and by
 * calls that wait for it as an argument: freed with the last of them. */
struct tdm_ref {
    tdm_runtime *runtime; /* borrowed */
    uint32_t holders_count;
    bool done;
    tdm_status status;
    char *detail;           /* owned; NULL when there is none */
    tdm_document *document; /* owned; NULL unless done and well */
};

tdm_status tdm__ref_create(tdm_runtime *runtime, tdm_ref **ref_out); /* one holder */
void tdm__ref_retain(tdm_ref *ref);
/* Completes it, once.  Takes `document` (may be NULL). */
void tdm__ref_complete(tdm_ref *ref, tdm_status status, const char *detail,
                       tdm_document *document);
/* The status; on failure its detail becomes this thread's. */
tdm_status tdm__ref_outcome(const tdm_ref *ref);

#endif
