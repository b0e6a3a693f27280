/* placement.c - pure functions that choose nodes and GPUs for actors and bundles. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The search of tdm__placement_choose_all() is a depth-first search on copies of the nodes' pools.
 * Bundles are placed from the largest to the smallest, and the candidates of each bundle are tried
 * in the order of their ranks. The greedy descent is the first path of this search; backtracking
 * continues it until SEARCH_VISITS_MAX nodes have been examined.
 *
 * If no placement exists now, the search is repeated with empty pools: its result decides between
 * TDM_E_AGAIN and TDM_E_NO_RESOURCES. tdm__placement_choose_one() needs no search: it takes the
 * best fitting node. All functions are pure, so any thread may call them. placement.h specifies the
 * results. */

#include "scheduler/placement.h"

#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/splitmix.h"

#include <stdlib.h>
#include <string.h>

/* Limits of the search and of error messages. */
enum {
    /* Number of nodes that the search examines after its first path failed, about 30 ms. */
    SEARCH_VISITS_MAX = 1000000,
    WIDTH_LOG_MAX = 10,      /* Binary logarithm of the largest width of a chance. */
    NODES_DESCRIBED_MAX = 8, /* Largest number of nodes whose resources an error message lists. */
    TEXT_BYTES = 480         /* Size in bytes of each list in an error message. */
};

/* Result of a search for a placement. */
enum search_outcome {
    SEARCH_FOUND,      /* The search found a placement for all bundles. */
    SEARCH_IMPOSSIBLE, /* The search has shown that no placement exists. */
    SEARCH_GAVE_UP     /* The search has reached its limit without a result. */
};

/* Rank of a candidate, which is a node or a GPU of a node. The candidate with the smallest rank is
 * tried first. Node and GPU make the order strict. */
struct rank {
    int64_t score[3]; /* Criteria of the strategy, the most important first; smaller is better. */
    uint32_t order;   /* Position of the candidate's node in the order of equal nodes. */
    uint32_t node;    /* Index of the candidate's node. */
    /* Free amount of the candidate's GPU; 0 unless the request is a fraction of a GPU. */
    int64_t gpu_free;
    uint32_t gpu; /* Index of the candidate's GPU; 0 unless the request is a fraction of a GPU. */
};

/* One level of the depth-first search: where the bundle of this level is placed now. */
struct frame {
    /* Rank of the candidate that the bundle has now; later candidates have larger ranks. */
    struct rank rank;
    struct tdm__bundle_placement placement; /* Node and resources that the bundle has now. */
};

/* State of a depth-first search. Whenever the search returns to a depth, the pools and thus the
 * ranks are the same as before. So the next candidate is the one with the smallest rank above the
 * last one. */
struct search {
    /* Resources of each node that are still free at the current depth (owned). */
    struct tdm__pool *pools;
    uint32_t *loads; /* For each node the number of the group's bundles on it (owned). */
    /* Indices of the bundles from the largest to the smallest, equal bundles adjacent (owned). */
    uint32_t *order;
    /* One frame for each bundle, in the order in which bundles are placed (owned). */
    struct frame *frames;
    const struct tdm__resources *bundles; /* Requested bundles (borrowed). */
    uint32_t nodes_count;                 /* Number of nodes among which to choose. */
    uint32_t bundles_count;               /* Number of bundles to place. */
    enum tdm_placement_strategy strategy; /* How the bundles are distributed over the nodes. */
    /* Index of the only node that may be used; nodes_count if all may be used. */
    uint32_t only_node;
    uint64_t visits_left; /* Number of nodes that the search may still examine. */
    uint32_t first;       /* Index of the first of equal nodes. */
    /* Number of nodes with enough for all bundles that the search for one node tries last. */
    uint32_t skip;
    int64_t cpu_wanted; /* CPUs of all bundles together, in units of 1/10,000. */
    int64_t gpu_wanted; /* GPUs of all bundles together, in units of 1/10,000. */
};

struct tdm__placement_chance tdm__placement_chance_of(const struct tdm__id *chooser,
                                                      uint64_t losses, uint32_t spread)
{
    uint64_t number;

    memcpy(&number, chooser->bytes, sizeof(number));
    return (struct tdm__placement_chance){
        .width = 1u << (spread < WIDTH_LOG_MAX ? spread : WIDTH_LOG_MAX),
        .seed = tdm__splitmix64(number, losses / 2)};
}

