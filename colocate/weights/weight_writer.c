/* weight_writer.c - a trainer rank's side of an update by a plan: writes where engines read. */
/* SPDX-License-Identifier: Apache-2.0 */

/* One update consists of these steps:
 *
 * 1. map_targets;
 * 2. claim_held and settle_held, if an earlier update is resumed;
 * 3. find_scales and share_scales;
 * 4. for each chunk write_chunk, then begin_round and end_round for each round of its exchange, and
 *    describe_chunk for each engine rank;
 * 5. claim_result and settle_result;
 * 6. unmap_targets.
 *
 * The caller (colocate/job) orders these steps among the ranks, exchanges the claims and waits for
 * the engines.
 *
 * A rank keeps the checksums of its own copies per chunk and image (image_sums()), and describes
 * nothing but its own copies. No rank needs another rank's checksums while chunks are written. The
 * hash to vote for and the engines' resume logs cover the copies of all ranks. Each rank claims its
 * share of them in a few words, which the caller exchanges once, and every rank combines all claims
 * to the same result.
 *
 * The checksums outlive an update. If it is aborted and the weights do not change, the next update
 * compares the resume logs that follow from them with the engines', and skips what engines have.
 * own_known_chunks is the number of leading chunks whose checksums this rank knows. known_chunks is
 * the least of all ranks' numbers, as far as the ranks have settled it in this update.
 *
 * One thread enters at a time; there are no locks. Only share_scales blocks in a collective. */

#include "colocate/weights/weight_writer.h"

#include "colocate/weights/convert.h"
#include "colocate/weights/remedies.h"
#include "colocate/weights/weight_writer_state.h"
#include "runtime/error.h"
#include "runtime/splitmix.h"

#include <string.h>

/* ---- targets ------------------------------------------------------------------------- */

/* Returns true if trainer rank `from_rank` writes anything into the image of an engine rank. */
static bool has_copies(const struct tdm__transfer_plan_image *image, uint32_t from_rank)
{
    for (uint32_t i = 0; i < image->copies_count; i++) {
        if (image->copies[i].from_rank == from_rank) {
            return true;
        }
    }
    return false;
}

/* Returns the smallest allowed size in bytes of an engine rank's target, which is a shadow or a
 * bucket. */
static uint64_t target_bytes(const struct tdm__weight_writer *weight_writer, uint32_t engine_rank)
{
    const struct tdm__transfer_plan *transfer_plan = weight_writer->options.transfer_plan;

    return weight_writer->bucket != NULL
               ? tdm_region_size(weight_writer->bucket)
               : transfer_plan->images[engine_rank].chunks[transfer_plan->chunks_count - 1].end;
}

/* Stores what `from` says about the target of engine rank `index`, and maps the target if this rank
 * writes into it. */
static tdm_status map_target(struct tdm__weight_writer *weight_writer, uint32_t index,
                             const struct tdm__transfer_target *from)
{
    struct tdm__device *device = tdm__regions_device(weight_writer->options.regions);
    const struct tdm__transfer_plan *transfer_plan = weight_writer->options.transfer_plan;
    struct tdm__mapped_target *target = &weight_writer->targets[index];

    target->is_absent = from->absent;
    if (from->absent) {
        return TDM_OK;
    }
    target->resume_log = from->resume_log;
    if (from->blocks_count == 0 || from->blocks_count > TDM__DEVICE_BLOCKS_MAX) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "writing weights failed: the memory of engine rank %u has %u blocks, "
                         "expected 1 to %d. " TDM__REMEDY_DEFECT,
                         index, from->blocks_count, TDM__DEVICE_BLOCKS_MAX);
    }
    target->gpu = from->gpu;
    target->key = from->keys[0];
    if (!has_copies(&transfer_plan->images[index], weight_writer->options.rank)) {
        return TDM_OK;
    }
    return tdm__mapped_target_map(target, device, from, index, target_bytes(weight_writer, index));
}

