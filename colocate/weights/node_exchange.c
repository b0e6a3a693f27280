/* node_exchange.c - which bytes of a transfer plan cross between nodes, and which rank gets them.
 */
/* SPDX-License-Identifier: Apache-2.0 */

/* The planner works in these steps:
 *
 * 1. It cuts copies between nodes that are larger than a round (copy_cut.h).
 * 2. It sorts all copies by the bytes that they read and by the node that wants these bytes. Copies
 *    that are equal in both become one piece.
 * 3. It goes through the pieces in the order in which the chunks need them, and gives each piece a
 *    carrier. That is the trainer rank nearest to one of the engine ranks that want the piece.
 *    Among equally near ranks the planner chooses the one that has received the fewest bytes so
 * far.
 * 4. It puts the piece into the first round of its chunk that has enough free bytes. Pieces that a
 *    later chunk wants as well have rounds of their own, so that the part of the receive buffer
 *    that outlives a round contains such pieces only.
 * 5. It assigns offsets in the buffers in the order of the pieces, and replaces the copies.
 *
 * The result is the same on every rank because it depends on the arguments only. The
 * planner runs in the thread of its caller, without locks. */

#include "colocate/weights/node_exchange.h"

#include "colocate/layout/model.h"
#include "colocate/weights/convert.h"
#include "colocate/weights/copy_cut.h"
#include "runtime/array_grow.h"
#include "runtime/assert.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

/* Alignment of pieces in the buffers, in bytes. It is that of the largest elements, and a
 * multiple. */
enum { PIECE_ALIGNMENT = 16 };

/* A copy between two nodes. */
struct use {
    const struct tdm__rect_copy *copy; /* Borrowed from the plan. */
    uint32_t node;                     /* First engine rank on the node that wants the copy. */
    uint32_t chunk;                    /* Chunk to which the copy belongs. */
    uint32_t image;                    /* Engine rank into whose image the copy goes. */
    uint32_t index;                    /* Index of the copy in that image. */
};

/* A piece while it is planned. */
struct draft {
    struct tdm__exchange_piece piece; /* What is known of the piece. */
    uint32_t uses_first;              /* Index of the first copy that writes the piece. */
    uint32_t uses_count;              /* Number of consecutive copies that write the piece. */
    uint32_t chunk;                   /* First chunk that needs the piece. */
    uint32_t last_chunk;              /* Last chunk that needs the piece. */
};

/* A part of a receive buffer that keeps pieces for later chunks. */
struct kept_block {
    uint64_t begin;      /* Offset in bytes of the first byte. */
    uint64_t end;        /* Offset in bytes after the last byte. */
    uint32_t carrier;    /* Trainer rank whose buffer it is. */
    uint32_t last_chunk; /* Last chunk that needs the block. */
};

/* State of one planning; it lives on the stack of tdm__node_exchange_create(). */
struct exchange_planner {
    struct tdm__transfer_plan *transfer_plan;         /* Plan whose copies are replaced. */
    const struct tdm__node_exchange_options *options; /* Arguments; borrowed. */
    struct tdm__node_exchange *exchange;              /* Result that is being built. */
    uint64_t round_bytes;                             /* Limit of a round; aligned. */
    struct use *uses;                                 /* All copies between nodes. Owned. */
    uint32_t uses_count;                              /* Number of entries in `uses`. */
    uint32_t uses_capacity;                           /* Number of entries with room. */
    struct draft *drafts;                             /* All pieces. Owned. */
    uint32_t drafts_count;                            /* Number of entries in `drafts`. */
    uint64_t *received; /* Bytes that each trainer rank receives so far. Owned. */
    /* For each round the bytes that each trainer rank sends, then those that each receives.
     * Owned. */
    uint64_t *loads;
    bool *round_keeps;         /* For each round true if later chunks want its pieces. Owned. */
    uint32_t rounds_capacity;  /* Number of rounds for which `loads` has room. */
    struct kept_block *blocks; /* Parts of receive buffers that are in use. Owned. */
    uint32_t blocks_count;     /* Number of entries in `blocks`. */
    uint32_t blocks_capacity;  /* Number of entries for which `blocks` has room. */
};

/* Returns true if a copy goes to another node. */
static bool crosses(const struct tdm__rect_copy *copy)
{
    return copy->locality == TDM__LOCALITY_OTHER_NODE;
}

/* Returns true if the copy writes the FP8 scales of a slice. */
static bool writes_scales(const struct tdm__rect_copy *copy)
{
    return copy->conversion == TDM__CONVERT_SCALES;
}