/* ---- candidates ------------------------------------------------------------------------- */

/* Returns a negative number, 0 or a positive number if `a` is less than, equal to or greater than
 * `b`. */
static int compare_int64(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* Orders the ranks of two candidates by score, free amount of the GPU, node and GPU. */
static int compare_ranks(const struct rank *a, const struct rank *b)
{
    int order = 0;

    for (int i = 0; i < 3 && order == 0; i++) {
        order = compare_int64(a->score[i], b->score[i]);
    }
    order = order != 0 ? order : compare_int64(a->order, b->order);
    order = order != 0 ? order : compare_int64(a->gpu_free, b->gpu_free);
    return order != 0 ? order : compare_int64(a->gpu, b->gpu);
}

/* Returns the sum of the free amounts of a node's GPUs, in units of 1/10,000. */
static int64_t gpus_free(const struct tdm__pool *pool)
{
    int64_t sum = 0;

    for (uint32_t i = 0; i < pool->gpus_count; i++) {
        sum += pool->gpus[i].free;
    }
    return sum;
}

/* Computes the rank of a node as a candidate, by the strategy of the search. */
static struct rank rank_of_node(const struct search *search, uint32_t node)
{
    struct rank rank = {
        .node = node, .order = (node + search->nodes_count - search->first) % search->nodes_count};

    if (search->strategy == TDM_SPREAD) {
        rank.score[0] = search->loads[node];
        /* Among unused nodes, the one with the most free resources comes first. */
    } else if (search->loads[node] == 0) {
        rank.score[0] = 1;
        rank.score[1] = -gpus_free(&search->pools[node]);
        rank.score[2] = -search->pools[node].cpu.free;
    }
    return rank;
}

/* Returns whether an earlier GPU of the node has the same free amount. Then both GPUs lead to the
 * same results, and the search skips this one. */
static bool has_equal_gpu_before(const struct tdm__pool *pool, uint32_t gpu)
{
    for (uint32_t i = 0; i < gpu; i++) {
        if (pool->gpus[i].free == pool->gpus[gpu].free) {
            return true;
        }
    }
    return false;
}

/* Replaces `best` by `rank` if `rank` is smaller than `best` and larger than `last`. NULL for
 * `last` means no lower bound. */
static void rank_offer(const struct rank *rank, const struct rank *last, struct rank *best,
                       bool *found)
{
    if (last != NULL && compare_ranks(rank, last) <= 0) {
        return;
    }
    if (!*found || compare_ranks(rank, best) < 0) {
        *best = *rank;
        *found = true;
    }
}

/* Replaces `best` by the best rank of a candidate on one node: the node itself, or each of its GPUs
 * for a fraction of a GPU. */
static void rank_offer_node(const struct search *search, uint32_t node,
                            const struct tdm__resources *wanted, const struct rank *last,
                            struct rank *best, bool *found)
{
    const struct tdm__pool *pool = &search->pools[node];
    struct rank rank;

    if (search->strategy == TDM_STRICT_SPREAD && search->loads[node] > 0) {
        return;
    }
    if (!tdm__pool_fits(pool, wanted)) {
        return;
    }
    rank = rank_of_node(search, node);
    if (wanted->gpu == 0 || wanted->gpu >= TDM__RESOURCE_ONE) {
        rank_offer(&rank, last, best, found);
        return;
    }
    for (uint32_t gpu = 0; gpu < pool->gpus_count; gpu++) {
        if (pool->gpus[gpu].free >= wanted->gpu && !has_equal_gpu_before(pool, gpu)) {
            rank.gpu = gpu;
            rank.gpu_free = pool->gpus[gpu].free;
            rank_offer(&rank, last, best, found);
        }
    }
}

/* ---- the search ------------------------------------------------------------------------- */

/* Returns the bundle that the search places at this depth. */
static const struct tdm__resources *bundle_at(const struct search *search, uint32_t depth)
{
    return &search->bundles[search->order[depth]];
}

/* Places the bundle of this depth on its first candidate, or on the next one. Returns false if
 * there are no more candidates. */
static bool place_bundle(struct search *search, uint32_t depth, bool is_first)
{
    struct frame *frame = &search->frames[depth];
    const struct tdm__resources *wanted = bundle_at(search, depth);
    const struct rank *last = is_first ? NULL : &frame->rank;
    uint32_t begin = search->only_node < search->nodes_count ? search->only_node : 0;
    uint32_t end = search->only_node < search->nodes_count ? begin + 1 : search->nodes_count;
    struct rank best;
    bool found = false;
    bool taken;

    for (uint32_t node = begin; node < end; node++) {
        rank_offer_node(search, node, wanted, last, &best, &found);
    }
    search->visits_left -= search->visits_left < end - begin ? search->visits_left : end - begin;
    if (!found) {
        return false;
    }
    taken = tdm__pool_allocate_on_gpu(&search->pools[best.node], wanted, best.gpu,
                                      &frame->placement.grant);
    TDM_ASSERT(taken);
    frame->rank = best;
    frame->placement.node = best.node;
    search->loads[best.node]++;
    return true;
}

/* Takes the bundle of this depth off its node, which undoes place_bundle(). */
static void unplace_bundle(struct search *search, uint32_t depth)
{
    const struct tdm__bundle_placement *placement = &search->frames[depth].placement;
    tdm_status status = tdm__pool_release_grant(&search->pools[placement->node], &placement->grant);

    TDM_ASSERT(status == TDM_OK);
    search->loads[placement->node]--;
}

/* Returns the first depth of the run of equal bundles that includes `depth`. */
static uint32_t run_begin(const struct search *search, uint32_t depth)
{
    while (depth > 0 &&
           tdm__resources_equal(bundle_at(search, depth - 1), bundle_at(search, depth))) {
        depth--;
    }
    return depth;
}

/* Places all bundles in a depth-first search with backtracking, on all nodes or on `only_node`. On
 * failure no bundle is placed. */
static enum search_outcome search_descend(struct search *search)
{
    uint32_t depth = 0;
    bool is_first = true;

    while (depth < search->bundles_count) {
        uint32_t retreat = depth;

        if (place_bundle(search, depth, is_first)) {
            depth++;
            is_first = true;
            continue;
        }
        /* How many equal bundles fit does not depend on the placement of the first of them. So if a
         * bundle has no candidate at all, the search returns to before the run of equal bundles. */
        if (is_first) {
            retreat = run_begin(search, depth);
        }
        if (retreat == 0 || search->visits_left == 0) {
            while (depth > 0) {
                unplace_bundle(search, --depth);
            }
            return retreat == 0 ? SEARCH_IMPOSSIBLE : SEARCH_GAVE_UP;
        }
        while (depth >= retreat) {
            unplace_bundle(search, --depth);
        }
        is_first = false;
    }
    return SEARCH_FOUND;
}

/* Returns whether a node has as much free as all bundles together want. A node that has less cannot
 * hold them, which this tells sooner than a search. */
static bool has_enough_for_all(const struct search *search, uint32_t node)
{
    const struct tdm__pool *pool = &search->pools[node];

    return (search->cpu_wanted == 0 || search->cpu_wanted <= pool->cpu.free) &&
           (search->gpu_wanted == 0 || search->gpu_wanted <= gpus_free(pool));
}

/* Returns the first node that has enough for all bundles, or the one that is `skip` such nodes
 * after it, where the first one follows the last one. Returns nodes_count if there is none. */
static uint32_t first_to_search(const struct search *search)
{
    uint32_t count = 0;
    uint32_t skip;

    for (uint32_t node = 0; node < search->nodes_count; node++) {
        count += has_enough_for_all(search, node);
    }
    skip = count > 0 ? search->skip % count : 0;
    for (uint32_t node = 0; node < search->nodes_count; node++) {
        if (has_enough_for_all(search, node) && skip-- == 0) {
            return node;
        }
    }
    return search->nodes_count;
}

/* Searches for one node that has room for all bundles. */
static enum search_outcome search_descend_one_node(struct search *search)
{
    enum search_outcome search_outcome = SEARCH_IMPOSSIBLE;
    uint32_t first = first_to_search(search);

    for (uint32_t i = 0; first < search->nodes_count && i < search->nodes_count; i++) {
        enum search_outcome node_outcome;

        search->only_node = (first + i) % search->nodes_count;
        if (!has_enough_for_all(search, search->only_node)) {
            continue;
        }
        node_outcome = search_descend(search);
        if (node_outcome == SEARCH_FOUND) {
            return SEARCH_FOUND;
        }
        search_outcome = node_outcome == SEARCH_GAVE_UP ? SEARCH_GAVE_UP : search_outcome;
    }
    return search_outcome;
}

/* Runs the search that the placement strategy demands. */
static enum search_outcome search_run(struct search *search)
{
    enum search_outcome search_outcome;

    search->visits_left =
        SEARCH_VISITS_MAX + 2 * (uint64_t)search->nodes_count * search->bundles_count;
    memset(search->loads, 0, search->nodes_count * sizeof(search->loads[0]));
    if (search->strategy == TDM_STRICT_PACK || search->strategy == TDM_PACK) {
        search_outcome = search_descend_one_node(search);
        if (search_outcome == SEARCH_FOUND || search->strategy == TDM_STRICT_PACK) {
            return search_outcome;
        }
    }
    search->only_node = search->nodes_count;
    return search_descend(search);
}

/* ---- the order of bundles and places ---------------------------------------------------- */

/* Orders two requests for resources by size, the largest first. */
static int compare_sizes(const struct tdm__resources *a, const struct tdm__resources *b)
{
    int order = compare_int64(b->gpu, a->gpu);

    order = order != 0 ? order : compare_int64(b->cpu, a->cpu);
    return order != 0 ? order : memcmp(b->custom, a->custom, sizeof(a->custom));
}

/* Orders two bundle indices by size and then by index, for qsort_r(). */
static int compare_bundles(const void *a, const void *b, void *arg)
{
    const struct search *search = arg;
    uint32_t index_a = *(const uint32_t *)a;
    uint32_t index_b = *(const uint32_t *)b;
    int order = compare_sizes(&search->bundles[index_a], &search->bundles[index_b]);

    return order != 0 ? order : compare_int64(index_a, index_b);
}

/* Orders two placements by node and GPU indices, for qsort(). */
static int compare_placements(const void *a, const void *b)
{
    const struct tdm__bundle_placement *place_a = &((const struct frame *)a)->placement;
    const struct tdm__bundle_placement *place_b = &((const struct frame *)b)->placement;
    int order = compare_int64(place_a->node, place_b->node);

    for (uint32_t i = 0; i < place_a->grant.gpus_count && order == 0; i++) {
        order = compare_int64(place_a->grant.gpu_indices[i], place_b->grant.gpu_indices[i]);
    }
    return order;
}

/* Writes the placements in the order of the bundles. Equal bundles are exchangeable, so the one
 * with the lowest index gets the lowest placement. */
static void search_write_placements(struct search *search,
                                    struct tdm__bundle_placement *placements_out)
{
    uint32_t end;

    for (uint32_t begin = 0; begin < search->bundles_count; begin = end) {
        end = begin + 1;
        while (end < search->bundles_count &&
               tdm__resources_equal(bundle_at(search, begin), bundle_at(search, end))) {
            end++;
        }
        qsort(&search->frames[begin], end - begin, sizeof(search->frames[0]), compare_placements);
        for (uint32_t depth = begin; depth < end; depth++) {
            placements_out[search->order[depth]] = search->frames[depth].placement;
        }
    }
}

/* ---- words ------------------------------------------------------------------------------ */

/* Appends the requested bundles to an error message, equal ones together. */
static void describe_bundles(const struct search *search, struct tdm__text *text)
{
    uint32_t end;

    for (uint32_t begin = 0; begin < search->bundles_count; begin = end) {
        end = begin + 1;
        while (end < search->bundles_count &&
               tdm__resources_equal(bundle_at(search, begin), bundle_at(search, end))) {
            end++;
        }
        tdm__text_add(text, "%s%u x {", begin == 0 ? "" : " + ", end - begin);
        tdm__resources_describe(bundle_at(search, begin), text);
        tdm__text_add(text, "}");
    }
}

/* Appends to an error message that a node is kept for a group that waits. */
static void describe_ticket(const struct tdm__ticket *ticket, struct tdm__text *text)
{
    char group[TDM__ID_TEXT_BYTES];

    tdm__text_add(text, " (kept for placement group %s, which waits with ticket %llu)",
                  tdm__id_text(&ticket->group, group), (unsigned long long)ticket->number);
}

/* Appends the free resources of the nodes to an error message. */
static void describe_nodes(const struct tdm__node_resources *nodes, uint32_t nodes_count,
                           struct tdm__text *text)
{
    for (uint32_t i = 0; i < nodes_count && i < NODES_DESCRIBED_MAX; i++) {
        tdm__text_add(text, "%s%s has ", i == 0 ? "" : "; ", nodes[i].name);
        tdm__pool_describe(&nodes[i].pool, text);
        if (nodes[i].is_kept) {
            describe_ticket(&nodes[i].ticket, text);
        }
    }
    if (nodes_count > NODES_DESCRIBED_MAX) {
        tdm__text_add(text, "; and %u more nodes", nodes_count - NODES_DESCRIBED_MAX);
    }
    if (nodes_count == 0) {
        tdm__text_add(text, "there are no nodes");
    }
}

/* Returns the words for a strategy in an error message. */
static const char *strategy_text(enum tdm_placement_strategy strategy)
{
    switch (strategy) {
    case TDM_PACK:
        return "";
    case TDM_SPREAD:
        return " spread out";
    case TDM_STRICT_PACK:
        return " on one node";
    case TDM_STRICT_SPREAD:
        return " on a node each";
    }
    return "";
}

/* Fails because the bundles cannot be placed: with TDM_E_NO_RESOURCES if `is_never` is true, else
 * with TDM_E_AGAIN. */
static tdm_status search_fail(const struct search *search, const struct tdm__node_resources *nodes,
                              bool is_never)
{
    char wanted[TEXT_BYTES];
    char present[TEXT_BYTES];
    struct tdm__text wanted_text = tdm__text_init(wanted, sizeof(wanted));
    struct tdm__text present_text = tdm__text_init(present, sizeof(present));

    describe_bundles(search, &wanted_text);
    describe_nodes(nodes, search->nodes_count, &present_text);
    if (is_never) {
        return tdm__fail(TDM_E_NO_RESOURCES,
                         "placement of %s%s failed: the nodes can never hold it: %s", wanted,
                         strategy_text(search->strategy), present);
    }
    return tdm__fail(TDM_E_AGAIN, "placement of %s%s failed: not enough is free now: %s", wanted,
                     strategy_text(search->strategy), present);
}

/* ---- the entries ------------------------------------------------------------------------ */

/* Allocates and fills the state of a search. On failure the caller calls search_fini(). */
static bool search_init(struct search *search, const struct tdm__node_resources *nodes,
                        const struct tdm__placement_chance *chance)
{
    search->pools = calloc(search->nodes_count + 1, sizeof(search->pools[0]));
    search->loads = calloc(search->nodes_count + 1, sizeof(search->loads[0]));
    search->order = calloc(search->bundles_count, sizeof(search->order[0]));
    search->frames = calloc(search->bundles_count, sizeof(search->frames[0]));
    if (search->pools == NULL || search->loads == NULL || search->order == NULL ||
        search->frames == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < search->nodes_count; i++) {
        if (!nodes[i].is_kept) { /* The pool of a kept node stays empty, so that nothing fits. */
            search->pools[i] = nodes[i].pool;
        }
    }
    if (chance != NULL && chance->width > 1 && search->nodes_count > 0) {
        search->skip = (uint32_t)(chance->seed % chance->width);
        search->first = (uint32_t)(chance->seed % search->nodes_count);
    }
    for (uint32_t i = 0; i < search->bundles_count; i++) {
        search->order[i] = i;
        search->cpu_wanted += search->bundles[i].cpu;
        search->gpu_wanted += search->bundles[i].gpu;
    }
    qsort_r(search->order, search->bundles_count, sizeof(search->order[0]), compare_bundles,
            search);
    return true;
}

/* Frees the state of a search. */
static void search_fini(struct search *search)
{
    free(search->pools);
    free(search->loads);
    free(search->order);
    free(search->frames);
}

/* Searches a placement of all bundles. After a failure it searches again with all resources free,
 * to find the right error. */
static tdm_status search_placements(struct search *search, const struct tdm__node_resources *nodes,
                                    const struct tdm__placement_chance *chance,
                                    struct tdm__bundle_placement *placements_out)
{
    if (!search_init(search, nodes, chance)) {
        return tdm__fail(TDM_E_NOMEM, "a placement of %u bundles on %u nodes",
                         search->bundles_count, search->nodes_count);
    }
    if (search_run(search) == SEARCH_FOUND) {
        search_write_placements(search, placements_out);
        return TDM_OK;
    }
    for (uint32_t i = 0; i < search->nodes_count; i++) {
        search->pools[i] = nodes[i].pool;
        tdm__pool_release_all(&search->pools[i]);
    }
    return search_fail(search, nodes, search_run(search) == SEARCH_IMPOSSIBLE);
}

tdm_status tdm__placement_choose_all(const struct tdm__node_resources *nodes, uint32_t nodes_count,
                                     const struct tdm__resources *bundles, uint32_t bundles_count,
                                     enum tdm_placement_strategy strategy,
                                     const struct tdm__placement_chance *chance,
                                     struct tdm__bundle_placement *placements_out)
{
    struct search search = {.bundles = bundles,
                            .nodes_count = nodes_count,
                            .bundles_count = bundles_count,
                            .strategy = strategy};
    tdm_status status;

    if (strategy < TDM_PACK || strategy > TDM_STRICT_SPREAD) {
        return tdm__fail(TDM_E_INVAL, "strategy %d: there are 0 to 3", (int)strategy);
    }
    if (bundles_count == 0 || bundles_count > TDM_BUNDLES_MAX) {
        return tdm__fail(TDM_E_INVAL, "%u bundles: a group has 1 to %d", bundles_count,
                         TDM_BUNDLES_MAX);
    }
    if (nodes_count > TDM__PLACEMENT_NODES_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%u nodes, at most %d are planned over", nodes_count,
                         TDM__PLACEMENT_NODES_MAX);
    }
    status = search_placements(&search, nodes, chance, placements_out);
    search_fini(&search);
    return status;
}

