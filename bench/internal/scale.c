/* scale.c - many nodes on one Redis; bench/scale starts the servers and runs this program. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The program simulates the nodes of a cluster in one process. Each node has its own connection.
 * All nodes join and renew their leases once a second, and some of them, the placers, also place
 * actors and placement groups. The nodes use the product's own code (scheduler/reserve.h, the
 * renewal of the store, the read cache), so they read and write exactly as daemons do. The program
 * leaves out what a daemon does without the store.
 *
 * Each workload runs in cycles. In the first half of a cycle the placers fill the cluster. Each
 * placer keeps a fixed number of requests in flight, as the daemon of a program that creates many
 * actors does. The half ends when three quarters of the GPUs are taken, or when the time is up. In
 * the second half the placers release everything. The program asks Redis before and after each half
 * how much processor time it has used. The cost of renewals is measured on its own. The leases are
 * long enough that renewals can pause during the other measurements. Plain writes of the same size
 * show the least cost of a request that waits for the one before it.
 *
 * Usage: scale PORT NODES PLACERS REQUESTS SECONDS. PORT is the port of a Redis server on
 * 127.0.0.1, and REQUESTS is the number of requests that each placer keeps in flight. The program
 * prints one JSON object. */
#include "cluster.h"
#include "measure.h"
#include "redis_usage.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/redis/store.h"
#include "runtime/store/read_cache.h"
#include "scheduler/reserve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum {
    TIMEOUT_MS = 60000,   /* Milliseconds that one request to the store may take. */
    GPUS = 8,             /* GPUs of each node. */
    GROUP_BUNDLES = 8,    /* Bundles of each group, with one GPU each. */
    ACTORS_PER_GPU = 4,   /* Actors that share a GPU. */
    SAMPLES_MAX = 100000, /* Most durations of renewals that are kept. */
    IDLE_SECONDS_MIN = 2, /* Least seconds in which only leases are renewed. */
    PLAIN_BYTES = 300     /* Bytes of a plain write, about those of an actor's record. */
};

/* What the placers place. */
enum workload { ACTORS, SPREAD_ACTORS, GROUPS, WORKLOADS_COUNT };

/* Names of the workloads in the output. */
static const char *const workload_names[] = {"actor", "spread", "group"};

/* Something that a placer has placed: an actor or a group. */
struct placed {
    struct tdm__actor_record actor; /* Record of the actor; only its ID for a group. */
};

/* One of the requests that a placer has under way at a time. */
struct slot {
    struct node *node;                 /* The placer (borrowed). */
    struct tdm__actor_request request; /* The actor that is being placed. */
};

/* A simulated node. */
struct node {
    struct bench *bench;             /* The program's state (borrowed). */
    struct tdm__store *store;        /* Connection to Redis (owned). */
    struct tdm__timer *timer;        /* Timer of the renewals (owned). */
    struct tdm__node_record record;  /* Record of the node. */
    struct tdm__store_renewed known; /* What the last renewal has told. */
    double renewal_sent;             /* Time of the last renewal, in seconds. */
    struct slot *slots;              /* The requests of a placer (owned). */
    struct placed *placed;           /* What this placer has placed (owned). */
    uint32_t placed_count;           /* Number of entries in `placed`. */
    uint32_t placed_capacity;        /* Capacity of `placed`. */
};