/* Returns the greater number, at least 1. */
static uint64_t at_least_one(uint64_t number)
{
    return number > 0 ? number : 1;
}

/* ---- pieces -------------------------------------------------------------------------- */

/* Returns the first engine rank on the node of an engine rank. */
static uint32_t node_of(const struct exchange_planner *planner, uint32_t image)
{
    const struct tdm__location *to = planner->options->to_locations;
    uint32_t first = 0;

    while (!tdm__id_equal(&to[first].node, &to[image].node)) {
        first++;
    }
    return first;
}

/* Appends the copies between two nodes of one chunk to `uses`. `like` has the members that they
 * have in common. */
static tdm_status collect_chunk_uses(struct exchange_planner *planner,
                                     const struct tdm__transfer_plan_image *image,
                                     const struct use *like)
{
    const struct tdm__transfer_plan_chunk *about = &image->chunks[like->chunk];

    for (uint32_t i = about->copies_first; i < about->copies_first + about->copies_count; i++) {
        if (crosses(&image->copies[i])) {
            TDM_TRY(tdm__array_grow((void **)&planner->uses, &planner->uses_capacity,
                                    planner->uses_count, sizeof(*planner->uses)));
            TDM_ASSERT(planner->uses != NULL);
            planner->uses[planner->uses_count] = *like;
            planner->uses[planner->uses_count].copy = &image->copies[i];
            planner->uses[planner->uses_count++].index = i;
        }
    }
    return TDM_OK;
}

/* Lists the copies of all images between two nodes. */
static tdm_status collect_uses(struct exchange_planner *planner)
{
    const struct tdm__transfer_plan *transfer_plan = planner->transfer_plan;

    for (uint32_t image = 0; image < transfer_plan->to_count; image++) {
        struct use like = {.node = node_of(planner, image), .image = image};

        for (like.chunk = 0; like.chunk < transfer_plan->chunks_count; like.chunk++) {
            TDM_TRY(collect_chunk_uses(planner, &transfer_plan->images[image], &like));
        }
    }
    return TDM_OK;
}

/* Compares two numbers for qsort(). */
static int compare_numbers(uint64_t one, uint64_t other)
{
    return one < other ? -1 : one > other;
}

/* Compares what two copies bring to which node; 0 if one piece serves both. */
static int compare_contents(const struct use *one, const struct use *other)
{
    const uint64_t keys[][2] = {{one->node, other->node},
                                {one->copy->from_rank, other->copy->from_rank},
                                {one->copy->from_tensor, other->copy->from_tensor},
                                {one->copy->from_offset, other->copy->from_offset},
                                {one->copy->rows, other->copy->rows},
                                {one->copy->columns, other->copy->columns},
                                {one->copy->from_pitch, other->copy->from_pitch},
                                {one->copy->conversion, other->copy->conversion},
                                {one->copy->to_dtype, other->copy->to_dtype}};
    int order = 0;

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]) && order == 0; i++) {
        order = compare_numbers(keys[i][0], keys[i][1]);
    }
    return order;
}

/* Orders copies by their contents, then by chunk, image and index, for qsort(). */
static int compare_uses(const void *a, const void *b)
{
    const struct use *one = a;
    const struct use *other = b;
    int order = compare_contents(one, other);

    order = order != 0 ? order : compare_numbers(one->chunk, other->chunk);
    order = order != 0 ? order : compare_numbers(one->image, other->image);
    return order != 0 ? order : compare_numbers(one->index, other->index);
}

/* Begins a piece with its first copy. */
static struct draft open_draft(const struct use *use, uint32_t index)
{
    struct tdm__strided_rows rows = tdm__convert_written_rows(use->copy);
    struct draft draft = {.piece = {.copy = *use->copy,
                                    .size_bytes = rows.count * rows.size_bytes,
                                    .image = use->image},
                          .uses_first = index,
                          .chunk = use->chunk};

    draft.piece.copy.to_pitch =
        (uint32_t)(rows.size_bytes / tdm_dtype_bytes((enum tdm_dtype)use->copy->to_dtype));
    return draft;
}