tdm_status tdm__weight_writer_map_targets(struct tdm__weight_writer *weight_writer,
                                          const struct tdm__transfer_target *targets)
{
    const struct tdm__transfer_plan *transfer_plan = weight_writer->options.transfer_plan;

    tdm__weight_writer_unmap_targets(weight_writer);
    weight_writer->known_chunks = 0;
    weight_writer->own_hash = transfer_plan->manifest->hash;
    weight_writer->contents_hash = transfer_plan->manifest->hash;
    for (uint32_t i = 0; i < transfer_plan->to_count; i++) {
        tdm_status status = map_target(weight_writer, i, &targets[i]);

        if (status != TDM_OK) {
            tdm__weight_writer_unmap_targets(weight_writer);
            return status;
        }
    }
    return tdm__layout_resolve_addresses(&transfer_plan->from[weight_writer->options.rank],
                                         transfer_plan->manifest, weight_writer->options.regions,
                                         weight_writer->slices);
}

void tdm__weight_writer_unmap_targets(struct tdm__weight_writer *weight_writer)
{
    struct tdm__device *device = tdm__regions_device(weight_writer->options.regions);

    for (uint32_t i = 0; i < weight_writer->options.transfer_plan->to_count; i++) {
        tdm__mapped_target_unmap(&weight_writer->targets[i], device);
    }
}

/* ---- scales of shared blocks --------------------------------------------------------- */

bool tdm__weight_writer_shares_blocks(const struct tdm__weight_writer *weight_writer)
{
    return weight_writer->options.transfer_plan->scales.count > 0;
}

/* Returns true if a copy reads the receive buffer. */
static bool is_received(const struct tdm__rect_copy *copy)
{
    return copy->from_tensor == TDM__TRANSFER_PLAN_RECEIVED ||
           copy->from_tensor == TDM__TRANSFER_PLAN_RECEIVED_SCALES;
}

/* Returns the address of the first element that a copy of this rank reads. */
static const char *copy_source(const struct tdm__weight_writer *weight_writer,
                               const struct tdm__rect_copy *copy)
{
    const char *begin = is_received(copy)
                            ? tdm__weight_writer_receive_buffer(weight_writer)
                            : (const char *)weight_writer->slices[copy->from_tensor].address;

    return begin + copy->from_offset * tdm_dtype_bytes((enum tdm_dtype)copy->from_dtype);
}

/* Computes on the device the FP8 scales that this rank contributes to the shared table. The results
 * are stored without gaps, because two slices may have parts of the same block. */
static tdm_status find_scales(struct tdm__weight_writer *weight_writer)
{
    struct tdm__device *device = tdm__regions_device(weight_writer->options.regions);
    const struct tdm__scales *scales = &weight_writer->options.transfer_plan->scales;
    float *found = weight_writer->found;
    uint32_t count = 0;

    for (uint32_t i = 0; i < scales->measures_count; i++) {
        const struct tdm__rect_copy *measure = &scales->measures[i];

        if (measure->from_rank == weight_writer->options.rank) {
            struct tdm__copy_op *part = &weight_writer->copy_ops[count++];

            *part = tdm__convert_copy_op(measure, copy_source(weight_writer, measure), found);
            part->to_pitch = tdm__convert_blocks_count(measure->columns);
            found += tdm__scales_measured_count(measure);
        }
    }
    return count == 0 ? TDM_OK
                      : device->ops->move(device, weight_writer->copy_ops, count,
                                          weight_writer->copy_op_sums);
}

tdm_status tdm__weight_writer_find_scales(struct tdm__weight_writer *weight_writer)
{
    const struct tdm__scales *scales = &weight_writer->options.transfer_plan->scales;
    const float *found = weight_writer->found;

    if (!tdm__weight_writer_shares_blocks(weight_writer)) {
        return TDM_OK;
    }
    TDM_TRY(find_scales(weight_writer));
    memset(weight_writer->scales, 0, scales->count * sizeof(*weight_writer->scales));
    for (uint32_t i = 0; i < scales->measures_count; i++) {
        const struct tdm__rect_copy *measure = &scales->measures[i];

        if (measure->from_rank == weight_writer->options.rank) {
            tdm__scales_merge(measure, found, weight_writer->scales);
            found += tdm__scales_measured_count(measure);
        }
    }
    return TDM_OK;
}

