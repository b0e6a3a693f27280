/* reshard.c - from one layout into another: who copies which rectangle where, compiled once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/plan/reshard.h"

#include "colocate/plan/grow.h"
#include "colocate/plan/sources.h"
#include "runtime/assert.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

enum { STAGING_ALIGNMENT = 256, SHARE_BYTES = 16 << 20 };

#define NO_TENSOR (TDM__STAGING - 1) /* that no copy writes */

/* Every piece of the destination is walked through twice: first only to count what sources have
 * to send because nobody else can, so that those with a choice know it before they choose. */
struct compiler {
    struct tdm__reshard *reshard;
    struct tdm__sources sources;
    uint64_t *sent_bytes; /* of each source rank, over links */
    bool counts_only;
    uint32_t rank; /* of the destination */
    struct tdm__rank_plan plan;
    uint32_t copies_room;
    uint32_t passes_room;
    uint32_t scales_room;
};

/* ---- lists that grow -------------------------------------------------------------------- */

static tdm_status add_copy(struct compiler *compiler, const struct tdm__copy *copy)
{
    struct tdm__rank_plan *plan = &compiler->plan;

    if (plan->copies_count > 0 &&
        tdm__copy_merge(&plan->copies[plan->copies_count - 1], copy)) {
        return TDM_OK;
    }
    TDM_TRY(tdm__grow((void **)&plan->copies, &compiler->copies_room, plan->copies_count,
                      sizeof(*copy)));
    plan->copies[plan->copies_count++] = *copy;
    return TDM_OK;
}

static tdm_status add_pass(struct compiler *compiler, const struct tdm__copy *pass)
{
    struct tdm__rank_plan *plan = &compiler->plan;

    TDM_TRY(tdm__grow((void **)&plan->passes, &compiler->passes_room, plan->passes_count,
                      sizeof(*pass)));
    plan->passes[plan->passes_count++] = *pass;
    return TDM_OK;
}

static tdm_status add_scales(struct compiler *compiler, const struct tdm__copy_scales *scales)
{
    struct tdm__rank_plan *plan = &compiler->plan;

    TDM_TRY(tdm__grow((void **)&plan->scales, &compiler->scales_room, plan->scales_count,
                      sizeof(*scales)));
    plan->scales[plan->scales_count++] = *scales;
    return TDM_OK;
}

/* ---- who sends -------------------------------------------------------------------------- */

static enum tdm__edge edge_from(const struct compiler *compiler, uint32_t from_rank)
{
    const struct tdm__rank_place *from = &compiler->reshard->from.places[from_rank];
    const struct tdm__rank_place *to = &compiler->reshard->to.places[compiler->rank];

    if (from->node != to->node) {
        return TDM__EDGE_OTHER_NODE;
    }
    return from->gpu == to->gpu ? TDM__EDGE_SAME_GPU : TDM__EDGE_SAME_NODE;
}

struct choice {
    const struct tdm__holder *holder;
    enum tdm__edge edge;
    bool was_free; /* there was another one as near */
};

/* A rectangle that may be one with the last one copied. */
static bool continues(const struct compiler *compiler, const struct tdm__holder *holder,
                      uint32_t to_tensor)
{
    const struct tdm__rank_plan *plan = &compiler->plan;
    const struct tdm__copy *last;

    if (plan->copies_count == 0) {
        return false;
    }
    last = &plan->copies[plan->copies_count - 1];
    return last->to_tensor == to_tensor && last->from_rank == holder->rank &&
           last->from_tensor == holder->local;
}