/* Makes one piece of all copies with equal contents. */
static tdm_status collect_drafts(struct exchange_planner *planner)
{
    planner->drafts = calloc((size_t)planner->uses_count + 1, sizeof(*planner->drafts));
    if (planner->drafts == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocating %u copies between nodes failed: out of memory",
                         planner->uses_count);
    }
    if (planner->uses_count > 0) {
        qsort(planner->uses, planner->uses_count, sizeof(*planner->uses), compare_uses);
    }
    for (uint32_t i = 0; i < planner->uses_count; i++) {
        const struct use *use = &planner->uses[i];

        if (i == 0 || compare_contents(&use[-1], use) != 0) {
            planner->drafts[planner->drafts_count++] = open_draft(use, i);
        }
        planner->drafts[planner->drafts_count - 1].uses_count++;
        planner->drafts[planner->drafts_count - 1].last_chunk = use->chunk;
    }
    return TDM_OK;
}

/* Orders pieces as the chunks need them, for qsort(). */
static int compare_needs(const void *a, const void *b)
{
    const struct draft *one = a;
    const struct draft *other = b;
    int order = compare_numbers(one->chunk, other->chunk);

    order = order != 0 ? order : compare_numbers(one->piece.image, other->piece.image);
    return order != 0 ? order : compare_numbers(one->uses_first, other->uses_first);
}

/* ---- carriers and rounds ------------------------------------------------------------- */

/* Returns the trainer rank that is nearest to an engine rank; among equals the one of its number or
 * the first. */
static uint32_t nearest_rank(const struct exchange_planner *planner, uint32_t image)
{
    const struct tdm__location *from = planner->options->from_locations;
    const struct tdm__location *to = &planner->options->to_locations[image];
    uint32_t nearest = image % planner->transfer_plan->from_count;

    for (uint32_t rank = 0; rank < planner->transfer_plan->from_count; rank++) {
        if (tdm__location_locality(&from[rank], to) < tdm__location_locality(&from[nearest], to)) {
            nearest = rank;
        }
    }
    return nearest;
}

/* Chooses the carrier of a piece: of the trainer ranks that are nearest to the engine ranks that
 * want it, the one that receives least. */
static tdm_status choose_carrier(struct exchange_planner *planner, struct draft *draft)
{
    for (uint32_t i = 0; i < draft->uses_count; i++) {
        uint32_t image = planner->uses[draft->uses_first + i].image;
        uint32_t rank = nearest_rank(planner, image);

        if (tdm__location_locality(&planner->options->from_locations[rank],
                                   &planner->options->to_locations[image]) ==
            TDM__LOCALITY_OTHER_NODE) {
            return tdm__fail(
                TDM_E_UNSUPPORTED,
                "planning the exchange between nodes failed: engine rank %u is on a node without a "
                "trainer rank, which would write there what %u trainer ranks on other nodes have. "
                "Place a trainer rank on each node with engines",
                image, planner->transfer_plan->from_count);
        }
        if (i == 0 || planner->received[rank] < planner->received[draft->piece.carrier]) {
            draft->piece.carrier = rank;
        }
    }
    planner->received[draft->piece.carrier] += draft->piece.size_bytes;
    return TDM_OK;
}

uint64_t tdm__node_exchange_piece_room(const struct tdm__exchange_piece *piece)
{
    return (piece->size_bytes + PIECE_ALIGNMENT - 1) / PIECE_ALIGNMENT * PIECE_ALIGNMENT;
}

/* Returns the bytes that each rank sends in a round; those that each receives follow. */
static uint64_t *round_loads(const struct exchange_planner *planner, uint32_t round)
{
    return &planner->loads[(size_t)round * 2 * planner->transfer_plan->from_count];
}

/* Opens a further round, which no rank uses yet. */
static tdm_status open_round(struct exchange_planner *planner, bool keeps)
{
    uint32_t round = planner->exchange->rounds_count;
    size_t load_bytes = (size_t)2 * planner->transfer_plan->from_count * sizeof(*planner->loads);
    uint32_t capacity = planner->rounds_capacity;

    TDM_TRY(tdm__array_grow((void **)&planner->loads, &capacity, round, load_bytes));
    TDM_TRY(tdm__array_grow((void **)&planner->round_keeps, &planner->rounds_capacity, round,
                            sizeof(*planner->round_keeps)));
    memset(round_loads(planner, round), 0, load_bytes);
    planner->round_keeps[round] = keeps;
    planner->exchange->rounds_count++;
    return TDM_OK;
}

/* Puts a piece into the first round from `first` on that has room for it, or into a new one. */
static tdm_status choose_round(struct exchange_planner *planner, uint32_t first,
                               struct draft *draft)
{
    uint64_t room = tdm__node_exchange_piece_room(&draft->piece);
    uint32_t from_count = planner->transfer_plan->from_count;
    bool keeps = draft->last_chunk > draft->chunk;
    uint32_t round = first;

