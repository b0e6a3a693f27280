/* commits.c - Redis' memory while it carries out as many commits as it can. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Each writer has a store of its own, as a daemon has, and a number of slots. A slot puts a record
 * of the size of an actor's and deletes it again, one commit after the other, so that the records
 * do not grow in number. What then grows are the outcomes of commits that writers have not
 * acknowledged yet, and the buffers to clients, to the append-only file and to the replica. Redis'
 * memory is asked for all the time, and the highest value is kept.
 *
 * Usage: commits PORT WRITERS REQUESTS SECONDS, PORT being that of a Redis server on 127.0.0.1 and
 * REQUESTS the number of commits that each writer has under way. Prints one JSON object. */
#include "measure.h"
#include "redis_usage.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/redis/store.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    TIMEOUT_MS = 60000, /* Milliseconds that one commit may take. */
    RECORD_BYTES = 300, /* Size of a record. */
    SAMPLE_MS = 100,    /* Milliseconds between two samples of Redis' memory. */
    KEY_BYTES = 32      /* Size of a key. */
};

/* One of the commits that a writer has under way. */
struct slot {
    struct writer *writer; /* The writer (borrowed). */
    char key[KEY_BYTES];   /* Key of the slot's record. */
    bool is_there;         /* Whether the record is in the store. */
};

/* A client of the store. */
struct writer {
    struct bench *bench;      /* The program's state (borrowed). */
    struct tdm__store *store; /* Connection to Redis (owned). */
    struct slot *slots;       /* The commits under way (owned). */
};

/* Parts of Redis' memory, in bytes: the highest values that were seen. */
struct memory {
    double all;     /* All memory that Redis has allocated. */
    double clients; /* Buffers of clients. */
    double replica; /* Buffers of the replica, and the backlog. */
    double file;    /* Buffers of the append-only file. */
};

/* State of the program. */
struct bench {
    struct tdm__loop *loop;   /* Event loop (owned). */
    struct tdm__timer *timer; /* Timer of the samples (owned). */
    struct writer *writers;   /* The writers (owned). */
    uint32_t writers_count;   /* Number of writers. */
    uint32_t slots_count;     /* Number of slots of each writer. */
    uint32_t busy_count;      /* Number of commits that are under way. */
    uint64_t done_count;      /* Number of commits that have ended. */
    double end;               /* Time at which no further commit begins, in seconds. */
    struct memory highest;    /* Highest memory that was seen. */
    struct redis_usage usage; /* What Redis says about its processor time and memory. */
};

/* Starts the next commit of a slot, unless the time is over. */
static void slot_continue(struct slot *slot);

/* Notes the end of a commit. */
static void on_committed(void *arg, tdm_status status, const struct tdm__store_committed *committed)
{
    struct slot *slot = arg;
    struct bench *bench = slot->writer->bench;

    (void)committed;
    TDM_CHECK(status);
    bench->busy_count--;
    bench->done_count++;
    slot->is_there = !slot->is_there;
    slot_continue(slot);
}

static void slot_continue(struct slot *slot)
{
    static const char bytes[RECORD_BYTES];
    struct tdm__store *store = slot->writer->store;
    const struct tdm__store_write write = {
        .kind = slot->is_there ? TDM__STORE_DELETE : TDM__STORE_PUT,
        .key = slot->key,
        .version = TDM__VERSION_ANY,
        .bytes = {(const unsigned char *)bytes, slot->is_there ? 0 : sizeof(bytes)}};

    if (bench_clock_seconds() < slot->writer->bench->end) {
        slot->writer->bench->busy_count++;
        store->ops->commit(store, &write, 1, tdm__deadline_after(TIMEOUT_MS), on_committed, slot);
    }
}

/* Returns the greater number. */
static double greater(double one, double other)
{
    return one > other ? one : other;
}

/* Asks Redis for its memory, and again after SAMPLE_MS. */
static void on_timer(void *arg)
{
    struct bench *bench = arg;
    struct redis_usage *usage = &bench->usage;
    struct memory *highest = &bench->highest;

    redis_usage_ask(usage, "memory");
    highest->all = greater(highest->all, redis_usage_number(usage, "used_memory"));
    highest->clients = greater(highest->clients, redis_usage_number(usage, "mem_clients_normal"));
    highest->replica = greater(highest->replica, redis_usage_number(usage, "mem_clients_slaves"));
    highest->file = greater(highest->file, redis_usage_number(usage, "mem_aof_buffer"));
    TDM_CHECK(tdm__timer_set(bench->timer, tdm__deadline_after(SAMPLE_MS)));
}