tdm_status tdm__weight_writer_share_scales(struct tdm__weight_writer *weight_writer)
{
    return tdm__weight_writer_shares_blocks(weight_writer)
               ? tdm_collective_all_reduce(weight_writer->options.group, weight_writer->scales,
                                           weight_writer->options.transfer_plan->scales.count,
                                           TDM_MAX)
               : TDM_OK;
}

/* ---- write --------------------------------------------------------------------------- */

/* Returns the device operation for a copy into the image of an engine rank. With `to` NULL the
 * operation only computes the checksum, which the update's hash needs also for absent engine
 * ranks. */
static struct tdm__copy_op plan_copy_op(const struct tdm__weight_writer *weight_writer,
                                        uint32_t image, const struct tdm__rect_copy *copy, char *to)
{
    const struct tdm__transfer_plan *transfer_plan = weight_writer->options.transfer_plan;
    struct tdm__copy_op part;

    if (copy->from_tensor == TDM__TRANSFER_PLAN_SCALES) {
        return tdm__convert_copy_op(copy, weight_writer->scales + copy->from_offset, to);
    }
    part = tdm__convert_copy_op(copy, copy_source(weight_writer, copy), to);
    tdm__scales_attach(&transfer_plan->scales, &transfer_plan->to[image].slices[copy->to_tensor],
                       copy, weight_writer->scales, &part);
    return part;
}

/* Returns the checksums of this rank's copies for one chunk of an engine rank's image, in the order
 * of the copies. Those of the chunk's other images follow. */
static uint64_t *image_sums(const struct tdm__weight_writer *weight_writer, uint32_t chunk,
                            uint32_t image)
{
    size_t entry = (size_t)chunk * weight_writer->options.transfer_plan->to_count + image;

    return &weight_writer->sums[weight_writer->sums_firsts[entry]];
}

/* Returns the number of this rank's copies for one chunk of all images. */
static uint32_t chunk_copies(const struct tdm__weight_writer *weight_writer, uint32_t chunk)
{
    return (uint32_t)(image_sums(weight_writer, chunk + 1, 0) -
                      image_sums(weight_writer, chunk, 0));
}

/* Returns true if the chunk's checksums are known and the engine rank of this image has the chunk
 * or is absent. */
static bool target_has_chunk(const struct tdm__weight_writer *weight_writer, uint32_t image_index,
                             uint32_t chunk)
{
    const struct tdm__mapped_target *target = &weight_writer->targets[image_index];

    return chunk < weight_writer->known_chunks && (target->is_absent || chunk < target->held_count);
}

/* One step of this rank's work for one chunk. In the first step it writes what it has, and packs
 * the first round. In each further step it writes what it has received in a round and packs the
 * next round. Copies with a known checksum that no engine rank needs are left out. */
struct chunk_step {
    uint32_t chunk;          /* Index of the chunk. */
    uint32_t number;         /* Number of the step, which is that of rounds received. */
    uint32_t copy_ops_count; /* Number of device operations of the step. */
    /* Number of checksums of this rank's copies, of all steps and those known from an earlier
     * update. */
    uint32_t sums_count;
};

/* Returns the step in which this rank makes a copy of the chunk: 0, or 1 plus the number of the
 * round in which the piece comes that it writes. What has come for an earlier chunk is there. */
static uint32_t step_of_copy(const struct tdm__weight_writer *weight_writer, uint32_t chunk,
                             uint32_t piece)
{
    const struct tdm__node_exchange *exchange = weight_writer->options.transfer_plan->exchange;
    uint32_t round = piece == 0 ? 0 : exchange->pieces[piece - 1].round;

    return piece == 0 || round < exchange->chunk_rounds[chunk]
               ? 0
               : 1 + round - exchange->chunk_rounds[chunk];
}

