/* transfer_target.c - encodes replies that say where trainers write an engine rank's weights and
 * what an update costs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/transfer_target.h"

#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <string.h>

/* Encodes the message `structure`, which `message` describes, and replies with it. */
static tdm_status reply_message(tdm_call *call, const struct tdm__message *message,
                                const void *structure)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__message_encode(message, structure, writer);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Converts a resume log to its message. */
static struct tdm__resume_log_message
resume_log_to_message(const struct tdm__resume_log *resume_log)
{
    return (struct tdm__resume_log_message){resume_log->next, resume_log->sums.high,
                                            resume_log->sums.low};
}

/* Getter of a message list: returns the key of a block. */
static void get_key(const void *arg, uint32_t index, void *item_out)
{
    *(struct tdm__id *)item_out = ((struct tdm__block *const *)arg)[index]->key;
}

tdm_status tdm__transfer_target_reply(tdm_call *call, const struct tdm__location *location,
                                      const tdm_region *region,
                                      const struct tdm__resume_log *resume_log)
{
    uint32_t count;
    struct tdm__block *const *blocks = tdm__region_blocks(region, &count);
    struct tdm__update_target_message message = {
        .gpu = location->gpu, .keys = {.count = count, .get = get_key, .arg = blocks}};

    if (resume_log != NULL) {
        message.has_resume_log = true;
        message.resume_log = resume_log_to_message(resume_log);
    }
    return reply_message(call, tdm__update_target_table(), &message);
}

tdm_status tdm__transfer_cost_reply(tdm_call *call, const struct tdm__transfer_plan *transfer_plan)
{
    const struct tdm__transfer_cost *cost = &transfer_plan->cost;
    const struct tdm__update_cost_message message = {
        .same_gpu_bytes = cost->bytes_by_locality[TDM__LOCALITY_SAME_GPU],
        .other_gpu_bytes = cost->bytes_by_locality[TDM__LOCALITY_SAME_NODE],
        .other_node_bytes = cost->bytes_by_locality[TDM__LOCALITY_OTHER_NODE],
        .copies_max = cost->copies_max,
        .buckets_count = transfer_plan->chunks_count,
        .bucket_bytes = transfer_plan->chunk_bytes_max,
        .measured_bytes = transfer_plan->scales.measured_bytes};

    return reply_message(call, tdm__update_cost_table(), &message);
}

/* Getter of a message list: returns the resume log of engine rank `index` from the weight
 * writer. */
static void get_resume_log(const void *arg, uint32_t index, void *item_out)
{
    struct tdm__resume_log resume_log =
        tdm__weight_writer_resume_log((struct tdm__weight_writer *)(uintptr_t)arg, index);

    *(struct tdm__resume_log_message *)item_out = resume_log_to_message(&resume_log);
}

tdm_status tdm__transfer_result_reply(tdm_call *call, struct tdm__weight_writer *weight_writer,
                                      uint32_t engine_ranks_count)
{
    struct tdm__hash hash = tdm__weight_writer_contents_hash(weight_writer);
    const struct tdm__slices_sent_message message = {
        .hash_high = hash.high,
        .hash_low = hash.low,
        .resume_logs = {.count = engine_ranks_count, .get = get_resume_log, .arg = weight_writer}};

    return reply_message(call, tdm__slices_sent_table(), &message);
}

tdm_status tdm__transfer_target_read(const tdm_value *value,
                                     struct tdm__transfer_target *target_out)
{
    struct tdm__update_target_message message;
    struct tdm__transfer_target target = {.blocks_count = 0};

    if (value != NULL && tdm_value_kind_of(value) == TDM_NIL) {
        *target_out = (struct tdm__transfer_target){.absent = true};
        return TDM_OK;
    }
    TDM_TRY(tdm__update_target_decode(value, &message));
    target.blocks_count = message.keys.count;
    if (target.blocks_count == 0 || target.blocks_count > TDM__DEVICE_BLOCKS_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "a target of %u blocks", target.blocks_count);
    }
    target.gpu = message.gpu;
    for (uint32_t i = 0; i < target.blocks_count; i++) {
        tdm__message_list_read(&message.keys, i, &target.keys[i], sizeof(target.keys[i]));
    }
    *target_out = target;
    return TDM_OK;
}
