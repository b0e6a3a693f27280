/* method_reply.c - what a call is answered with, and copies of it that are kept. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/server/method_reply.h"

#include "actors/objects/pins.h"
#include "runtime/error.h"
#include "runtime/free_list.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

const struct tdm__method_reply *tdm__method_reply_for_cache(const struct tdm__method_reply *answer,
                                                            bool of_a_stream,
                                                            const struct tdm__id *node)
{
    static const struct tdm__method_reply broken = {.status = TDM_E_CLOSED,
                                                    .detail = TDM__STREAM_BROKEN};
    static const struct tdm__method_reply gone = {
        .status = TDM_E_VALUE_LOST, .detail = "its result, a large one, went to another process"};

    if (of_a_stream) {
        return &broken;
    }
    return answer->large != NULL && tdm__id_equal(node, &tdm_runtime_current()->self.node) ? &gone
                                                                                           : answer;
}

static tdm_status reply_duplicate_fds(struct tdm__cached_reply *kept,
                                      const struct tdm__method_reply *answer)
{
    for (uint32_t i = 0; i < answer->fds_count; i++) {
        kept->fds[i] = fcntl(answer->fds[i], F_DUPFD_CLOEXEC, 0);
        if (kept->fds[i] < 0) {
            return tdm__fail_errno(errno, "descriptor %u of a reply", i);
        }
        kept->answer.fds_count++;
    }
    return TDM_OK;
}

tdm_status tdm__cached_reply_create(const struct tdm__method_reply *answer,
                                    struct tdm__cached_reply **kept_out)
{
    const void *bytes = answer->status == TDM_OK ? answer->packed.data : answer->detail;
    size_t size_bytes =
        answer->status == TDM_OK ? answer->packed.size_bytes : strlen(answer->detail) + 1;
    size_t kept_bytes = sizeof(**kept_out) + answer->fds_count * sizeof(int) + size_bytes;
    struct tdm__cached_reply *kept = tdm__free_list_alloc(kept_bytes);
    char *copy;
    tdm_status status;

    if (kept == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a copy of a reply of %zu bytes", size_bytes);
    }
    kept->sequence = 0;
    kept->size_bytes = kept_bytes;
    copy = (char *)(kept->fds + answer->fds_count);
    if (size_bytes > 0) {
        memcpy(copy, bytes, size_bytes);
    }
    kept->answer =
        (struct tdm__method_reply){.status = answer->status, .detail = "", .fds = kept->fds};
    if (answer->status == TDM_OK) {
        kept->answer.packed = (struct tdm_bytes){copy, size_bytes};
        kept->answer.large = answer->large;
        tdm__large_retain(answer->large);
        kept->answer.passed = answer->passed;
        tdm__passed_refs_retain(answer->passed);
    } else {
        kept->answer.detail = copy;
    }
    status = reply_duplicate_fds(kept, answer);
    if (status != TDM_OK) {
        tdm__cached_reply_destroy(kept);
        return status;
    }
    *kept_out = kept;
    return TDM_OK;
}

void tdm__cached_reply_destroy(struct tdm__cached_reply *kept)
{
    if (kept == NULL) {
        return;
    }
    for (uint32_t i = 0; i < kept->answer.fds_count; i++) {
        (void)close(kept->fds[i]);
    }
    tdm__large_release(kept->answer.large);
    tdm__passed_refs_release(kept->answer.passed);
    tdm__free_list_free(kept, kept->size_bytes);
}

void tdm__method_reply_send(const struct tdm__method_reply *answer,
                            struct tdm__incoming_call *incoming)
{
    tdm_status status = tdm__reply_pins_create(tdm_runtime_current(), incoming, 0, answer->passed);

    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    } else if (answer->large != NULL) {
        tdm__large_reply(answer->large, tdm_runtime_current(), incoming);
    } else if (answer->status == TDM_OK) {
        tdm__incoming_reply(incoming, answer->packed, answer->fds, answer->fds_count);
    } else {
        tdm__incoming_fail(incoming, answer->status, answer->detail);
    }
}