/* State of the program. */
struct bench {
    struct tdm__loop *loop;   /* Event loop (owned). */
    struct node *nodes;       /* The nodes (owned); the first ones are placers. */
    uint32_t nodes_count;     /* Number of nodes. */
    uint32_t placers_count;   /* Number of placers. */
    uint32_t slots_count;     /* Number of requests that each placer has under way. */
    uint32_t joined_count;    /* Number of nodes that have joined. */
    enum workload workload;   /* What is placed now. */
    bool is_removing;         /* Whether the placers give back. */
    double end;               /* Time at which placing ends, in seconds. */
    uint32_t busy_count;      /* Number of requests that are under way. */
    uint32_t placed_count;    /* Number of things that all placers have placed now. */
    uint32_t wanted_count;    /* Number at which the cluster is full enough. */
    uint64_t done_count;      /* Number of requests that have ended in this half cycle. */
    double *samples;          /* Durations of renewals in seconds (owned). */
    uint32_t samples_count;   /* Number of entries in `samples`. */
    uint64_t reads_count;     /* Number of reads that the nodes have sent. */
    uint64_t commits_count;   /* Number of commits that the nodes have sent. */
    bool is_renewing;         /* Whether the nodes renew their leases. */
    bool is_ending;           /* Whether the connections are being closed. */
    struct redis_usage usage; /* What Redis says about its processor time and memory. */
};

/* What one half of a workload's cycles cost in sum. */
struct cost {
    double seconds;   /* Duration. */
    double redis;     /* Redis' processor time in seconds. */
    double nodes;     /* Processor time of this process in seconds. */
    uint64_t count;   /* Number of requests. */
    uint64_t reads;   /* Number of reads. */
    uint64_t commits; /* Number of commits. */
};

/* ---- processor time ---------------------------------------------------------------------- */