    while (
        round < planner->exchange->rounds_count &&
        (planner->round_keeps[round] != keeps ||
         round_loads(planner, round)[draft->piece.copy.from_rank] + room > planner->round_bytes ||
         round_loads(planner, round)[from_count + draft->piece.carrier] + room >
             planner->round_bytes)) {
        round++;
    }
    if (round == planner->exchange->rounds_count) {
        TDM_TRY(open_round(planner, keeps));
    }
    round_loads(planner, round)[draft->piece.copy.from_rank] += room;
    round_loads(planner, round)[from_count + draft->piece.carrier] += room;
    planner->exchange->chunk_keeps[draft->chunk] |= keeps;
    draft->piece.round = round;
    return TDM_OK;
}

/* Gives each piece its carrier and its round, in the order in which the chunks need them. */
static tdm_status assign_rounds(struct exchange_planner *planner)
{
    struct tdm__node_exchange *exchange = planner->exchange;
    uint32_t chunk = 0;

    qsort(planner->drafts, planner->drafts_count, sizeof(*planner->drafts), compare_needs);
    for (uint32_t i = 0; i < planner->drafts_count; i++) {
        struct draft *draft = &planner->drafts[i];

        while (chunk < draft->chunk) {
            exchange->chunk_rounds[++chunk] = exchange->rounds_count;
        }
        TDM_TRY(choose_carrier(planner, draft));
        TDM_TRY(choose_round(planner, exchange->chunk_rounds[chunk], draft));
    }
    while (chunk < planner->transfer_plan->chunks_count) {
        exchange->chunk_rounds[++chunk] = exchange->rounds_count;
    }
    return TDM_OK;
}

/* ---- places in the buffers ----------------------------------------------------------- */

/* Orders pieces by round, sender and carrier, for qsort(). */
static int compare_places(const void *a, const void *b)
{
    const struct draft *one = a;
    const struct draft *other = b;
    int order = compare_numbers(one->piece.round, other->piece.round);

    order = order != 0 ? order
                       : compare_numbers(one->piece.copy.from_rank, other->piece.copy.from_rank);
    order = order != 0 ? order : compare_numbers(one->piece.carrier, other->piece.carrier);
    return order != 0 ? order : compare_numbers(one->uses_first, other->uses_first);
}

/* Returns the first offset from `begin` on at which `size_bytes` bytes of the carrier's buffer are
 * free. */
static uint64_t find_room(const struct exchange_planner *planner, uint32_t carrier,
                          uint64_t size_bytes)
{
    uint64_t begin = 0;
    bool is_free = false;

    while (!is_free) {
        is_free = true;
        for (uint32_t i = 0; i < planner->blocks_count; i++) {
            const struct kept_block *block = &planner->blocks[i];

            if (block->carrier == carrier && block->begin < begin + size_bytes &&
                begin < block->end) {
                begin = block->end;
                is_free = false;
            }
        }
    }
    return begin;
}

/* Removes the blocks that no chunk from `chunk` on needs. */
static void drop_blocks(struct exchange_planner *planner, uint32_t chunk)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < planner->blocks_count; i++) {
        if (planner->blocks[i].last_chunk >= chunk) {
            planner->blocks[count++] = planner->blocks[i];
        }
    }
    planner->blocks_count = count;
}

/* Reserves the part of a carrier's receive buffer for a round of pieces that are needed up to
 * `last_chunk`. */
static tdm_status keep_block(struct exchange_planner *planner, uint32_t carrier, uint64_t begin,
                             uint64_t end, uint32_t last_chunk)
{
    TDM_TRY(tdm__array_grow((void **)&planner->blocks, &planner->blocks_capacity,
                            planner->blocks_count, sizeof(*planner->blocks)));
    planner->blocks[planner->blocks_count++] = (struct kept_block){begin, end, carrier, last_chunk};
    return TDM_OK;
}

/* Gives the pieces from `first` to `end` - 1, those of one round, their places in the receive
 * buffer of one carrier. */
