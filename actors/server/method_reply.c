/* method_reply.c - the reply to a call, and the copy that is cached for repeated calls. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/server/method_reply.h"

#include "actors/objects/large_message.h"
#include "actors/objects/pins.h"
#include "actors/objects/reply_pins.h"
#include "runtime/error.h"
#include "runtime/free_list.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

const struct tdm__method_reply *tdm__method_reply_for_cache(const struct tdm__method_reply *reply,
                                                            bool is_stream,
                                                            const struct tdm__id *node)
{
    static const struct tdm__method_reply broken = {.status = TDM_E_CLOSED,
                                                    .detail = TDM__STREAM_BROKEN};
    static const struct tdm__method_reply gone = {
        .status = TDM_E_VALUE_LOST, .detail = "its result, a large one, went to another process"};

    if (is_stream) {
        return &broken;
    }
    return reply->large != NULL && tdm__id_equal(node, &tdm_runtime_current()->self.node) ? &gone
                                                                                          : reply;
}

/* Duplicates the descriptors of `reply` into its copy `cached`. */
static tdm_status reply_duplicate_fds(struct tdm__cached_reply *cached,
                                      const struct tdm__method_reply *reply)
{
    for (uint32_t i = 0; i < reply->fds_count; i++) {
        cached->fds[i] = fcntl(reply->fds[i], F_DUPFD_CLOEXEC, 0);
        if (cached->fds[i] < 0) {
            return tdm__fail_errno(errno, "descriptor %u of a reply", i);
        }
        cached->reply.fds_count++;
    }
    return TDM_OK;
}

tdm_status tdm__cached_reply_create(const struct tdm__method_reply *reply,
                                    struct tdm__cached_reply **cached_out)
{
    size_t text_bytes = reply->status == TDM_OK ? 0 : strlen(reply->detail) + 1;
    size_t size_bytes = text_bytes + reply->packed.size_bytes;
    size_t kept_bytes = sizeof(**cached_out) + reply->fds_count * sizeof(int) + size_bytes;
    struct tdm__cached_reply *cached = tdm__free_list_alloc(kept_bytes);
    char *copy;
    tdm_status status;

    if (cached == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a copy of a reply of %zu bytes", size_bytes);
    }
    cached->sequence = 0;
    cached->size_bytes = kept_bytes;
    copy = (char *)(cached->fds + reply->fds_count);
    if (text_bytes > 0) {
        memcpy(copy, reply->detail, text_bytes);
    }
    if (reply->packed.size_bytes > 0) {
        memcpy(copy + text_bytes, reply->packed.data, reply->packed.size_bytes);
    }
    cached->reply =
        (struct tdm__method_reply){.status = reply->status,
                                   .detail = text_bytes > 0 ? copy : "",
                                   .packed = {copy + text_bytes, reply->packed.size_bytes},
                                   .large = reply->large,
                                   .passed = reply->passed,
                                   .fds = cached->fds};
    tdm__large_retain(reply->large);
    tdm__passed_refs_retain(reply->passed);
    status = reply_duplicate_fds(cached, reply);
    if (status != TDM_OK) {
        tdm__cached_reply_destroy(cached);
        return status;
    }
    *cached_out = cached;
    return TDM_OK;
}

void tdm__cached_reply_destroy(struct tdm__cached_reply *cached)
{
    if (cached == NULL) {
        return;
    }
    for (uint32_t i = 0; i < cached->reply.fds_count; i++) {
        (void)close(cached->fds[i]);
    }
    tdm__large_release(cached->reply.large);
    tdm__passed_refs_release(cached->reply.passed);
    tdm__free_list_free(cached, cached->size_bytes);
}

void tdm__method_reply_send(const struct tdm__method_reply *reply,
                            struct tdm__incoming_call *incoming)
{
    tdm_status status = tdm__reply_pins_create(tdm_runtime_current(), incoming, 0, reply->passed);

    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
    } else if (reply->large != NULL) {
        tdm__large_reply(reply->large, tdm_runtime_current(), incoming);
    } else if (reply->status == TDM_OK) {
        tdm__incoming_reply(incoming, reply->packed, reply->fds, reply->fds_count);
    } else {
        tdm__incoming_fail_with(incoming, reply->status, reply->detail, reply->packed);
    }
}