/* Returns whether the actor's scheduling strategy and label constraints allow this node. */
static bool is_allowed(const struct tdm__node_resources *node,
                       const struct tdm__placement_request *request)
{
    return (request->scheduling != TDM_SCHEDULE_NODE || tdm__id_equal(&node->id, &request->node)) &&
           tdm__labels_match(&node->labels, &request->labels);
}

/* Returns how bad the strategy considers a node on which the actor fits. The actor is placed on the
 * node with the lowest cost. */
static int64_t node_cost(const struct tdm__node_resources *node,
                         const struct tdm__placement_request *request)
{
    bool is_wanted =
        request->scheduling == TDM_SCHEDULE_NODE_SOFT && tdm__id_equal(&node->id, &request->node);

    if (request->scheduling == TDM_SCHEDULE_SPREAD) {
        return node->actors_count;
    }
    if (is_wanted) {
        return -2;
    }
    return tdm__id_equal(&node->id, &request->owner_node) ? -1 : node->pool.cpu.free;
}

/* Returns whether the node may take the actor now. */
static bool is_candidate(const struct tdm__node_resources *node,
                         const struct tdm__placement_request *request)
{
    static const struct tdm__resources nothing;

    return is_allowed(node, request) &&
           (!node->is_kept || tdm__resources_equal(&request->wanted, &nothing)) &&
           tdm__pool_fits(&node->pool, &request->wanted);
}