/* `to_tensor` is where the last copy's source is better kept to than an idle one. */
static struct choice choose(const struct compiler *compiler, const struct tdm__holder *holders,
                            uint32_t count, uint32_t to_tensor)
{
    struct choice choice = {holders, edge_from(compiler, holders->rank), false};
    bool is_settled = continues(compiler, holders, to_tensor);

    for (uint32_t i = 1; i < count; i++) {
        const struct tdm__holder *holder = &holders[i];
        enum tdm__edge edge = edge_from(compiler, holder->rank);
        bool goes_on = continues(compiler, holder, to_tensor);

        if (edge > choice.edge) {
            continue;
        }
        choice.was_free = edge == choice.edge;
        if (edge < choice.edge || goes_on ||
            (!is_settled &&
             compiler->sent_bytes[holder->rank] < compiler->sent_bytes[choice.holder->rank])) {
            choice.holder = holder;
            choice.edge = edge;
            is_settled = goes_on;
        }
    }
    return choice;
}

/* ---- one piece -------------------------------------------------------------------------- */

/* A piece of the destination on its way into the plan. */
struct need {
    const struct tdm__piece *piece;
    const struct tdm__piece *scale; /* NULL where it has none */
    uint8_t dtype;
    uint8_t from_dtype;
    uint8_t convert;
    bool is_staged;
    uint64_t staging_offset;
};

static uint64_t part_bytes(const struct need *need, const struct tdm__rectangle *part)
{
    return (uint64_t)part->rows * part->columns *
           tdm_dtype_bytes((enum tdm_dtype)need->from_dtype);
}

static bool intersect(const struct tdm__rectangle *one, const struct tdm__rectangle *other,
                      struct tdm__rectangle *both_out)
{
    uint32_t row = one->row > other->row ? one->row : other->row;
    uint32_t column = one->column > other->column ? one->column : other->column;
    uint32_t row_end = one->row + one->rows;
    uint32_t column_end = one->column + one->columns;

    row_end = row_end < other->row + other->rows ? row_end : other->row + other->rows;
    column_end = column_end < other->column + other->columns ? column_end
                                                             : other->column + other->columns;
    if (row >= row_end || column >= column_end) {
        return false;
    }
    *both_out = (struct tdm__rectangle){row, column, row_end - row, column_end - column};
    return true;
}

static tdm_status find_conversion(const struct compiler *compiler, struct need *need)
{
    bool from_float = need->from_dtype == TDM_F32 || need->from_dtype == TDM_BF16;

    if (need->from_dtype == need->dtype) {
        need->convert = TDM__CONVERT_NONE;
    } else if (need->from_dtype == TDM_F32 && need->dtype == TDM_BF16) {
        need->convert = TDM__CONVERT_BF16;
    } else if (from_float && need->dtype == TDM_F8_E4M3) {
        need->convert = TDM__CONVERT_FP8;
    } else {
        char name[TDM_TENSOR_NAME_BYTES_MAX];

        return tdm__fail(TDM_E_UNSUPPORTED, "%s: %s is not converted to %s",
                         tdm__model_name(compiler->reshard->model, need->piece->tensor, name),
                         tdm_dtype_name((enum tdm_dtype)need->from_dtype),
                         tdm_dtype_name((enum tdm_dtype)need->dtype));
    }
    return TDM_OK;
}

/* Does the part consist of whole blocks of the piece?  The piece itself begins with one. */
static bool is_of_blocks(const struct tdm__rectangle *part, const struct tdm__rectangle *whole)
{
    uint32_t row_end = part->row + part->rows;
    uint32_t column_end = part->column + part->columns;

    return part->row % TDM__FP8_BLOCK == 0 && part->column % TDM__FP8_BLOCK == 0 &&
           (row_end % TDM__FP8_BLOCK == 0 || row_end == whole->row + whole->rows) &&
           (column_end % TDM__FP8_BLOCK == 0 || column_end == whole->column + whole->columns);
}

static tdm_status place_scales(struct compiler *compiler, const struct need *need,
                               const struct tdm__rectangle *part, struct tdm__copy *copy)
{
    const struct tdm__rectangle *whole = &need->piece->rectangle;
    uint64_t row = (part->row - whole->row) / TDM__FP8_BLOCK;
    uint64_t column = (part->column - whole->column) / TDM__FP8_BLOCK;
    const struct tdm__copy_scales scales = {
        .offset = need->scale->offset + row * need->scale->pitch + column,
        .tensor = need->scale->local,
        .pitch = need->scale->pitch,
    };

    copy->scales = compiler->plan.scales_count;
    return add_scales(compiler, &scales);
}