/* Adds this rank's copies of one step for one engine rank's image to the device operations. */
static void add_image_work(struct tdm__weight_writer *weight_writer, uint32_t image_index,
                           struct chunk_step *step)
{
    const struct tdm__transfer_plan *transfer_plan = weight_writer->options.transfer_plan;
    const struct tdm__transfer_plan_image *image = &transfer_plan->images[image_index];
    const struct tdm__transfer_plan_chunk *about = &image->chunks[step->chunk];
    const uint64_t *known = image_sums(weight_writer, step->chunk, 0);
    bool is_done = target_has_chunk(weight_writer, image_index, step->chunk);
    char *address = weight_writer->targets[image_index].address;

    for (uint32_t i = about->copies_first; i < about->copies_first + about->copies_count; i++) {
        const struct tdm__rect_copy *copy = &image->copies[i];
        uint32_t piece = transfer_plan->exchange == NULL
                             ? 0
                             : transfer_plan->exchange->image_pieces[image_index][i];

        if (copy->from_rank == weight_writer->options.rank && is_done) {
            weight_writer->own_sums[step->sums_count] = known[step->sums_count];
            step->sums_count++;
        } else if (copy->from_rank == weight_writer->options.rank &&
                   step_of_copy(weight_writer, step->chunk, piece) == step->number) {
            uint64_t at = tdm__transfer_plan_image_offset(transfer_plan, image_index, copy);

            at -= weight_writer->options.in_place ? 0 : about->begin;
            at += tdm__weight_writer_chunk_offset(weight_writer, step->chunk, image_index);
            weight_writer->copy_ops[step->copy_ops_count] = plan_copy_op(
                weight_writer, image_index, copy, address == NULL ? NULL : address + at);
            weight_writer->copy_op_uses[step->copy_ops_count++] = (struct copy_op_use){
                .sum_slot = step->sums_count++, .piece = piece, .locality = copy->locality};
        } else if (copy->from_rank == weight_writer->options.rank) {
            step->sums_count++;
        }
    }
}

/* Adds the packing of what this rank sends in the round after the step to the device
 * operations. */
static void add_packing(struct tdm__weight_writer *weight_writer, struct chunk_step *step)
{
    const struct tdm__node_exchange *exchange = weight_writer->options.transfer_plan->exchange;
    uint32_t round;
    uint32_t count = 0;

    if (step->number >= tdm__weight_writer_rounds_count(weight_writer, step->chunk)) {
        return;
    }
    round = exchange->chunk_rounds[step->chunk] + step->number;
    for (uint32_t i = exchange->round_firsts[round]; i < exchange->round_firsts[round + 1]; i++) {
        const struct tdm__exchange_piece *piece = &exchange->pieces[i];

        if (piece->copy.from_rank == weight_writer->options.rank) {
            weight_writer->copy_ops[step->copy_ops_count] =
                plan_copy_op(weight_writer, piece->image, &piece->copy,
                             tdm__weight_writer_send_buffer(weight_writer) + piece->send_offset);
            weight_writer->copy_op_uses[step->copy_ops_count++] = (struct copy_op_use){
                .sum_slot = count++, .locality = TDM__LOCALITY_OTHER_NODE, .is_packed = true};
        }
    }
}

/* Compares the checksum of what a copy read from the receive buffer with that of its sender. */
static tdm_status check_received(const struct tdm__weight_writer *weight_writer, uint32_t piece,
                                 uint64_t sum)
{
    const struct tdm__transfer_plan *transfer_plan = weight_writer->options.transfer_plan;
    const struct tdm__exchange_piece *from = &transfer_plan->exchange->pieces[piece];
    uint64_t sent = tdm__exchange_rounds_sum(weight_writer->rounds, piece);

    return sum == sent
               ? TDM_OK
               : tdm__fail(TDM_E_CHECKSUM,
                           "writing weights failed: tensor %s: what trainer rank %u sent to "
                           "another node arrived with the checksum %016llx instead of "
                           "%016llx. " TDM__REMEDY_SEND_AGAIN,
                           tdm__transfer_plan_tensor(transfer_plan, from->image, &from->copy)->name,
                           from->copy.from_rank, (unsigned long long)sum, (unsigned long long)sent);
}

/* Stores the checksums of the executed device operations and adds them to the writer's
 * last_totals. */