/* Connects all writers. */
static void open_writers(struct bench *bench, const char *url)
{
    bench->writers = calloc(bench->writers_count, sizeof(*bench->writers));
    if (bench->writers == NULL) {
        bench_die("memory");
    }
    for (uint32_t i = 0; i < bench->writers_count; i++) {
        struct writer *writer = &bench->writers[i];

        writer->bench = bench;
        writer->slots = calloc(bench->slots_count, sizeof(*writer->slots));
        if (writer->slots == NULL) {
            bench_die("memory");
        }
        TDM_CHECK(tdm__store_redis_open(bench->loop, url, "bench", TIMEOUT_MS, &writer->store));
        for (uint32_t j = 0; j < bench->slots_count; j++) {
            writer->slots[j].writer = writer;
            (void)snprintf(writer->slots[j].key, sizeof(writer->slots[j].key), "actor/%u-%u", i, j);
        }
    }
}

/* Returns whether no commit is under way. */
static bool is_idle(void *arg)
{
    return ((const struct bench *)arg)->busy_count == 0;
}

/* Commits with all slots for `seconds`, and prints what was seen. */
static void run(struct bench *bench, double seconds)
{
    double before;
    double redis = redis_usage_seconds(&bench->usage);
    double begun = bench_clock_seconds();

    redis_usage_ask(&bench->usage, "memory");
    before = redis_usage_number(&bench->usage, "used_memory");
    bench->end = begun + seconds;
    on_timer(bench);
    for (uint32_t i = 0; i < bench->writers_count * bench->slots_count; i++) {
        slot_continue(&bench->writers[i % bench->writers_count].slots[i / bench->writers_count]);
    }
    TDM_CHECK(tdm__loop_run(bench->loop, is_idle, bench,
                            tdm__deadline_after((int64_t)(seconds * 1e3) + TIMEOUT_MS)));
    seconds = bench_clock_seconds() - begun;
    redis = redis_usage_seconds(&bench->usage) - redis;
    (void)printf(
        "{\"writers\": %u, \"requests\": %u, \"count\": %llu, \"per_second\": %.0f, "
        "\"redis_us\": %.1f, \"redis_percent\": %.1f, \"memory_before\": %.0f, "
        "\"memory_highest\": %.0f, \"clients\": %.0f, \"replica\": %.0f, \"file\": %.0f}\n",
        bench->writers_count, bench->slots_count, (unsigned long long)bench->done_count,
        (double)bench->done_count / seconds, redis / (double)bench->done_count * 1e6,
        redis / seconds * 100, before, bench->highest.all, bench->highest.clients,
        bench->highest.replica, bench->highest.file);
}

/* Closes the connections and frees everything. */
static void finish(struct bench *bench)
{
    for (uint32_t i = 0; i < bench->writers_count; i++) {
        bench->writers[i].store->ops->close(bench->writers[i].store);
        free(bench->writers[i].slots);
    }
    tdm__timer_destroy(bench->timer);
    tdm__loop_destroy(bench->loop);
    redis_usage_close(&bench->usage);
    free(bench->writers);
}

int main(int argc, char **argv)
{
    static struct bench bench;
    char url[64];

    if (argc != 5) {
        (void)fprintf(stderr, "usage: commits PORT WRITERS REQUESTS SECONDS\n");
        return 2;
    }
    bench.writers_count = (uint32_t)strtoul(argv[2], NULL, 10);
    bench.slots_count = (uint32_t)strtoul(argv[3], NULL, 10);
    redis_usage_open(&bench.usage, (uint16_t)strtoul(argv[1], NULL, 10));
    (void)snprintf(url, sizeof(url), "redis://127.0.0.1:%s", argv[1]);
    TDM_CHECK(tdm__loop_create(&bench.loop));
    TDM_CHECK(tdm__timer_create(bench.loop, on_timer, &bench, &bench.timer));
    open_writers(&bench, url);
    run(&bench, strtod(argv[4], NULL));
    finish(&bench);
    return 0;
}