static tdm_status place_received(struct exchange_planner *planner, uint32_t first, uint32_t end,
                                 uint32_t carrier)
{
    uint32_t round = planner->drafts[first].piece.round;
    uint64_t size_bytes = round_loads(planner, round)[planner->transfer_plan->from_count + carrier];
    uint64_t begin = find_room(planner, carrier, size_bytes);
    uint64_t at = begin;
    uint32_t last_chunk = 0;

    for (uint32_t i = first; i < end; i++) {
        struct draft *draft = &planner->drafts[i];

        if (draft->piece.carrier == carrier) {
            draft->piece.receive_offset = at;
            at += tdm__node_exchange_piece_room(&draft->piece);
            last_chunk = draft->last_chunk > last_chunk ? draft->last_chunk : last_chunk;
        }
    }
    if (at > planner->exchange->receive_bytes) {
        planner->exchange->receive_bytes = at;
    }
    return size_bytes > 0 && planner->round_keeps[round]
               ? keep_block(planner, carrier, begin, at, last_chunk)
               : TDM_OK;
}

/* Gives the pieces of one round their places in all buffers. */
static tdm_status place_round(struct exchange_planner *planner, uint32_t first, uint32_t end)
{
    uint64_t at = 0;

    drop_blocks(planner, planner->drafts[first].chunk);
    for (uint32_t i = first; i < end; i++) {
        struct tdm__exchange_piece *piece = &planner->drafts[i].piece;

        if (i > first && piece->copy.from_rank != planner->drafts[i - 1].piece.copy.from_rank) {
            at = 0;
        }
        piece->send_offset = at;
        at += tdm__node_exchange_piece_room(piece);
        if (at > planner->exchange->send_bytes) {
            planner->exchange->send_bytes = at;
        }
    }
    for (uint32_t rank = 0; rank < planner->transfer_plan->from_count; rank++) {
        TDM_TRY(place_received(planner, first, end, rank));
    }
    return TDM_OK;
}

/* Orders the pieces by round and gives them their places. */
static tdm_status place_pieces(struct exchange_planner *planner)
{
    struct tdm__node_exchange *exchange = planner->exchange;
    uint32_t end;

    qsort(planner->drafts, planner->drafts_count, sizeof(*planner->drafts), compare_places);
    exchange->round_firsts =
        calloc((size_t)exchange->rounds_count + 1, sizeof(*exchange->round_firsts));
    exchange->pieces = calloc((size_t)planner->drafts_count + 1, sizeof(*exchange->pieces));
    if (exchange->round_firsts == NULL || exchange->pieces == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocating %u pieces between nodes failed: out of memory",
                         planner->drafts_count);
    }
    for (uint32_t first = 0; first < planner->drafts_count; first = end) {
        uint32_t round = planner->drafts[first].piece.round;

        for (end = first;
             end < planner->drafts_count && planner->drafts[end].piece.round == round;) {
            end++;
        }
        TDM_TRY(place_round(planner, first, end));
        exchange->round_firsts[round + 1] = end;
    }
    for (uint32_t i = 0; i < planner->drafts_count; i++) {
        exchange->pieces[i] = planner->drafts[i].piece;
    }
    exchange->pieces_count = planner->drafts_count;
    return TDM_OK;
}

/* ---- copies -------------------------------------------------------------------------- */

/* Returns the copy by which the carrier writes a piece in place of the copy `crossing`. */
static struct tdm__rect_copy copy_of_carrier(const struct exchange_planner *planner,
                                             const struct tdm__exchange_piece *piece,
                                             uint32_t image, const struct tdm__rect_copy *crossing)
{
    struct tdm__strided_rows rows = tdm__convert_written_rows(crossing);
    size_t element_bytes = tdm_dtype_bytes((enum tdm_dtype)crossing->to_dtype);
    struct tdm__rect_copy copy = *crossing;

    copy.from_rank = piece->carrier;
    copy.from_tensor =
        writes_scales(crossing) ? TDM__TRANSFER_PLAN_RECEIVED_SCALES : TDM__TRANSFER_PLAN_RECEIVED;
    copy.from_offset = piece->receive_offset / element_bytes;
    copy.rows = (uint32_t)rows.count;
    copy.columns = (uint32_t)(rows.size_bytes / element_bytes);
    copy.from_pitch = copy.columns;
    copy.from_dtype = crossing->to_dtype;
    copy.conversion = TDM__CONVERT_NONE;
    copy.locality = tdm__location_locality(&planner->options->from_locations[piece->carrier],
                                           &planner->options->to_locations[image]);
    return copy;
}