static tdm_status emit(struct compiler *compiler, const struct need *need,
                       const struct choice *choice, const struct tdm__rectangle *part)
{
    const struct tdm__rectangle *held = &choice->holder->rectangle;
    const struct tdm__rectangle *whole = &need->piece->rectangle;
    uint64_t row = part->row - whole->row;
    uint64_t column = part->column - whole->column;
    struct tdm__copy copy = {
        .from_offset = choice->holder->offset +
                       (uint64_t)(part->row - held->row) * choice->holder->pitch +
                       (part->column - held->column),
        .to_offset = need->piece->offset + row * need->piece->pitch + column,
        .from_rank = choice->holder->rank,
        .from_tensor = choice->holder->local,
        .to_tensor = need->piece->local,
        .rows = part->rows,
        .columns = part->columns,
        .from_pitch = choice->holder->pitch,
        .to_pitch = need->piece->pitch,
        .convert = need->convert,
        .edge = (uint8_t)choice->edge,
        .from_dtype = need->from_dtype,
        .to_dtype = need->dtype,
    };

    if (need->is_staged) {
        copy.to_offset =
            need->staging_offset +
            (row * whole->columns + column) * tdm_dtype_bytes((enum tdm_dtype)need->from_dtype);
        copy.to_tensor = TDM__STAGING;
        copy.to_pitch = whole->columns;
        copy.to_dtype = need->from_dtype;
        copy.convert = TDM__CONVERT_NONE;
    }
    if (copy.convert == TDM__CONVERT_FP8) {
        TDM_TRY(place_scales(compiler, need, part, &copy));
    } else {
        tdm__copy_flatten(&copy);
    }
    return add_copy(compiler, &copy);
}

/* Memory for a piece whose blocks come in parts, and the pass that converts it when it is
 * complete. */
static tdm_status stage(struct compiler *compiler, struct need *need)
{
    const struct tdm__rectangle *whole = &need->piece->rectangle;
    uint64_t size_bytes = (uint64_t)whole->rows * whole->columns *
                          tdm_dtype_bytes((enum tdm_dtype)need->from_dtype);
    struct tdm__copy pass = {
        .from_offset = compiler->plan.staging_bytes,
        .to_offset = need->piece->offset,
        .from_rank = compiler->rank,
        .from_tensor = TDM__STAGING,
        .to_tensor = need->piece->local,
        .rows = whole->rows,
        .columns = whole->columns,
        .from_pitch = whole->columns,
        .to_pitch = need->piece->pitch,
        .convert = need->convert,
        .edge = TDM__EDGE_SAME_GPU,
        .from_dtype = need->from_dtype,
        .to_dtype = need->dtype,
    };

    need->staging_offset = compiler->plan.staging_bytes;
    compiler->plan.staging_bytes +=
        (size_bytes + STAGING_ALIGNMENT - 1) / STAGING_ALIGNMENT * STAGING_ALIGNMENT;
    TDM_TRY(place_scales(compiler, need, whole, &pass));
    return add_pass(compiler, &pass);
}

static tdm_status serve_by(struct compiler *compiler, const struct need *need,
                           const struct choice *choice, const struct tdm__rectangle *part)
{
    if (choice->edge != TDM__EDGE_SAME_GPU && choice->was_free != compiler->counts_only) {
        compiler->sent_bytes[choice->holder->rank] += part_bytes(need, part);
    }
    return compiler->counts_only ? TDM_OK : emit(compiler, need, choice, part);
}

