/* records.c - registers and names actors in one Redis; one side of bench/against_ray/run. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Reads lines "records COUNT" from stdin and replies to each with the number of actors per
 * second. Each actor is one transaction, as a daemon runs it: it reads the actor's record and
 * its name, and writes both. Up to UNDER_WAY transactions are in progress at once, as with many
 * daemons. All records are read back and counted. */
#include "scheduler/records.h"
#include "cluster.h"
#include "measure.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/redis/embedded.h"
#include "runtime/redis/store.h"
#include "runtime/store/txn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Number of concurrent transactions, and timeout in milliseconds. */
enum { UNDER_WAY = 256, TIMEOUT_MS = 30000 };

/* State of the program. */
struct bench {
    /* Owned event loop. */
    struct tdm__loop *loop;
    /* Owned Redis server. */
    struct tdm__redis_embedded *server;
    /* Owned connection to it. */
    struct tdm__store *store;
    /* Number of actors to register in this round. */
    uint32_t wanted_count;
    /* Number of transactions started in this round. */
    uint32_t begun_count;
    /* Number of transactions completed in this round. */
    uint32_t done_count;
    /* Number of records read back. */
    uint32_t found_count;
    /* Number of actors of all rounds, also the number of the next actor. */
    uint32_t all_count;
};

/* One of the concurrent transactions. It starts the next one when it is done. */
struct registration {
    /* Borrowed state of the program. */
    struct bench *bench;
    /* Record of the actor that is being registered. */
    struct tdm__actor_record actor;
};

/* Starts the next transaction of the round, if there is one left. */
static void begin_next(struct registration *registration);

/* Transaction: writes the record and the name unless the name is taken. */
static tdm_status write_both(void *arg, struct tdm__txn *txn)
{
    const struct registration *registration = arg;

    if (tdm__txn_find_record(txn, registration->actor.name_key) != NULL) {
        return tdm__fail(TDM_E_EXISTS, "%s", registration->actor.name_key);
    }
    return tdm__actor_record_put(txn, &registration->actor);
}

/* Callback: the transaction has ended; starts the next one. */
static void on_written(void *arg, tdm_status status, const char *detail)
{
    struct registration *registration = arg;

    TDM_CHECK(tdm__fail(status, "%s", detail));
    registration->bench->done_count++;
    begin_next(registration);
}

static void begin_next(struct registration *registration)
{
    struct bench *bench = registration->bench;
    struct tdm__actor_record *actor = &registration->actor;
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[2] = {key, actor->name_key};

    if (bench->begun_count == bench->wanted_count) {
        return;
    }
    bench->begun_count++;
    bench->all_count++;
    *actor = (struct tdm__actor_record){.class_name = "echo"};
    TDM_CHECK(tdm__id_generate(&actor->actor));
    TDM_CHECK(tdm__id_generate(&actor->node));
    (void)snprintf(actor->name_key, sizeof(actor->name_key), "name/default/actor%u",
                   bench->all_count);
    (void)tdm__store_key("actor", &actor->actor, key);
    TDM_CHECK(tdm__txn_run(bench->store, NULL, patterns, 2, tdm__deadline_after(TIMEOUT_MS),
                           write_both, on_written, registration));
}

/* Returns whether all transactions of the round are completed. */
static bool all_done(void *arg)
{
    const struct bench *bench = arg;

    return bench->done_count == bench->wanted_count;
}

/* Callback: counts the records that were read back and checks each. */
static void on_read(void *arg, tdm_status status, const struct tdm__store_record *records,
                    uint32_t records_count)
{
    struct bench *bench = arg;

    TDM_CHECK(status);
    for (uint32_t i = 0; i < records_count; i++) {
        struct tdm__actor_record actor;

        TDM_CHECK(tdm__actor_record_read(&records[i], &actor));
        bench->found_count++;
    }
}

/* Returns whether the records have been read back. */
static bool all_read(void *arg)
{
    const struct bench *bench = arg;

    return bench->found_count > 0;
}

/* Checks that each actor has two records: its own and that of its name. */
static void check_all(struct bench *bench)
{
    static const char *const patterns[] = {"actor/*", "name/*"};

    bench->found_count = 0;
    bench->store->ops->read(bench->store, patterns, 2, tdm__deadline_after(TIMEOUT_MS), on_read,
                            bench);
    TDM_CHECK(tdm__loop_run(bench->loop, all_read, bench, tdm__deadline_after(TIMEOUT_MS)));
    if (bench->found_count != 2 * bench->all_count) {
        TDM_CHECK(
            tdm_fail(TDM_E_STORE, "%u records of %u actors", bench->found_count, bench->all_count));
    }
}

/* Registers `count` actors and returns the rate per second. */
static double register_actors(struct bench *bench, uint32_t count)
{
    static struct registration registrations[UNDER_WAY];
    double begun = bench_clock_seconds();
    double took;

    bench->wanted_count = count;
    bench->begun_count = 0;
    bench->done_count = 0;
    for (uint32_t i = 0; i < UNDER_WAY; i++) {
        registrations[i].bench = bench;
        begin_next(&registrations[i]);
    }
    TDM_CHECK(tdm__loop_run(bench->loop, all_done, bench, tdm__deadline_after(TIMEOUT_MS)));
    took = bench_clock_seconds() - begun;
    check_all(bench);
    return count / took;
}

int main(void)
{
    char directory[] = "/tmp/tandem-bench-XXXXXX";
    struct bench bench = {0};
    uint32_t count;
    char line[64];

    if (mkdtemp(directory) == NULL) {
        bench_die("mkdtemp");
    }
    TDM_CHECK(tdm__loop_create(&bench.loop));
    TDM_CHECK(tdm__redis_embedded_start(bench.loop, directory, &bench.server));
    TDM_CHECK(tdm__store_redis_open(bench.loop, tdm__redis_embedded_url(bench.server), "bench",
                                    TIMEOUT_MS, &bench.store));
    while (fgets(line, sizeof(line), stdin) != NULL) {
        if (strncmp(line, "records ", 8) != 0) {
            bench_die("a line is: records COUNT");
        }
        count = (uint32_t)strtoul(line + 8, NULL, 10);
        (void)printf("%.17g\n", register_actors(&bench, count));
        (void)fflush(stdout);
    }
    bench.store->ops->close(bench.store);
    tdm__redis_embedded_stop(bench.server);
    tdm__loop_destroy(bench.loop);
    bench_remove_tree(directory);
    return 0;
}