static tdm_status count_copy_ops(struct tdm__weight_writer *weight_writer, uint32_t copy_ops_count)
{
    struct tdm__transfer_totals *last_totals = &weight_writer->last_totals;

    for (uint32_t i = 0; i < copy_ops_count; i++) {
        const struct tdm__strided_rows rows = tdm__copy_op_rows(&weight_writer->copy_ops[i]);
        const struct copy_op_use *use = &weight_writer->copy_op_uses[i];
        uint64_t sum = weight_writer->copy_op_sums[i];

        if (use->is_packed) {
            tdm__exchange_rounds_keep_sent(weight_writer->rounds, use->sum_slot, sum);
        } else {
            weight_writer->own_sums[use->sum_slot] = sum;
        }
        if (use->piece > 0) {
            TDM_TRY(check_received(weight_writer, use->piece - 1, sum));
        }
        if (weight_writer->copy_ops[i].to != NULL) {
            last_totals->bytes[use->locality] += rows.count * rows.size_bytes;
            last_totals->sums[use->locality] =
                tdm__splitmix64(last_totals->sums[use->locality], sum);
        }
    }
    return TDM_OK;
}

/* Keeps the computed checksums of a chunk. If they differ from those that are known for it, forgets
 * all checksums and returns TDM_E_STATE. */
static tdm_status keep_sums(struct tdm__weight_writer *weight_writer, uint32_t chunk)
{
    uint64_t *sums = image_sums(weight_writer, chunk, 0);
    uint32_t count = chunk_copies(weight_writer, chunk);
    size_t bytes = count * sizeof(*sums);

    if (chunk < weight_writer->known_chunks && memcmp(weight_writer->own_sums, sums, bytes) != 0) {
        tdm__weight_writer_forget_sums(weight_writer);
        return tdm__fail(TDM_E_STATE,
                         "writing weights failed: the weights of chunk %u of %u have changed since "
                         "the update before, but this trainer rank has neither learned nor loaded. "
                         "Change weights only in the functions step and load of the job library",
                         chunk, weight_writer->options.transfer_plan->chunks_count);
    }
    memcpy(sums, weight_writer->own_sums, bytes);
    weight_writer->own_known_chunks =
        chunk + 1 > weight_writer->own_known_chunks ? chunk + 1 : weight_writer->own_known_chunks;
    weight_writer->own_hash = tdm__checksum_contents_hash(&weight_writer->own_hash, sums, count);
    return TDM_OK;
}

/* Makes one step of this rank's work for a chunk, and keeps the checksums after the last. */
static tdm_status make_step(struct tdm__weight_writer *weight_writer, uint32_t chunk,
                            uint32_t number)
{
    struct tdm__device *device = tdm__regions_device(weight_writer->options.regions);
    struct chunk_step step = {.chunk = chunk, .number = number};

    for (uint32_t i = 0; i < weight_writer->options.transfer_plan->to_count; i++) {
        add_image_work(weight_writer, i, &step);
    }
    add_packing(weight_writer, &step);
    if (step.copy_ops_count > 0) {
        TDM_TRY(device->ops->move(device, weight_writer->copy_ops, step.copy_ops_count,
                                  weight_writer->copy_op_sums));
    }
    TDM_TRY(count_copy_ops(weight_writer, step.copy_ops_count));
    return number < tdm__weight_writer_rounds_count(weight_writer, chunk)
               ? TDM_OK
               : keep_sums(weight_writer, chunk);
}

tdm_status tdm__weight_writer_write_chunk(struct tdm__weight_writer *weight_writer, uint32_t chunk)
{
    weight_writer->last_totals = (struct tdm__transfer_totals){.bytes = {0}};
    memset(weight_writer->own_sums, 0,
           chunk_copies(weight_writer, chunk) * sizeof(*weight_writer->own_sums));
    return make_step(weight_writer, chunk, 0);
}