/* A large part that several could send is shared out, by rows. */
static tdm_status serve_part(struct compiler *compiler, const struct need *need,
                             const struct tdm__holder *holders, uint32_t replicas,
                             const struct tdm__rectangle *part)
{
    struct choice choice = choose(compiler, holders, replicas, need->piece->local);
    uint64_t row_bytes = part_bytes(need, part) / part->rows;
    uint64_t share_rows = SHARE_BYTES / row_bytes / TDM__FP8_BLOCK * TDM__FP8_BLOCK;
    uint32_t end = part->row + part->rows;
    struct tdm__rectangle share = *part;

    if (choice.edge == TDM__EDGE_SAME_GPU || !choice.was_free || share_rows == 0 ||
        share_rows >= part->rows) {
        return serve_by(compiler, need, &choice, part);
    }
    for (; share.row < end; share.row += share.rows) {
        share.rows = end - share.row < share_rows ? end - share.row : (uint32_t)share_rows;
        choice = choose(compiler, holders, replicas, NO_TENSOR);
        TDM_TRY(serve_by(compiler, need, &choice, &share));
    }
    return TDM_OK;
}

/* Whether the holders have all of the piece, and whether its blocks come in parts. */
static tdm_status check_holders(const struct compiler *compiler, struct need *need,
                                const struct tdm__holder *holders,
                                const struct tdm__holder *end)
{
    const struct tdm__rectangle *whole = &need->piece->rectangle;
    uint64_t wanted = (uint64_t)whole->rows * whole->columns;
    uint64_t held = 0;

    while (holders < end) {
        struct tdm__rectangle part;

        if (intersect(&holders->rectangle, whole, &part)) {
            held += (uint64_t)part.rows * part.columns;
            need->is_staged |= need->convert == TDM__CONVERT_FP8 && !is_of_blocks(&part, whole);
        }
        holders += tdm__sources_replicas(holders, end);
    }
    if (held != wanted) {
        char name[TDM_TENSOR_NAME_BYTES_MAX];

        return tdm__fail(TDM_E_INVAL,
                         "%s: of the %llu elements at row %u, column %u that rank %u of the "
                         "destination wants, the source holds %llu",
                         tdm__model_name(compiler->reshard->model, need->piece->tensor, name),
                         (unsigned long long)wanted, whole->row, whole->column, compiler->rank,
                         (unsigned long long)held);
    }
    return TDM_OK;
}

static tdm_status serve_piece(struct compiler *compiler, const struct tdm__shards *shards,
                              const struct tdm__piece *piece)
{
    const struct tdm__sources *sources = &compiler->sources;
    const struct tdm__holder *holder = sources->holders + sources->firsts[piece->tensor];
    const struct tdm__holder *end = sources->holders + sources->firsts[piece->tensor + 1];
    struct need need = {
        .piece = piece,
        .scale = piece->scale == TDM__NO_PIECE ? NULL : &shards->pieces[piece->scale],
        .dtype = shards->locals[piece->local].dtype,
        .from_dtype = holder < end ? holder->dtype : shards->locals[piece->local].dtype,
    };

    if (holder == end &&
        compiler->reshard->model->tensors[piece->tensor].kind == TDM__KIND_SCALE) {
        return TDM_OK; /* they are made where the tensor before them is converted */
    }
    TDM_TRY(find_conversion(compiler, &need));
    TDM_TRY(check_holders(compiler, &need, holder, end));
    if (need.is_staged && !compiler->counts_only) {
        TDM_TRY(stage(compiler, &need));
    }
    while (holder < end) {
        uint32_t replicas = tdm__sources_replicas(holder, end);
        struct tdm__rectangle part;

        if (intersect(&holder->rectangle, &piece->rectangle, &part)) {
            TDM_TRY(serve_part(compiler, &need, holder, replicas, &part));
        }
        holder += replicas;
    }
    return TDM_OK;
}

/* ---- all -------------------------------------------------------------------------------- */

static void rank_plan_fini(struct tdm__rank_plan *plan)
{
    free(plan->copies);
    free(plan->passes);
    free(plan->scales);
    *plan = (struct tdm__rank_plan){.copies = NULL};
}

/* Gives back what a list has more than it uses; if that fails it is as good as before. */
static void *shrink(void *items, uint32_t count, size_t item_bytes)
{
    void *shrunk = count > 0 ? realloc(items, count * item_bytes) : NULL;

    return shrunk != NULL ? shrunk : items;
}

