/* trainer_agreement.c - the collective operation in which all trainer ranks agree on an update. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A trainer rank may write for engines of other gather groups: with sharded weights each rank has a
 * part of what every engine needs. The plan prefers ranks on the engine rank's own GPU, which are
 * of its group, so this is only so where no rank of the group has the bytes, or a rank of another
 * one shares the work. Its description must come to the engine's own gather group, since only that
 * group's first rank calls the engine. Three other ways were considered:
 * - The writers of an engine form its gather group. Each rank is then in the groups of several
 *   engines, which gather one after the other: two more operations for each engine and chunk.
 * - Each group's first rank calls every engine for which its members wrote. An engine then gets as
 *   many calls for a chunk as there are groups, and must know when it has all of them.
 * - A further group of the ranks with the same number exchanges the descriptions. That is one more
 *   operation for each chunk, and a group to open and to end.
 * All ranks agree after each chunk anyway, before any of them may announce it. So the descriptions
 * travel in that operation, which then is an all-gather. Ranks write to engines of their own node
 * only (node_exchange.h). The price is that every rank gets the descriptions for
 * all groups: 112 bytes for each rectangle, which compares with the rectangle's own bytes.
 *
 * Each rank's part has the same size, which follows from the plan (chunk_bytes). It is the status,
 * the size of what follows, and the payload. Everything is allocated when the plan is made. The
 * actor's method thread is the only one that enters. */

#include "colocate/job/trainer_agreement.h"

#include "runtime/assert.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The head of each rank's part of an agreement. */
struct part_head {
    uint64_t failed_rank;   /* Number of the rank plus 1 if it has failed, else 0. */
    uint64_t payload_bytes; /* Number of bytes of the payload. */
};

/* ---- memory --------------------------------------------------------------------------- */

/* Returns the number of bytes of the announcements that trainer rank `rank` makes for a chunk of
 * engines of other gather groups, at most. */
static size_t announced_bytes_max(const struct trainer *trainer, uint32_t chunk, uint32_t rank)
{
    const struct tdm__gather_groups *groups = &trainer->rank.groups;
    uint32_t group = tdm__gather_groups_of_trainer(groups, rank);
    size_t bytes = 0;

    for (uint32_t i = 0; i < trainer->transfer_plan->to_count; i++) {
        struct tdm__tensor_handles handles = {.header = {.storages_count = 1}};

        handles.header.tensors_count =
            i / tdm__gather_groups_images_each(groups) == group
                ? 0
                : tdm__transfer_plan_copies_between(trainer->transfer_plan, chunk, rank, i);
        bytes += handles.header.tensors_count == 0
                     ? 0
                     : tdm__announcement_list_packed_max(tdm__tensor_handles_bytes(&handles));
    }
    return bytes == 0 ? 0 : bytes + tdm__announcement_list_packed_max(0);
}

/* Fills chunk_bytes. Whole tensors are described by the rank in whose bucket they are. */
static void size_chunks(struct trainer *trainer)
{
    struct tdm__trainer_agreement *agreement = &trainer->agreement;

    for (uint32_t chunk = 0; chunk < trainer->transfer_plan->chunks_count; chunk++) {
        agreement->chunk_bytes[chunk] = 0;
        for (uint32_t rank = 0;
             rank < trainer->rank.context.ranks_count && trainer->whole_tensors == NULL; rank++) {
            size_t bytes = announced_bytes_max(trainer, chunk, rank);

            if (bytes > agreement->chunk_bytes[chunk]) {
                agreement->chunk_bytes[chunk] = bytes;
            }
        }
    }
}