uint32_t tdm__weight_writer_rounds_count(const struct tdm__weight_writer *weight_writer,
                                         uint32_t chunk)
{
    return tdm__weight_writer_chunk_is_held(weight_writer, chunk)
               ? 0
               : tdm__node_exchange_rounds(weight_writer->options.transfer_plan->exchange, chunk);
}

void tdm__weight_writer_begin_round(struct tdm__weight_writer *weight_writer, uint32_t chunk,
                                    uint32_t round, struct tdm__exchange_round *round_out)
{
    const struct tdm__node_exchange *exchange = weight_writer->options.transfer_plan->exchange;

    tdm__exchange_rounds_begin(weight_writer->rounds, exchange->chunk_rounds[chunk] + round,
                               round_out);
    round_out->send = tdm__weight_writer_send_buffer(weight_writer);
    round_out->receive = tdm__weight_writer_receive_buffer(weight_writer);
}

tdm_status tdm__weight_writer_end_round(struct tdm__weight_writer *weight_writer, uint32_t chunk,
                                        uint32_t round)
{
    tdm__exchange_rounds_end(weight_writer->rounds);
    return make_step(weight_writer, chunk, round + 1);
}

const struct tdm__transfer_totals *
tdm__weight_writer_last_totals(const struct tdm__weight_writer *weight_writer)
{
    return &weight_writer->last_totals;
}

struct tdm__hash tdm__weight_writer_contents_hash(const struct tdm__weight_writer *weight_writer)
{
    return weight_writer->contents_hash;
}

/* ---- describe ------------------------------------------------------------------------ */

/* Fills the tensor records that describe this rank's copies of one chunk of an engine rank's image.
 * Returns their number. */
static uint32_t describe_copies(struct tdm__weight_writer *weight_writer, uint32_t chunk,
                                uint32_t image_index)
{
    const struct tdm__transfer_plan *transfer_plan = weight_writer->options.transfer_plan;
    const struct tdm__transfer_plan_image *image = &transfer_plan->images[image_index];
    const struct tdm__transfer_plan_chunk *about = &image->chunks[chunk];
    const uint64_t *sums = image_sums(weight_writer, chunk, image_index);
    uint32_t count = 0;

    for (uint32_t i = 0; i < about->copies_count; i++) {
        const struct tdm__rect_copy *copy = &image->copies[about->copies_first + i];
        uint64_t at = tdm__transfer_plan_image_offset(transfer_plan, image_index, copy);
        size_t element_bytes = tdm_dtype_bytes((enum tdm_dtype)copy->to_dtype);
        struct tdm__strided_rows rows = tdm__convert_written_rows(copy);

        if (copy->from_rank != weight_writer->options.rank) {
            continue;
        }
        weight_writer->records[count] = (struct tdm__tensor_record){
            .tensor = transfer_plan->to[image_index].slices[copy->to_tensor].tensor,
            .dtype = copy->to_dtype,
            .dims_count = 2,
            .flags = TDM__TENSOR_SLICE,
            .shape = {rows.count, rows.size_bytes / element_bytes},
            .stride = {copy->to_pitch, 1},
            .offset = (at - (weight_writer->options.in_place ? 0 : about->begin)) / element_bytes,
            .checksum = sums[count],
            .image = at,
        };
        count++;
    }
    return count;
}

/* Returns this rank's share of the resume log of an engine rank that has the first `chunks_count`
 * chunks. */
static struct tdm__resume_log build_own_log(struct tdm__weight_writer *weight_writer,
                                            uint32_t engine_rank, uint32_t chunks_count)
{
    const struct tdm__transfer_plan_image *image =
        &weight_writer->options.transfer_plan->images[engine_rank];
    struct tdm__resume_log resume_log = {.next = 0};

    for (uint32_t i = 0; i < chunks_count; i++) {
        if (image->chunks[i].copies_count > 0) {
            uint32_t count = describe_copies(weight_writer, i, engine_rank);

            tdm__resume_log_add_bucket(&resume_log, i, weight_writer->records, count);
        }
    }
    return resume_log;
}