static tdm_status serve_rank(struct compiler *compiler, uint32_t rank)
{
    const struct tdm__shards *shards = &compiler->reshard->to_shards[rank];
    struct tdm__rank_plan *plan = &compiler->plan;

    compiler->rank = rank;
    compiler->plan = (struct tdm__rank_plan){.copies = NULL};
    compiler->copies_room = 0;
    compiler->passes_room = 0;
    compiler->scales_room = 0;
    for (uint32_t i = 0; i < shards->pieces_count; i++) {
        tdm_status status = serve_piece(compiler, shards, &shards->pieces[i]);

        if (status != TDM_OK) {
            rank_plan_fini(plan);
            return status;
        }
    }
    plan->copies = shrink(plan->copies, plan->copies_count, sizeof(*plan->copies));
    plan->passes = shrink(plan->passes, plan->passes_count, sizeof(*plan->passes));
    plan->scales = shrink(plan->scales, plan->scales_count, sizeof(*plan->scales));
    compiler->reshard->ranks[rank] = *plan;
    return TDM_OK;
}

static void add_rank_cost(struct compiler *compiler, uint32_t rank)
{
    struct tdm__reshard_cost *cost = &compiler->reshard->cost;
    const struct tdm__shards *shards = &compiler->reshard->to_shards[rank];
    const struct tdm__rank_plan *plan = &compiler->reshard->ranks[rank];
    uint64_t received_bytes = 0;

    for (uint32_t i = 0; i < plan->copies_count; i++) {
        const struct tdm__copy *copy = &plan->copies[i];
        uint64_t size_bytes = tdm__copy_bytes(copy);

        cost->edge_bytes[copy->edge] += size_bytes;
        cost->edge_copies[copy->edge]++;
        if (copy->edge != TDM__EDGE_SAME_GPU) {
            compiler->sent_bytes[copy->from_rank] += size_bytes;
            received_bytes += size_bytes;
        }
    }
    for (uint32_t i = 0; i < shards->pieces_count; i++) {
        const struct tdm__piece *piece = &shards->pieces[i];

        cost->written_bytes +=
            (uint64_t)piece->rectangle.rows * piece->rectangle.columns *
            tdm_dtype_bytes((enum tdm_dtype)shards->locals[piece->local].dtype);
    }
    if (received_bytes > cost->received_bytes_max) {
        cost->received_bytes_max = received_bytes;
    }
    if (plan->staging_bytes > cost->staging_bytes_max) {
        cost->staging_bytes_max = plan->staging_bytes;
    }
    if (plan->copies_count + plan->passes_count > cost->copies_max) {
        cost->copies_max = plan->copies_count + plan->passes_count;
    }
}

static void add_cost(struct compiler *compiler)
{
    struct tdm__reshard *reshard = compiler->reshard;
    uint32_t from_ranks = reshard->from.sharding->ranks_count;

    memset(compiler->sent_bytes, 0, from_ranks * sizeof(*compiler->sent_bytes));
    for (uint32_t rank = 0; rank < reshard->to.sharding->ranks_count; rank++) {
        add_rank_cost(compiler, rank);
    }
    reshard->cost.sent_bytes_min = UINT64_MAX;
    for (uint32_t rank = 0; rank < from_ranks; rank++) {
        uint64_t sent_bytes = compiler->sent_bytes[rank];

        if (sent_bytes < reshard->cost.sent_bytes_min) {
            reshard->cost.sent_bytes_min = sent_bytes;
        }
        if (sent_bytes > reshard->cost.sent_bytes_max) {
            reshard->cost.sent_bytes_max = sent_bytes;
        }
    }
}

static tdm_status make_side(const struct tdm__model *model, const struct tdm__side *side,
                            enum tdm__role role, struct tdm__shards **shards_out)
{
    struct tdm__shards *shards;