tdm_status tdm__trainer_agreement_reserve(struct trainer *trainer)
{
    struct tdm__trainer_agreement *agreement = &trainer->agreement;
    uint32_t chunks_count = trainer->transfer_plan->chunks_count;
    size_t payload_bytes =
        tdm__weight_writer_claim_words(trainer->weight_writer) * sizeof(uint64_t);

    tdm__trainer_agreement_fini(agreement);
    agreement->chunk_bytes = calloc((size_t)chunks_count + 1, sizeof(*agreement->chunk_bytes));
    if (agreement->chunk_bytes != NULL) {
        size_chunks(trainer);
        for (uint32_t i = 0; i < chunks_count; i++) {
            payload_bytes = agreement->chunk_bytes[i] > payload_bytes ? agreement->chunk_bytes[i]
                                                                      : payload_bytes;
        }
        agreement->part_bytes_max = sizeof(struct part_head) + payload_bytes;
        agreement->own = calloc(1, agreement->part_bytes_max);
        agreement->all = calloc(trainer->rank.context.ranks_count, agreement->part_bytes_max);
    }
    if (agreement->own == NULL || agreement->all == NULL) {
        return tdm__fail(TDM_E_NOMEM, "what %u trainer ranks tell each other: %zu bytes each",
                         trainer->rank.context.ranks_count, payload_bytes);
    }
    return TDM_OK;
}

void tdm__trainer_agreement_fini(struct tdm__trainer_agreement *agreement)
{
    free(agreement->chunk_bytes);
    free(agreement->own);
    free(agreement->all);
    *agreement = (struct tdm__trainer_agreement){.own = NULL};
}

/* ---- agreements ------------------------------------------------------------------------ */

/* Returns the result of an agreement: the rank's own error, the collective's, or that of another
 * rank. `detail` is the own error's. */
static tdm_status settle_status(tdm_status status, const char *detail, tdm_status told,
                                uint64_t failed_rank)
{
    if (status != TDM_OK) {
        return tdm__fail(status, "%s", detail);
    }
    TDM_TRY(told);
    if (failed_rank > 0) {
        return tdm__fail(TDM_E_ABORTED, "trainer rank %u has stopped the update",
                         (unsigned)failed_rank - 1);
    }
    return TDM_OK;
}

tdm_status tdm__trainer_agree(struct trainer *trainer, tdm_status status)
{
    char detail[TDM__ERROR_DETAIL_BYTES];
    double worst = status == TDM_OK ? 0 : (double)(trainer->rank.context.rank + 1);
    tdm_status told;

    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    told = tdm_collective_all_reduce_double(trainer->rank.group, &worst, 1, TDM_MAX);
    return settle_status(status, detail, told, (uint64_t)worst);
}

/* Returns the payload of this rank's part. */
static char *own_payload(const struct trainer *trainer)
{
    return trainer->agreement.own + sizeof(struct part_head);
}

/* Makes all ranks agree on a status and tells each the payloads of all: `payload_bytes` bytes of
 * own_payload(), in a part with room for `room_bytes`. */
static tdm_status agree_and_tell(struct trainer *trainer, tdm_status status, size_t payload_bytes,
                                 size_t room_bytes)
{
    struct tdm__trainer_agreement *agreement = &trainer->agreement;
    char detail[TDM__ERROR_DETAIL_BYTES];
    struct part_head head = {.failed_rank = status == TDM_OK ? 0 : trainer->rank.context.rank + 1,
                             .payload_bytes = payload_bytes};
    uint64_t failed_rank = 0;
    tdm_status told;

    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    TDM_ASSERT(payload_bytes <= room_bytes);
    TDM_ASSERT(sizeof(head) + room_bytes <= agreement->part_bytes_max);
    memcpy(agreement->own, &head, sizeof(head));
    agreement->told_bytes = sizeof(head) + room_bytes;
    told = tdm_collective_all_gather(trainer->rank.group, agreement->own, agreement->told_bytes,
                                     agreement->all);
    for (uint32_t rank = 0; told == TDM_OK && rank < trainer->rank.context.ranks_count; rank++) {
        memcpy(&head, agreement->all + rank * agreement->told_bytes, sizeof(head));
        failed_rank = head.failed_rank > failed_rank ? head.failed_rank : failed_rank;
    }
    return settle_status(status, detail, told, failed_rank);
}

/* Returns what a rank has told in the last agreement. */
static tdm_status read_payload(const struct trainer *trainer, uint32_t rank,
                               struct tdm_bytes *payload_out)
{
    const struct tdm__trainer_agreement *agreement = &trainer->agreement;
    const char *part = agreement->all + rank * agreement->told_bytes;
    struct part_head head;

