/* worker_replies.c - the replies of many actors of a job to one call. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/worker_replies.h"

#include "runtime/error.h"

#include <stdlib.h>

tdm_status tdm__worker_replies_collect(struct tdm__worker_group *workers, tdm_actor *const *actors,
                                       uint32_t count, const char *method,
                                       struct tdm_bytes arguments, int64_t timeout_ms,
                                       struct tdm__worker_replies *replies)
{
    *replies =
        (struct tdm__worker_replies){.refs = calloc(count + 1, sizeof(tdm_ref *)), .count = count};
    if (replies->refs == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u calls of %s", count, method);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (actors[i] != NULL) {
            TDM_TRY(tdm_actor_call_packed(actors[i], method, arguments, &replies->refs[i]));
        }
    }
    return tdm__worker_group_await(workers, replies->refs, count, timeout_ms);
}

const tdm_value *tdm__worker_replies_value(const struct tdm__worker_replies *replies,
                                           uint32_t index)
{
    const tdm_value *value = NULL;

    return tdm_get_value(replies->refs[index], 0, &value) == TDM_OK ? value : NULL;
}

void tdm__worker_replies_fini(struct tdm__worker_replies *replies)
{
    if (replies->refs != NULL) {
        tdm__worker_group_release_refs(replies->refs, replies->count);
        free(replies->refs);
    }
    *replies = (struct tdm__worker_replies){.refs = NULL};
}