/* Replaces all copies between nodes. */
static tdm_status replace_copies(struct exchange_planner *planner)
{
    const struct tdm__transfer_plan *transfer_plan = planner->transfer_plan;
    struct tdm__node_exchange *exchange = planner->exchange;

    for (uint32_t i = 0; i < exchange->images_count; i++) {
        exchange->image_pieces[i] = calloc((size_t)transfer_plan->images[i].copies_count + 1,
                                           sizeof(*exchange->image_pieces[i]));
        if (exchange->image_pieces[i] == NULL) {
            return tdm__fail(TDM_E_NOMEM, "allocating pieces of %u copies failed: out of memory",
                             transfer_plan->images[i].copies_count);
        }
    }
    for (uint32_t i = 0; i < planner->drafts_count; i++) {
        const struct draft *draft = &planner->drafts[i];

        for (uint32_t k = 0; k < draft->uses_count; k++) {
            const struct use *use = &planner->uses[draft->uses_first + k];
            struct tdm__rect_copy *copy = &transfer_plan->images[use->image].copies[use->index];

            *copy = copy_of_carrier(planner, &draft->piece, use->image, copy);
            exchange->image_pieces[use->image][use->index] = i + 1;
        }
    }
    return TDM_OK;
}

/* ---- all ----------------------------------------------------------------------------- */

/* Allocates the arrays whose sizes follow from the plan. */
static tdm_status allocate_arrays(struct exchange_planner *planner)
{
    const struct tdm__transfer_plan *transfer_plan = planner->transfer_plan;
    struct tdm__node_exchange *exchange = planner->exchange;
    size_t chunks_count = transfer_plan->chunks_count;

    planner->received = calloc((size_t)transfer_plan->from_count + 1, sizeof(*planner->received));
    exchange->chunk_rounds = calloc(chunks_count + 1, sizeof(*exchange->chunk_rounds));
    exchange->chunk_keeps = calloc(chunks_count + 1, sizeof(*exchange->chunk_keeps));
    exchange->image_pieces =
        calloc((size_t)transfer_plan->to_count + 1, sizeof(*exchange->image_pieces));
    exchange->images_count = exchange->image_pieces == NULL ? 0 : transfer_plan->to_count;
    return planner->received != NULL && exchange->chunk_rounds != NULL &&
                   exchange->chunk_keeps != NULL && exchange->image_pieces != NULL
               ? TDM_OK
               : tdm__fail(TDM_E_NOMEM,
                           "allocating an exchange of %zu chunks failed: out of memory",
                           chunks_count);
}

/* Runs all steps. */
static tdm_status plan_exchange(struct exchange_planner *planner)
{
    TDM_TRY(allocate_arrays(planner));
    TDM_TRY(tdm__copy_cut(planner->transfer_plan, planner->round_bytes));
    TDM_TRY(collect_uses(planner));
    TDM_TRY(collect_drafts(planner));
    TDM_TRY(assign_rounds(planner));
    TDM_TRY(place_pieces(planner));
    return replace_copies(planner);
}

tdm_status tdm__node_exchange_create(struct tdm__transfer_plan *transfer_plan,
                                     const struct tdm__node_exchange_options *options,
                                     struct tdm__node_exchange **exchange_out)
{
    struct tdm__node_exchange *exchange = calloc(1, sizeof(*exchange));
    struct exchange_planner planner = {
        .transfer_plan = transfer_plan,
        .options = options,
        .exchange = exchange,
        .round_bytes = at_least_one(options->round_bytes / PIECE_ALIGNMENT) * PIECE_ALIGNMENT};
    tdm_status status;

    if (exchange == NULL) {
        return tdm__fail(TDM_E_NOMEM, "allocating an exchange between nodes failed: out of memory");
    }
    status = plan_exchange(&planner);
    free(planner.uses);
    free(planner.drafts);
    free(planner.received);
    free(planner.loads);
    free(planner.round_keeps);
    free(planner.blocks);
    if (status != TDM_OK) {
        tdm__node_exchange_destroy(exchange);
        return status;
    }
    *exchange_out = exchange;
    return TDM_OK;
}

void tdm__node_exchange_destroy(struct tdm__node_exchange *exchange)
{
    if (exchange == NULL) {
        return;
    }
    for (uint32_t i = 0; i < exchange->images_count; i++) {
        free(exchange->image_pieces[i]);
    }
    free(exchange->image_pieces);
    free(exchange->pieces);
    free(exchange->round_firsts);
    free(exchange->chunk_rounds);
    free(exchange->chunk_keeps);
    free(exchange);
}

uint32_t tdm__node_exchange_rounds(const struct tdm__node_exchange *exchange, uint32_t chunk)
{
    return exchange == NULL ? 0 : exchange->chunk_rounds[chunk + 1] - exchange->chunk_rounds[chunk];
}