/* Returns the index of the best node, or nodes_count if the actor fits on no allowed node now. */
static uint32_t choose_node(const struct tdm__node_resources *nodes, uint32_t nodes_count,
                            const struct tdm__placement_request *request)
{
    uint32_t best = nodes_count;

    for (uint32_t i = 0; i < nodes_count; i++) {
        if (is_candidate(&nodes[i], request) &&
            (best == nodes_count ||
             node_cost(&nodes[i], request) < node_cost(&nodes[best], request))) {
            best = i;
        }
    }
    return best;
}

/* A node on which an actor fits. */
struct candidate {
    int64_t cost;   /* How bad the strategy considers the node. */
    uint32_t index; /* Index of the node. */
};

/* Orders candidates by cost and index, for qsort(). */
static int compare_candidates(const void *a, const void *b)
{
    const struct candidate *first = a;
    const struct candidate *second = b;
    int order = compare_int64(first->cost, second->cost);

    return order != 0 ? order : compare_int64(first->index, second->index);
}

/* Returns the index of one of the best nodes, or `best`, the best one, without memory. */
static uint32_t choose_by_chance(const struct tdm__node_resources *nodes, uint32_t nodes_count,
                                 const struct tdm__placement_request *request,
                                 const struct tdm__placement_chance *chance, uint32_t best)
{
    bool is_spread = request->scheduling == TDM_SCHEDULE_SPREAD;
    struct candidate *candidates = calloc(nodes_count, sizeof(*candidates));
    uint32_t count = 0;

    if (candidates == NULL) {
        return best;
    }
    for (uint32_t i = 0; i < nodes_count; i++) {
        if (is_candidate(&nodes[i], request)) {
            if (tdm__id_equal(&nodes[i].id, &chance->again) &&
                (!is_spread || node_cost(&nodes[i], request) == node_cost(&nodes[best], request))) {
                free(candidates);
                return i;
            }
            candidates[count++] = (struct candidate){node_cost(&nodes[i], request), i};
        }
    }
    qsort(candidates, count, sizeof(candidates[0]), compare_candidates);
    count = chance->width < count ? chance->width : count;
    while (is_spread && count > 1 && candidates[count - 1].cost > candidates[0].cost) {
        count--;
    }
    if (count > 0) {
        best = candidates[chance->seed % count].index;
    }
    free(candidates);
    return best;
}