bool tdm__weight_writer_has_part(const struct tdm__weight_writer *weight_writer, uint32_t chunk,
                                 uint32_t engine_rank)
{
    const struct tdm__mapped_target *target = &weight_writer->targets[engine_rank];

    return weight_writer->options.transfer_plan->images[engine_rank].chunks[chunk].copies_count >
               0 &&
           !target->is_absent && chunk >= target->held_count;
}

tdm_status tdm__weight_writer_describe_chunk(struct tdm__weight_writer *weight_writer,
                                             const struct tdm__id *update, uint64_t epoch,
                                             uint32_t chunk, uint32_t engine_rank,
                                             struct tdm_bytes *bytes_out)
{
    uint64_t all_bytes = target_bytes(weight_writer, engine_rank);
    struct tdm__storage_record storage = {
        .gpu = weight_writer->targets[engine_rank].gpu,
        .key = weight_writer->targets[engine_rank].key,
        .size_bytes = weight_writer->bucket == NULL ? all_bytes : weight_writer->half_bytes,
        .offset_bytes = tdm__weight_writer_chunk_offset(weight_writer, chunk, engine_rank),
        .allocation_bytes = all_bytes,
        .reference = ++weight_writer->exports_count,
        .writer = weight_writer->options.rank};
    struct tdm__tensor_handles handles = {
        .header = {.storages_count = 1,
                   .update = *update,
                   .node = weight_writer->options.node,
                   .epoch = epoch,
                   .bucket = chunk,
                   .buckets_count = weight_writer->options.transfer_plan->chunks_count},
        .storages = &storage,
        .tensors = weight_writer->records};

    *bytes_out = (struct tdm_bytes){weight_writer->description, 0};
    if (tdm__weight_writer_has_part(weight_writer, chunk, engine_rank)) {
        handles.header.tensors_count = describe_copies(weight_writer, chunk, engine_rank);
    }
    if (handles.header.tensors_count == 0) {
        return TDM_OK;
    }
    bytes_out->size_bytes = tdm__tensor_handles_bytes(&handles);
    return tdm__tensor_handles_encode(&handles, weight_writer->description, bytes_out->size_bytes);
}

void tdm__weight_writer_forget_sums(struct tdm__weight_writer *weight_writer)
{
    weight_writer->own_known_chunks = 0;
    weight_writer->known_chunks = 0;
}

/* ---- claims: what ranks tell each other ---------------------------------------------- */

/* Places of the words of a claim: a number or a hash, and then two words for each engine rank. */
enum { CLAIM_FIRST = 0, CLAIM_SECOND = 1, CLAIM_LOGS = 2, LOG_WORDS = 2 };

uint32_t tdm__weight_writer_claim_words(const struct tdm__weight_writer *weight_writer)
{
    return CLAIM_LOGS + LOG_WORDS * weight_writer->options.transfer_plan->to_count;
}

/* Writes this rank's share of the resume log of an engine rank that has the first `chunks_count`
 * chunks into a claim. */
static void claim_log(struct tdm__weight_writer *weight_writer, uint32_t engine_rank,
                      uint32_t chunks_count, uint64_t *claim)
{
    struct tdm__resume_log own = build_own_log(weight_writer, engine_rank, chunks_count);
    uint64_t *words = &claim[CLAIM_LOGS + LOG_WORDS * engine_rank];

    words[0] = own.sums.high;
    words[1] = own.sums.low;
}

/* Returns the resume log of an engine rank that has the first `chunks_count` chunks, from the
 * claims of all ranks. */
static struct tdm__resume_log sum_logs(const struct tdm__weight_writer *weight_writer,
                                       uint32_t engine_rank, uint32_t chunks_count,
                                       const uint64_t *claims)
{
    const struct tdm__transfer_plan *transfer_plan = weight_writer->options.transfer_plan;
    size_t each = tdm__weight_writer_claim_words(weight_writer);
    struct tdm__resume_log resume_log = {.next = 0};

    for (uint32_t i = 0; i < chunks_count; i++) {
        if (transfer_plan->images[engine_rank].chunks[i].copies_count > 0) {
            resume_log.next = i + 1;
        }
    }
    for (uint32_t rank = 0; rank < transfer_plan->from_count; rank++) {
        const uint64_t *words = &claims[rank * each + CLAIM_LOGS + LOG_WORDS * (size_t)engine_rank];
        const struct tdm__hash share = {.high = words[0], .low = words[1]};

        tdm__resume_log_add_share(&resume_log, &share);
    }
    return resume_log;
}