    memcpy(&head, part, sizeof(head));
    if (head.payload_bytes > agreement->told_bytes - sizeof(head)) {
        return tdm__fail(TDM_E_PROTOCOL, "trainer rank %u tells %llu bytes, at most %zu", rank,
                         (unsigned long long)head.payload_bytes,
                         agreement->told_bytes - sizeof(head));
    }
    *payload_out = (struct tdm_bytes){part + sizeof(head), (size_t)head.payload_bytes};
    return TDM_OK;
}

/* ---- claims ---------------------------------------------------------------------------- */

uint64_t *tdm__trainer_own_claim(struct trainer *trainer)
{
    return (uint64_t *)(void *)own_payload(trainer);
}

tdm_status tdm__trainer_agree_on_claims(struct trainer *trainer, tdm_status status,
                                        const uint64_t **claims_out)
{
    size_t bytes = tdm__weight_writer_claim_words(trainer->weight_writer) * sizeof(uint64_t);

    TDM_TRY(agree_and_tell(trainer, status, bytes, bytes));
    for (uint32_t rank = 0; rank < trainer->rank.context.ranks_count; rank++) {
        const char *part = trainer->agreement.all + rank * trainer->agreement.told_bytes;

        memmove(trainer->agreement.all + rank * bytes, part + sizeof(struct part_head), bytes);
    }
    *claims_out = (const uint64_t *)(const void *)trainer->agreement.all;
    return TDM_OK;
}

/* ---- chunks ---------------------------------------------------------------------------- */

bool tdm__trainer_chunk_crosses_groups(const struct trainer *trainer, uint32_t chunk)
{
    return trainer->agreement.chunk_bytes[chunk] > 0;
}

/* Packs the announcements for other groups into this rank's payload. */
static tdm_status pack_own(struct trainer *trainer, uint32_t chunk,
                           const struct tdm__announcement_list *own, size_t *payload_bytes_out)
{
    tdm_writer *writer;
    tdm_status status;

    *payload_bytes_out = 0;
    if (own->count == 0) {
        return TDM_OK;
    }
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__announcement_list_pack(own, writer);
    if (status == TDM_OK) {
        struct tdm_bytes packed = tdm_writer_bytes(writer);

        TDM_ASSERT(packed.size_bytes <= trainer->agreement.chunk_bytes[chunk]);
        memcpy(own_payload(trainer), packed.data, packed.size_bytes);
        *payload_bytes_out = packed.size_bytes;
    }
    tdm_writer_destroy(writer);
    return status;
}

tdm_status tdm__trainer_agree_on_chunk(struct trainer *trainer, tdm_status status, uint32_t chunk,
                                       const struct tdm__announcement_list *own)
{
    size_t payload_bytes = 0;

    if (!tdm__trainer_chunk_crosses_groups(trainer, chunk)) {
        return tdm__trainer_agree(trainer, status);
    }
    if (status == TDM_OK) {
        status = pack_own(trainer, chunk, own, &payload_bytes);
    }
    return agree_and_tell(trainer, status, payload_bytes, trainer->agreement.chunk_bytes[chunk]);
}

/* Appends to `list` what the rank `from` of another group has told for this group's engine. */
static tdm_status receive_from(const struct trainer *trainer, uint32_t from,
                               struct tdm__announcement_list *list)
{
    const struct tdm__gather_groups *groups = &trainer->rank.groups;
    uint32_t each = tdm__gather_groups_images_each(groups);
    uint32_t first = tdm__gather_groups_of_trainer(groups, trainer->rank.context.rank) * each;
    struct tdm_bytes payload;

    TDM_TRY(read_payload(trainer, from, &payload));
    return payload.size_bytes == 0 ? TDM_OK
                                   : tdm__announcement_list_unpack(payload, first, each, list);
}

tdm_status tdm__trainer_receive_announcements(struct trainer *trainer, uint32_t chunk,
                                              struct tdm__announcement_list *list)
{
    uint32_t per_group = trainer->rank.groups.ranks_per_group;
    uint32_t own = trainer->rank.context.rank;

    if (!tdm__trainer_chunk_crosses_groups(trainer, chunk)) {
        return TDM_OK;
    }
    for (uint32_t rank = own % per_group; rank < trainer->rank.context.ranks_count;
         rank += per_group) {
        if (rank != own) {
            TDM_TRY(tdm__wrap(receive_from(trainer, rank, list), "what trainer rank %u described",
                              rank));
        }
    }
    return TDM_OK;
}