/* Fails because the actor's strategy and constraints allow no node. */
static tdm_status fail_no_allowed_node(const struct tdm__placement_request *request)
{
    char text[TDM__ID_TEXT_BYTES];

    if (request->scheduling == TDM_SCHEDULE_NODE) {
        return tdm__fail(TDM_E_NO_RESOURCES,
                         "node %s is not in the cluster, or does not have the required labels",
                         tdm__id_text(&request->node, text));
    }
    if (request->labels.count == 0) {
        return tdm__fail(TDM_E_NO_RESOURCES, "there are no nodes");
    }
    return tdm__fail(TDM_E_NO_RESOURCES, "no node has the required labels, the first being \"%s\"",
                     request->labels.texts[0]);
}

/* Fails because the actor fits on no allowed node. Placing it as a single bundle fails for the same
 * reason and produces the message. */
static tdm_status fail_actor(const struct tdm__node_resources *nodes, uint32_t nodes_count,
                             const struct tdm__placement_request *request)
{
    struct tdm__node_resources *allowed = calloc(nodes_count + 1, sizeof(*allowed));
    struct tdm__bundle_placement placement;
    uint32_t allowed_count = 0;
    tdm_status status;

    if (allowed == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a placement on %u nodes", nodes_count);
    }
    for (uint32_t i = 0; i < nodes_count; i++) {
        if (is_allowed(&nodes[i], request)) {
            allowed[allowed_count++] = nodes[i];
        }
    }
    status = allowed_count == 0
                 ? fail_no_allowed_node(request)
                 : tdm__placement_choose_all(allowed, allowed_count, &request->wanted, 1, TDM_PACK,
                                             NULL, &placement);
    free(allowed);
    return status;
}

tdm_status tdm__placement_choose_one(const struct tdm__node_resources *nodes, uint32_t nodes_count,
                                     const struct tdm__placement_request *request,
                                     const struct tdm__placement_chance *chance,
                                     struct tdm__bundle_placement *placement_out)
{
    uint32_t node = choose_node(nodes, nodes_count, request);
    struct tdm__pool pool;
    bool taken;

    if (node == nodes_count) {
        return fail_actor(nodes, nodes_count, request);
    }
    if (chance != NULL && chance->width > 1 && node_cost(&nodes[node], request) >= 0) {
        node = choose_by_chance(nodes, nodes_count, request, chance, node);
    }
    pool = nodes[node].pool;
    taken = tdm__pool_allocate(&pool, &request->wanted, &placement_out->grant);
    TDM_ASSERT(taken);
    placement_out->node = node;
    return TDM_OK;
}