/* Returns the processor time that this process has used, in seconds. */
static double own_seconds(void)
{
    struct rusage usage;

    if (getrusage(RUSAGE_SELF, &usage) != 0) {
        bench_die("getrusage");
    }
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* ---- nodes ------------------------------------------------------------------------------- */

/* Notes what the store has told with a renewal, and how long it took. */
static void on_renewed(void *arg, tdm_status status, const struct tdm__store_renewed *renewed,
                       const struct tdm__store_record *members, uint32_t members_count)
{
    struct node *node = arg;
    struct bench *bench = node->bench;

    (void)members;
    (void)members_count;
    if (bench->is_ending) {
        return;
    }
    TDM_CHECK(status);
    node->known = *renewed;
    if (bench->samples_count < SAMPLES_MAX) {
        bench->samples[bench->samples_count++] = bench_clock_seconds() - node->renewal_sent;
    }
}

/* Renews a node's lease. */
static void renew(struct node *node)
{
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_renewal renewal = {.key = tdm__store_key("node", &node->record.id, key),
                                               .lease_ms = TDM__NODE_LEASE_MS_MAX,
                                               .grace_ms = TDM__NODE_GRACE_MS,
                                               .members_epoch = node->known.members_epoch,
                                               .renewals_count = node->known.renewals_count,
                                               .generation = node->known.generation};

    node->renewal_sent = bench_clock_seconds();
    node->store->ops->renew(node->store, &renewal, tdm__deadline_after(TIMEOUT_MS), on_renewed,
                            node);
}

/* Renews a node's lease, once a second. */
static void on_timer(void *arg)
{
    struct node *node = arg;

    TDM_CHECK(tdm__timer_set(node->timer, tdm__deadline_after(TDM__NODE_RENEW_MS)));
    if (node->bench->is_renewing) {
        renew(node);
    }
}

/* The functions of the store before the ones below replaced two of them. */
static const struct tdm__store_ops *redis_ops;
/* The functions of the store, of which reads and commits are counted. */
static struct tdm__store_ops counting_ops;
/* The program's state, for the functions below. */
static struct bench *counting_bench;

/* Counts a read, and sends it. */
static void count_read(struct tdm__store *store, const char *const *patterns,
                       uint32_t patterns_count, int64_t deadline_ms, tdm__store_read_fn *fn,
                       void *arg)
{
    counting_bench->reads_count++;
    redis_ops->read(store, patterns, patterns_count, deadline_ms, fn, arg);
}

/* Counts a commit, and sends it. */
static void count_commit(struct tdm__store *store, const struct tdm__store_write *writes,
                         uint32_t writes_count, int64_t deadline_ms, tdm__store_commit_fn *fn,
                         void *arg)
{
    counting_bench->commits_count++;
    redis_ops->commit(store, writes, writes_count, deadline_ms, fn, arg);
}

/* Counts a node that has joined. */
static void on_joined(void *arg, tdm_status status, const char *detail)
{
    struct node *node = arg;

    TDM_CHECK(tdm__fail(status, "%s", detail));
    node->bench->joined_count++;
}

/* Connects a node to Redis and lets it join. */
static void node_join(struct node *node, uint32_t index, const char *url)
{
    struct tdm__resources resources = {0};
    struct tdm__node_resources totals = {0};

    (void)snprintf(node->record.name, sizeof(node->record.name), "node%u", index);
    (void)snprintf(node->record.unix_address, sizeof(node->record.unix_address),
                   "unix:/tmp/tandem/node%u/socket", index);
    (void)snprintf(node->record.tcp_address, sizeof(node->record.tcp_address),
                   "tcp:10.0.%u.%u:6379", index / 256, index % 256);
    node->record.lease_ms = TDM__NODE_LEASE_MS_MAX;
    TDM_CHECK(tdm__id_generate(&node->record.id));
    TDM_CHECK(tdm__store_redis_open(node->bench->loop, url, "bench", TIMEOUT_MS, &node->store));
    tdm__store_redis_set_writer(node->store, &node->record.id);
    redis_ops = node->store->ops;
    counting_ops = *redis_ops;
    counting_ops.read = count_read;
    counting_ops.commit = count_commit;
    node->store->ops = &counting_ops;
    TDM_CHECK(tdm__read_cache_create(&node->store->read_cache));
    TDM_CHECK(tdm__resources_add(&resources, "GPU", GPUS));
    TDM_CHECK(tdm__resources_add(&resources, "CPU", 64));
    totals.id = node->record.id;
    (void)snprintf(totals.name, sizeof(totals.name), "%s", node->record.name);
    TDM_CHECK(tdm__pool_init(&totals.pool, &resources));
    TDM_CHECK(tdm__reserve_node(node->store, &node->record, &totals, NULL, 0,
                                tdm__deadline_after(TIMEOUT_MS), on_joined, node));
    TDM_CHECK(tdm__timer_create(node->bench->loop, on_timer, node, &node->timer));
}

/* Returns whether all nodes have joined that have been told to. */
static bool all_joined(void *arg)
{
    const struct bench *bench = arg;

    return bench->joined_count == bench->nodes_count;
}

/* Returns whether the nodes' first renewals, whose number is in `nodes_count`, have ended. */
static bool has_renewed(void *arg)
{
    const struct bench *bench = arg;

    return bench->samples_count == bench->nodes_count;
}

/* Lets all nodes join, and begin with their renewals at different times of a second. The first
 * renewal of each node returns the list of all, so they come one after the other here; leases are
 * long, so that they outlast that on a busy machine. */
static void join_all(struct bench *bench, const char *url)
{
    uint32_t count = bench->nodes_count;

    for (uint32_t i = 0; i < count; i++) {
        bench->nodes[i].bench = bench;
        bench->nodes_count = i + 1;
        node_join(&bench->nodes[i], i, url);
        TDM_CHECK(tdm__loop_run(bench->loop, all_joined, bench, tdm__deadline_after(TIMEOUT_MS)));
    }
    for (uint32_t i = 0; i < count; i++) {
        bench->nodes_count = i + 1;
        renew(&bench->nodes[i]);
        TDM_CHECK(tdm__loop_run(bench->loop, has_renewed, bench, tdm__deadline_after(TIMEOUT_MS)));
    }
    for (uint32_t i = 0; i < count; i++) {
        TDM_CHECK(tdm__timer_set(bench->nodes[i].timer,
                                 tdm__deadline_after((int64_t)i * TDM__NODE_RENEW_MS / count)));
    }
}

/* ---- placers ----------------------------------------------------------------------------- */

/* Starts the next request of a placer in a slot, if there is one. */
static void placer_continue(struct slot *slot);

/* Ends a placer's request. `change` is what it adds to the number of placed things. */
static void placer_done(struct slot *slot, int change)
{
    struct bench *bench = slot->node->bench;

    bench->busy_count--;
    bench->placed_count = (uint32_t)((int)bench->placed_count + change);
    bench->done_count++;
    placer_continue(slot);
}

/* Adds to what a placer has placed. */
static void placer_keep(struct node *node, const struct tdm__actor_record *actor)
{
    if (node->placed_count == node->placed_capacity) {
        node->placed_capacity = node->placed_capacity == 0 ? 64 : 2 * node->placed_capacity;
        node->placed = realloc(node->placed, node->placed_capacity * sizeof(*node->placed));
        if (node->placed == NULL) {
            bench_die("memory");
        }
    }
    node->placed[node->placed_count++].actor = *actor;
}

/* Keeps an actor that was placed. */
static void on_actor_placed(void *arg, tdm_status status, const char *detail,
                            const struct tdm__actor_placement *reserved)
{
    struct slot *slot = arg;

    TDM_CHECK(tdm__fail(status, "%s", detail));
    placer_keep(slot->node, &(struct tdm__actor_record){.actor = slot->request.actor,
                                                        .node = reserved->node.id,
                                                        .grant = reserved->grant,
                                                        .placements = 1});
    placer_done(slot, 1);
}

/* Keeps a group that was placed. */
static void on_group_placed(void *arg, tdm_status status, const char *detail,
                            const struct tdm__placement_group_record *group)
{
    struct slot *slot = arg;

    TDM_CHECK(tdm__fail(status, "%s", detail));
    placer_keep(slot->node, &(struct tdm__actor_record){.actor = group->id});
    placer_done(slot, 1);
}

/* Handles the end of an actor's or a group's removal. */
static void on_removed(void *arg, tdm_status status, const char *detail)
{
    TDM_CHECK(tdm__fail(status, "%s", detail));
    placer_done(arg, -1);
}

/* Places an actor with a part of a GPU. */
static void place_actor(struct slot *slot)
{
    struct node *node = slot->node;
    struct tdm__actor_request *request = &slot->request;

    *request = (struct tdm__actor_request){.placements = 1};
    TDM_CHECK(tdm__id_generate(&request->actor));
    (void)snprintf(request->class_name, sizeof(request->class_name), "echo");
    request->placement.owner_node = node->record.id;
    request->placement.scheduling =
        node->bench->workload == SPREAD_ACTORS ? TDM_SCHEDULE_SPREAD : TDM_SCHEDULE_DEFAULT;
    TDM_CHECK(tdm__resources_add(&request->placement.wanted, "GPU", 1.0 / ACTORS_PER_GPU));
    TDM_CHECK(tdm__resources_add(&request->placement.wanted, "CPU", 1));
    TDM_CHECK(tdm__reserve_actor(node->store, request, tdm__deadline_after(TIMEOUT_MS),
                                 on_actor_placed, slot));
}

/* Places a group. */
static void place_group(struct slot *slot)
{
    struct node *node = slot->node;
    struct tdm__resources bundles[GROUP_BUNDLES] = {{0}};
    struct tdm__placement_group_request request = {.bundles = bundles,
                                                   .bundles_count = GROUP_BUNDLES,
                                                   .strategy = TDM_PACK,
                                                   .owner_node = node->record.id};

    for (uint32_t i = 0; i < GROUP_BUNDLES; i++) {
        TDM_CHECK(tdm__resources_add(&bundles[i], "GPU", 1));
        TDM_CHECK(tdm__resources_add(&bundles[i], "CPU", 1));
    }
    TDM_CHECK(tdm__id_generate(&request.id));
    TDM_CHECK(tdm__placement_group_reserve(node->store, &request, tdm__deadline_after(TIMEOUT_MS),
                                           on_group_placed, slot));
}

/* Removes a group that was closed. */
static void on_closed(void *arg, tdm_status status, const char *detail,
                      const struct tdm__placement_group_record *group,
                      const struct tdm__node_record *nodes, uint32_t nodes_count)
{
    struct slot *slot = arg;

    (void)nodes;
    (void)nodes_count;
    TDM_CHECK(tdm__fail(status, "%s", detail));
    TDM_CHECK(tdm__placement_group_release(slot->node->store, group,
                                           tdm__deadline_after(TIMEOUT_MS), on_removed, slot));
}

/* Gives back what a placer has placed last. */
static void remove_last(struct slot *slot)
{
    struct node *node = slot->node;
    const struct placed *last = &node->placed[--node->placed_count];

    if (node->bench->workload == GROUPS) {
        const struct tdm__placement_group_record group = {.id = last->actor.actor,
                                                          .owner_node = node->record.id};

        TDM_CHECK(tdm__placement_group_close(node->store, &group, tdm__deadline_after(TIMEOUT_MS),
                                             on_closed, slot));
    } else {
        TDM_CHECK(tdm__release_actor(node->store, &last->actor, tdm__deadline_after(TIMEOUT_MS),
                                     on_removed, slot));
    }
}

static void placer_continue(struct slot *slot)
{
    struct bench *bench = slot->node->bench;

    if (bench->is_removing ? slot->node->placed_count == 0
                           : bench->placed_count + bench->busy_count >= bench->wanted_count ||
                                 bench_clock_seconds() >= bench->end) {
        return;
    }
    bench->busy_count++;
    if (bench->is_removing) {
        remove_last(slot);
    } else if (bench->workload == GROUPS) {
        place_group(slot);
    } else {
        place_actor(slot);
    }
}

/* Returns whether no request is under way. */
static bool is_idle(void *arg)
{
    return ((const struct bench *)arg)->busy_count == 0;
}

/* Places, or gives back, with all placers, and adds what that costs. */
static void run_half(struct bench *bench, bool is_removing, struct cost *cost)
{
    double redis = redis_usage_seconds(&bench->usage);
    double own = own_seconds();
    double begun = bench_clock_seconds();

    bench->is_removing = is_removing;
    bench->done_count = 0;
    bench->reads_count = 0;
    bench->commits_count = 0;
    for (uint32_t i = 0; i < bench->placers_count * bench->slots_count; i++) {
        placer_continue(&bench->nodes[i % bench->placers_count].slots[i / bench->placers_count]);
    }
    TDM_CHECK(tdm__loop_run(bench->loop, is_idle, bench, tdm__deadline_after(10 * TIMEOUT_MS)));
    cost->seconds += bench_clock_seconds() - begun;
    cost->nodes += own_seconds() - own;
    cost->redis += redis_usage_seconds(&bench->usage) - redis;
    cost->count += bench->done_count;
    cost->reads += bench->reads_count;
    cost->commits += bench->commits_count;
}

/* ---- output ------------------------------------------------------------------------------ */

/* Compares two durations, for qsort(). */
static int compare_doubles(const void *a, const void *b)
{
    double first = *(const double *)a;
    double second = *(const double *)b;

    return (first > second) - (first < second);
}

/* Returns the 99th percentile of the renewals since the last call, in milliseconds. */
static double take_p99_ms(struct bench *bench)
{
    double p99 = 0;

    if (bench->samples_count > 0) {
        qsort(bench->samples, bench->samples_count, sizeof(bench->samples[0]), compare_doubles);
        p99 = bench->samples[(uint64_t)bench->samples_count * 99 / 100] * 1e3;
    }
    bench->samples_count = 0;
    return p99;
}

/* Prints what half of a workload's cycles cost for each request. */
static void print_cost(const char *name, const struct cost *cost)
{
    double count = cost->count > 0 ? (double)cost->count : 1;

    (void)printf("\"%s\": {\"count\": %llu, \"per_second\": %.0f, \"redis_us\": %.1f, "
                 "\"nodes_us\": %.1f, \"reads\": %.2f, \"commits\": %.2f}, ",
                 name, (unsigned long long)cost->count, (double)cost->count / cost->seconds,
                 cost->redis / count * 1e6, cost->nodes / count * 1e6, (double)cost->reads / count,
                 (double)cost->commits / count);
}

/* Runs cycles of the current workload for `seconds`. Returns Redis' memory after the last
 * placement, in bytes. */
static double run_cycles(struct bench *bench, double seconds, struct cost *placing,
                         struct cost *removing)
{
    double end = bench_clock_seconds() + seconds;
    double memory;

    do {
        bench->end = bench_clock_seconds() + seconds / 2;
        run_half(bench, false, placing);
        redis_usage_ask(&bench->usage, "memory");
        memory = redis_usage_number(&bench->usage, "used_memory");
        run_half(bench, true, removing);
    } while (bench_clock_seconds() < end);
    return memory;
}

/* Lets each placer place something and remove it, because its first request reads all nodes. */
static void run_first(struct bench *bench)
{
    struct cost ignored = {0};
    uint32_t wanted_count = bench->wanted_count;

    if (bench->wanted_count > bench->placers_count) {
        bench->wanted_count = bench->placers_count;
    }
    bench->end = bench_clock_seconds() + TIMEOUT_MS / 1e3;
    run_half(bench, false, &ignored);
    run_half(bench, true, &ignored);
    bench->wanted_count = wanted_count;
}

/* Runs one workload for `seconds` without renewals, and prints its costs, then for as long with
 * renewals, and prints how long these take. */
static void run_workload(struct bench *bench, enum workload workload, double seconds)
{
    struct cost placing = {0};
    struct cost removing = {0};
    struct cost ignored = {0};
    double memory;

    bench->workload = workload;
    bench->wanted_count = bench->nodes_count * GPUS * 3 / 4 *
                          (workload == GROUPS ? 1 : ACTORS_PER_GPU) /
                          (workload == GROUPS ? GROUP_BUNDLES : 1);
    if (bench->wanted_count == 0) {
        bench->wanted_count = 1;
    }
    bench->is_renewing = false;
    run_first(bench);
    memory = run_cycles(bench, seconds, &placing, &removing);
    bench->is_renewing = true;
    (void)take_p99_ms(bench);
    (void)run_cycles(bench, seconds, &ignored, &ignored);
    (void)printf("\"%s\": {", workload_names[workload]);
    print_cost("place", &placing);
    print_cost("remove", &removing);
    (void)printf("\"renewal_p99_ms\": %.2f, \"redis_memory\": %.0f}", take_p99_ms(bench), memory);
}

/* Measures what renewals alone cost, and prints it. */
static void run_idle(struct bench *bench, double seconds)
{
    double redis;
    double own;
    double idle;

    seconds = seconds < IDLE_SECONDS_MIN ? IDLE_SECONDS_MIN : seconds;
    bench->is_renewing = true;
    bench->reads_count = 0;
    (void)take_p99_ms(bench);
    redis = redis_usage_seconds(&bench->usage);
    own = own_seconds();
    (void)tdm__loop_run(bench->loop, NULL, NULL, tdm__deadline_after((int64_t)(seconds * 1e3)));
    idle = (redis_usage_seconds(&bench->usage) - redis) / seconds;
    (void)printf("\"idle\": {\"redis_percent\": %.2f, \"redis_us_per_renewal\": %.1f, "
                 "\"node_us_per_second\": %.1f, \"reads\": %llu, \"renewal_p99_ms\": %.2f}, ",
                 idle * 100, idle / bench->nodes_count * 1e6,
                 (own_seconds() - own) / seconds / bench->nodes_count * 1e6,
                 (unsigned long long)bench->reads_count, take_p99_ms(bench));
}

/* Measures what plain writes cost Redis, each of which is sent after the reply to the one before,
 * and prints it: no commit of a placer that waits for each actor can be cheaper. */
static void run_plain(struct bench *bench, double seconds)
{
    uint64_t count = 0;
    double end = bench_clock_seconds() + seconds;
    double redis = redis_usage_seconds(&bench->usage);

    while (bench_clock_seconds() < end) {
        redis_usage_set(&bench->usage, PLAIN_BYTES);
        count++;
    }
    redis = redis_usage_seconds(&bench->usage) - redis;
    (void)printf("\"plain\": {\"count\": %llu, \"redis_us\": %.1f}, ", (unsigned long long)count,
                 redis / (double)count * 1e6);
}

/* Closes the connections and frees everything. */
static void finish(struct bench *bench)
{
    bench->is_ending = true;
    for (uint32_t i = 0; i < bench->nodes_count; i++) {
        struct tdm__read_cache *read_cache = bench->nodes[i].store->read_cache;

        tdm__timer_destroy(bench->nodes[i].timer);
        bench->nodes[i].store->ops->close(bench->nodes[i].store);
        tdm__read_cache_destroy(read_cache);
        free(bench->nodes[i].placed);
        free(bench->nodes[i].slots);
    }
    tdm__loop_destroy(bench->loop);
    redis_usage_close(&bench->usage);
    free(bench->samples);
    free(bench->nodes);
}

/* Gives each placer its slots. */
static void create_slots(struct bench *bench)
{
    for (uint32_t i = 0; i < bench->placers_count; i++) {
        struct node *node = &bench->nodes[i];

        node->slots = calloc(bench->slots_count, sizeof(*node->slots));
        if (node->slots == NULL) {
            bench_die("memory");
        }
        for (uint32_t j = 0; j < bench->slots_count; j++) {
            node->slots[j].node = node;
        }
    }
}

int main(int argc, char **argv)
{
    static struct bench bench;
    char url[64];
    double seconds;

    if (argc != 6) {
        (void)fprintf(stderr, "usage: scale PORT NODES PLACERS REQUESTS SECONDS\n");
        return 2;
    }
    bench.nodes_count = (uint32_t)strtoul(argv[2], NULL, 10);
    bench.placers_count = (uint32_t)strtoul(argv[3], NULL, 10);
    bench.slots_count = (uint32_t)strtoul(argv[4], NULL, 10);
    seconds = strtod(argv[5], NULL);
    if (bench.placers_count > bench.nodes_count) {
        bench.placers_count = bench.nodes_count;
    }
    bench.nodes = calloc(bench.nodes_count, sizeof(*bench.nodes));
    bench.samples = calloc(SAMPLES_MAX, sizeof(*bench.samples));
    if (bench.nodes == NULL || bench.samples == NULL) {
        bench_die("memory");
    }
    create_slots(&bench);
    counting_bench = &bench;
    redis_usage_open(&bench.usage, (uint16_t)strtoul(argv[1], NULL, 10));
    (void)snprintf(url, sizeof(url), "redis://127.0.0.1:%s", argv[1]);
    TDM_CHECK(tdm__loop_create(&bench.loop));
    join_all(&bench, url);
    (void)printf("{\"nodes\": %u, \"placers\": %u, \"requests\": %u, ", bench.nodes_count,
                 bench.placers_count, bench.slots_count);
    run_idle(&bench, seconds);
    run_plain(&bench, seconds);
    for (int i = 0; i < WORKLOADS_COUNT; i++) {
        run_workload(&bench, (enum workload)i, seconds);
        (void)printf("%s", i + 1 < WORKLOADS_COUNT ? ", " : "}\n");
    }
    finish(&bench);
    return 0;
}
