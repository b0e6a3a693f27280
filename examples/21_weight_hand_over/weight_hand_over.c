/* weight_hand_over.c - a trainer hands its weights to two engines in a collective group, without a
 * job. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <tandem/tandem.h>

enum { WEIGHTS = 1 << 16, RANKS = 3, WEIGHTS_BYTES = WEIGHTS * (int)sizeof(float) };

/* State of an actor. Rank 0 trains, the other ranks serve. New weights arrive in the region that is
 * not being served. The ranks switch to it once all of them have the weights. */
struct rank {
    tdm_collective_group *group;
    tdm_region *regions[2];
    int serving;      /* Index of the region that is being served. */
    uint64_t version; /* Number of updates so far. */
};

static tdm_status rank_construct(tdm_call *call, void *self)
{
    const struct tdm_region_options region = {.tag = "weights", .size_bytes = WEIGHTS_BYTES};
    struct tdm_collective_options group = {.name = "hand-over", .ranks_count = RANKS};
    struct rank *rank = self;
    uint64_t number;

    TDM_TRY(tdm_call_unpack(call, "u", &number));
    group.rank = (uint32_t)number;
    for (int i = 0; i < 2; i++) {
        TDM_TRY(tdm_region_create(tdm_runtime_current(), &region, &rank->regions[i]));
    }
    return tdm_collective_join(tdm_runtime_current(), &group, &rank->group);
}

static void rank_destruct(void *self)
{
    struct rank *rank = self;

    tdm_collective_leave(rank->group);
    tdm_region_destroy(rank->regions[0]);
    tdm_region_destroy(rank->regions[1]);
}

/* Method update(f): rank 0 sets new weights, and all ranks receive and compare them. The program
 * calls all ranks at once, because each call on the group waits for the other ranks. */
static tdm_status rank_update(tdm_call *call, void *self)
{
    struct rank *rank = self;
    float *shadow = tdm_region_address(rank->regions[1 - rank->serving]);
    double sums[RANKS] = {0};
    double value;

    TDM_TRY(tdm_call_unpack(call, "f", &value));
    if (tdm_collective_rank(rank->group) == 0) { /* The trainer makes new weights. */
        for (int i = 0; i < WEIGHTS; i++) {
            shadow[i] = (float)value;
        }
    }
    TDM_TRY(tdm_collective_broadcast(rank->group, shadow, WEIGHTS_BYTES, 0));
    for (int i = 0; i < WEIGHTS; i++) {
        sums[tdm_collective_rank(rank->group)] += shadow[i];
    }
    TDM_TRY(tdm_collective_all_reduce_double(rank->group, sums, RANKS, TDM_SUM));
    for (int i = 1; i < RANKS; i++) {
        if (sums[i] != sums[0]) {
            return tdm_fail(TDM_E_CHECKSUM, "rank %d has %.0f, the trainer %.0f", i, sums[i],
                            sums[0]);
        }
    }
    /* All ranks have the weights, so that the rank serves them now. */
    rank->serving = 1 - rank->serving;
    rank->version++;
    return TDM_OK;
}

/* Method serve(): replies with the version and one of the weights. */
static tdm_status rank_serve(tdm_call *call, void *self)
{
    struct rank *rank = self;
    const float *weights = tdm_region_address(rank->regions[rank->serving]);

    return tdm_call_reply(call, "uf", rank->version, (double)weights[WEIGHTS - 1]);
}

TDM_ACTOR_CLASS(rank, .state_bytes = sizeof(struct rank), .construct = rank_construct,
                .destruct = rank_destruct,
                .methods = {{"update", rank_update}, {"serve", rank_serve}});

static void update_ranks(tdm_actor **ranks, double value)
{
    tdm_ref *refs[RANKS];

    for (int i = 0; i < RANKS; i++) {
        TDM_CHECK(tdm_actor_call(ranks[i], "update", &refs[i], "f", value));
    }
    for (int i = 0; i < RANKS; i++) {
        TDM_CHECK(tdm_get(refs[i], 20000, ""));
        tdm_ref_release(refs[i]);
    }
}

static void show_engine(tdm_actor *engine, int number)
{
    uint64_t version;
    double weight;
    tdm_ref *ref;

    TDM_CHECK(tdm_actor_call(engine, "serve", &ref, ""));
    TDM_CHECK(tdm_get(ref, 20000, "uf", &version, &weight));
    (void)printf("engine %d serves version %llu: %g\n", number, (unsigned long long)version,
                 weight);
    tdm_ref_release(ref);
}

int main(void)
{
    tdm_runtime *runtime;
    tdm_actor *ranks[RANKS];

    TDM_CHECK(tdm_runtime_start(NULL, &runtime));
    for (uint64_t i = 0; i < RANKS; i++) {
        TDM_CHECK(tdm_actor_create(runtime, "rank", &(struct tdm_actor_options){.num_gpus = 0.5},
                                   &ranks[i], "u", i));
    }
    for (int step = 1; step <= 2; step++) {
        update_ranks(ranks, 0.25 * step);
        for (int i = 1; i < RANKS; i++) {
            show_engine(ranks[i], i - 1);
        }
    }
    for (int i = 0; i < RANKS; i++) {
        tdm_actor_destroy(ranks[i]);
    }
    tdm_runtime_stop(runtime);
    return 0;
}
