/* targets.c - where trainers may write for an engine rank, as calls carry it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/targets.h"

#include "runtime/error.h"

#include <string.h>

tdm_status tdm__target_reply(tdm_call *call, const struct tdm__place *place,
                             const tdm_region *region, const struct tdm__journal *journal)
{
    uint32_t count;
    struct tdm__block *const *blocks = tdm__region_blocks(region, &count);
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, journal == NULL ? 2 : 3);
    tdm_write_bytes(writer, place->gpu.bytes, sizeof(place->gpu.bytes));
    tdm_write_array(writer, count);
    for (uint32_t i = 0; i < count; i++) {
        tdm_write_bytes(writer, blocks[i]->key.bytes, sizeof(blocks[i]->key.bytes));
    }
    if (journal != NULL) {
        tdm__journal_write(journal, writer);
    }
    status = tdm_writer_status(writer);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

tdm_status tdm__cost_reply(tdm_call *call, const struct tdm__route *route)
{
    const struct tdm__reshard_cost *cost = &route->cost;

    return tdm_call_reply(call, "uuuuuu", cost->edge_bytes[TDM__EDGE_SAME_GPU],
                          cost->edge_bytes[TDM__EDGE_SAME_NODE], (uint64_t)cost->copies_max,
                          (uint64_t)route->windows_count, route->window_bytes_max,
                          route->scales.measured_bytes);
}

tdm_status tdm__sent_reply(tdm_call *call, struct tdm__mover *mover,
                           uint32_t engine_ranks_count)
{
    struct tdm__hash hash = tdm__mover_contents(mover);
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, 3);
    tdm_write_uint(writer, hash.high);
    tdm_write_uint(writer, hash.low);
    tdm_write_array(writer, engine_ranks_count);
    for (uint32_t i = 0; i < engine_ranks_count; i++) {
        struct tdm__journal journal = tdm__mover_journal(mover, i);

        tdm__journal_write(&journal, writer);
    }
    status = tdm_writer_status(writer);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

static tdm_status read_id(const tdm_value *value, struct tdm__id *id_out)
{
    struct tdm_bytes bytes = tdm_value_bytes(value);

    if (bytes.size_bytes != sizeof(id_out->bytes)) {
        return tdm__fail(TDM_E_PROTOCOL, "a target's GPU or key of %zu bytes",
                         bytes.size_bytes);
    }
    memcpy(id_out->bytes, bytes.data, sizeof(id_out->bytes));
    return TDM_OK;
}

tdm_status tdm__target_read(const tdm_value *value, struct tdm__target *target_out)
{
    const tdm_value *keys = tdm_value_at(value, 1);
    struct tdm__target target = {.blocks_count = tdm_value_count(keys)};

    if (value != NULL && tdm_value_kind_of(value) == TDM_NIL) {
        *target_out = (struct tdm__target){.absent = true};
        return TDM_OK;
    }
    if (target.blocks_count == 0 || target.blocks_count > TDM__DEVICE_BLOCKS_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "a target of %u blocks", target.blocks_count);
    }
    TDM_TRY(read_id(tdm_value_at(value, 0), &target.gpu));
    for (uint32_t i = 0; i < target.blocks_count; i++) {
        TDM_TRY(read_id(tdm_value_at(keys, i), &target.keys[i]));
    }
    *target_out = target;
    return TDM_OK;
}