void tdm__weight_writer_claim_held(struct tdm__weight_writer *weight_writer, uint64_t *claim_out)
{
    uint32_t known = weight_writer->own_known_chunks;

    memset(claim_out, 0, tdm__weight_writer_claim_words(weight_writer) * sizeof(*claim_out));
    claim_out[CLAIM_FIRST] = known;
    for (uint32_t i = 0; i < weight_writer->options.transfer_plan->to_count; i++) {
        uint32_t next = weight_writer->targets[i].resume_log.next;

        claim_log(weight_writer, i, next <= known ? next : 0, claim_out);
    }
}

void tdm__weight_writer_settle_held(struct tdm__weight_writer *weight_writer,
                                    const uint64_t *claims)
{
    const struct tdm__transfer_plan *transfer_plan = weight_writer->options.transfer_plan;
    uint32_t each = tdm__weight_writer_claim_words(weight_writer);
    uint32_t known = transfer_plan->chunks_count;

    for (uint32_t rank = 0; rank < transfer_plan->from_count; rank++) {
        uint64_t claimed = claims[(size_t)rank * each + CLAIM_FIRST];

        known = claimed < known ? (uint32_t)claimed : known;
    }
    weight_writer->known_chunks = known;
    for (uint32_t i = 0; i < transfer_plan->to_count; i++) {
        struct tdm__mapped_target *target = &weight_writer->targets[i];
        uint32_t next = target->resume_log.next;

        if (!target->is_absent && next > 0 && next <= known) {
            struct tdm__resume_log resume_log = sum_logs(weight_writer, i, next, claims);

            target->held_count = tdm__resume_log_equal(&resume_log, &target->resume_log) ? next : 0;
        }
    }
}

void tdm__weight_writer_claim_result(struct tdm__weight_writer *weight_writer, uint64_t *claim_out)
{
    claim_out[CLAIM_FIRST] = weight_writer->own_hash.high;
    claim_out[CLAIM_SECOND] = weight_writer->own_hash.low;
    for (uint32_t i = 0; i < weight_writer->options.transfer_plan->to_count; i++) {
        claim_log(weight_writer, i, weight_writer->own_known_chunks, claim_out);
    }
}

void tdm__weight_writer_settle_result(struct tdm__weight_writer *weight_writer,
                                      const uint64_t *claims)
{
    const struct tdm__transfer_plan *transfer_plan = weight_writer->options.transfer_plan;
    uint32_t each = tdm__weight_writer_claim_words(weight_writer);

    weight_writer->contents_hash = transfer_plan->manifest->hash;
    for (uint32_t rank = 0; rank < transfer_plan->from_count; rank++) {
        weight_writer->contents_hash = tdm__checksum_contents_hash(
            &weight_writer->contents_hash, &claims[(size_t)rank * each], CLAIM_LOGS);
    }
    for (uint32_t i = 0; i < transfer_plan->to_count; i++) {
        weight_writer->resume_logs[i] =
            sum_logs(weight_writer, i, transfer_plan->chunks_count, claims);
    }
}

struct tdm__resume_log tdm__weight_writer_resume_log(const struct tdm__weight_writer *weight_writer,
                                                     uint32_t engine_rank)
{
    return weight_writer->resume_logs[engine_rank];
}

bool tdm__weight_writer_chunk_is_held(const struct tdm__weight_writer *weight_writer,
                                      uint32_t chunk)
{
    for (uint32_t i = 0; i < weight_writer->options.transfer_plan->to_count; i++) {
        if (tdm__weight_writer_has_part(weight_writer, chunk, i)) {
            return false;
        }
    }
    return chunk < weight_writer->known_chunks &&
           (weight_writer->rounds == NULL ||
            !weight_writer->options.transfer_plan->exchange->chunk_keeps[chunk]);
}
