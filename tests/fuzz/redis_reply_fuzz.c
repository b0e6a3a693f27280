/* redis_reply_fuzz.c - any bytes of a server are decoded or refused, and never crash. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/redis/reply.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_records(const redisReply *reply)
{
    struct tdm__store_records *records;

    if (tdm__redis_reply_records(reply, &records) != TDM_OK) {
        return;
    }
    for (uint32_t i = 1; i < records->count; i++) {
        if (strcmp(records->items[i - 1].key, records->items[i].key) >= 0) {
            abort();
        }
    }
    free(records);
}

static void check_renewal(const redisReply *reply)
{
    struct tdm__store_renewed renewed;
    struct tdm__store_records *members;

    if (tdm__redis_reply_renewed(reply, &renewed, &members) == TDM_OK) {
        free(members);
    } else if (members != NULL) {
        abort();
    }
}

static void check_commit(const redisReply *reply)
{
    struct tdm__store_records *losers;
    uint64_t version;

    if (tdm__redis_reply_commit(reply, &version, &losers) != TDM_E_CONFLICT && losers != NULL) {
        abort();
    }
    free(losers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;
    struct tdm__redis_host master;
    uint64_t version;

    if (reader == NULL) {
        return 0;
    }
    tdm__redis_reader_limit(reader);
    (void)redisReaderFeed(reader, (const char *)data, size);
    while (redisReaderGetReply(reader, &reply) == REDIS_OK && reply != NULL) {
        check_records(reply);
        check_renewal(reply);
        check_commit(reply);
        (void)tdm__redis_reply_session(reply, &version);
        (void)tdm__redis_reply_no_session(reply);
        (void)tdm__redis_reply_count(reply, &version);
        (void)tdm__redis_reply_message(reply);
        (void)tdm__redis_reply_no_function(reply);
        (void)tdm__redis_reply_loaded(reply);
        (void)tdm__redis_reply_role(reply);
        (void)tdm__redis_reply_not_master(reply);
        if (tdm__redis_reply_master(reply, &master) == TDM_OK &&
            (master.name[0] == '\0' || master.port == 0)) {
            abort();
        }
        freeReplyObject(reply);
        reply = NULL;
    }
    redisReaderFree(reader);
    return 0;
}