    TDM_TRY(tdm__sharding_check(side->sharding));
    shards = calloc(side->sharding->ranks_count, sizeof(*shards));
    if (shards == NULL) {
        return tdm__fail(TDM_E_NOMEM, "shards of %u ranks", side->sharding->ranks_count);
    }
    *shards_out = shards; /* from here on destroyed with the plan */
    for (uint32_t rank = 0; rank < side->sharding->ranks_count; rank++) {
        TDM_TRY(tdm__shards_make(model, side->sharding, rank, role, &shards[rank]));
    }
    return TDM_OK;
}

static void drop_pieces(struct tdm__shards *shards, uint32_t ranks_count)
{
    for (uint32_t rank = 0; rank < ranks_count; rank++) {
        free(shards[rank].pieces);
        shards[rank].pieces = NULL;
        shards[rank].pieces_count = 0;
    }
}

static tdm_status serve_all(struct compiler *compiler)
{
    struct tdm__reshard *reshard = compiler->reshard;

    for (int pass = 0; pass < 2; pass++) {
        compiler->counts_only = pass == 0;
        for (uint32_t rank = 0; rank < reshard->to.sharding->ranks_count; rank++) {
            TDM_TRY(serve_rank(compiler, rank));
        }
    }
    add_cost(compiler);
    return TDM_OK;
}

static tdm_status compile(struct tdm__reshard *reshard)
{
    uint32_t from_ranks = reshard->from.sharding->ranks_count;
    uint32_t to_ranks = reshard->to.sharding->ranks_count;
    struct compiler compiler = {.reshard = reshard};
    tdm_status status;

    TDM_TRY(make_side(reshard->model, &reshard->from, TDM__ROLE_SOURCE, &reshard->from_shards));
    TDM_TRY(
        tdm__sources_make(reshard->model, reshard->from_shards, from_ranks, &compiler.sources));
    drop_pieces(reshard->from_shards, from_ranks);
    status =
        make_side(reshard->model, &reshard->to, TDM__ROLE_DESTINATION, &reshard->to_shards);
    compiler.sent_bytes = calloc(from_ranks, sizeof(*compiler.sent_bytes));
    reshard->ranks = calloc(to_ranks, sizeof(*reshard->ranks));
    if (status == TDM_OK && (compiler.sent_bytes == NULL || reshard->ranks == NULL)) {
        status = tdm__fail(TDM_E_NOMEM, "a plan from %u to %u ranks", from_ranks, to_ranks);
    }
    if (status == TDM_OK) {
        status = serve_all(&compiler);
        drop_pieces(reshard->to_shards, to_ranks);
    }
    free(compiler.sent_bytes);
    tdm__sources_fini(&compiler.sources);
    return status;
}

tdm_status tdm__reshard_create(const struct tdm__model *model, const struct tdm__side *from,
                               const struct tdm__side *to, struct tdm__reshard **reshard_out)
{
    struct tdm__reshard *reshard = calloc(1, sizeof(*reshard));
    tdm_status status;

    if (reshard == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a plan");
    }
    reshard->model = model;
    reshard->from = *from;
    reshard->to = *to;
    status = compile(reshard);
    if (status != TDM_OK) {
        tdm__reshard_destroy(reshard);
        return status;
    }
    *reshard_out = reshard;
    return TDM_OK;
}

static void destroy_side(struct tdm__shards *shards, uint32_t ranks_count)
{
    for (uint32_t rank = 0; shards != NULL && rank < ranks_count; rank++) {
        tdm__shards_fini(&shards[rank]);
    }
    free(shards);
}

void tdm__reshard_destroy(struct tdm__reshard *reshard)
{
    if (reshard == NULL) {
        return;
    }
    destroy_side(reshard->from_shards, reshard->from.sharding->ranks_count);
    destroy_side(reshard->to_shards, reshard->to.sharding->ranks_count);
    for (uint32_t rank = 0; reshard->ranks != NULL && rank < reshard->to.sharding->ranks_count;
         rank++) {
        rank_plan_fini(&reshard->ranks[rank]);
    }
    free(reshard->ranks);
    free(reshard);
}
