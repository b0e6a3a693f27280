/* top.c - `tandem top`: prints the activity of a cluster periodically. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The command takes a sample of all actors' counters every few seconds. Rates are differences to
 * the previous sample, so the first screen shows none, and an actor that restarted meanwhile shows
 * none once. Actors are matched by ID; the busiest come first. On a terminal the screen is cleared
 * and the rows are limited to its height; in a pipe all rows are printed. Nodes that do not reply
 * are left out. There is one thread, which sleeps between samples. */

#include "cli/cluster.h"
#include "cli/cluster_summary.h"
#include "cli/table.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct tdm__option options[] = {{"--every", true, NULL},
                                       {"--count", true, NULL},
                                       {"--address", true, NULL},
                                       {NULL, false, NULL}};

enum {
    EVERY_SECONDS = 2,        /* Default interval between two samples, in seconds. */
    EVERY_SECONDS_MAX = 3600, /* Largest interval between two samples, in seconds. */
    ID_SHOWN = 12             /* Number of digits of an ID that the table shows. */
};

/* Counters of one actor at the time of a sample. */
struct actor_calls {
    char id[33];       /* ID of the actor as text. */
    uint64_t calls;    /* Number of the actor's calls that have finished. */
    uint64_t failures; /* Number of the actor's calls that have failed. */
    uint64_t queue;    /* Number of the actor's calls that wait. */
    /* Time for which the actor's methods have run, in nanoseconds, summed over all calls. */
    uint64_t busy_ns;
};

/* Counters of all actors at one time. */
struct top_sample {
    int64_t at_ns;              /* Time of the sample, in nanoseconds on CLOCK_MONOTONIC. */
    struct actor_calls *actors; /* Counters of each actor (owned). */
    uint32_t count;             /* Number of entries in `actors`. */
};

/* One row of the table of `tandem top`: an actor and its rates. */
struct actor_row {
    const struct tdm_actor_state *actor; /* State of the actor (borrowed). */
    /* Counters of the actor in this sample; NULL if the actor's node did not reply. */
    const struct actor_calls *calls_of_actor;
    /* Whether the rates below are valid, that is, whether the previous sample contains the actor.
     */
    bool is_known;
    double calls;    /* Calls per second that finished since the previous sample. */
    double failures; /* Calls per second that failed since the previous sample. */
    double busy;     /* Seconds per second for which methods ran since the previous sample. */
};

/* ---- what they have done ---------------------------------------------------------------- */

/* Adds the counters of one actor to the sample. */
static void sample_add_actor(struct top_sample *sample,
                             const struct tdm__timeline_actor_message *actor)
{
    struct tdm__actor_metrics_message metrics;
    struct actor_calls *calls_of_actor;

    if (tdm__actor_metrics_decode(actor->reply.value, &metrics) != TDM_OK) {
        return;
    }
    calls_of_actor = &sample->actors[sample->count++];
    *calls_of_actor = (struct actor_calls){.calls = metrics.calls,
                                           .failures = metrics.failures,
                                           .queue = metrics.queue_length,
                                           .busy_ns = metrics.sum_ns};
    (void)snprintf(calls_of_actor->id, sizeof(calls_of_actor->id), "%s", actor->id);
}

/* Adds the actors of one node's reply to the sample. */
static void sample_add_node(struct top_sample *sample, const tdm_value *reply)
{
    struct tdm__timeline_message message;
    struct actor_calls *actors;

    if (tdm__timeline_decode(reply, &message) != TDM_OK) {
        return;
    }
    actors = realloc(sample->actors, (sample->count + message.actors.count + 1) * sizeof(*actors));
    if (actors == NULL) {
        return;
    }
    sample->actors = actors;
    for (uint32_t i = 0; i < message.actors.count; i++) {
        struct tdm__timeline_actor_message actor;

        tdm__message_list_read(&message.actors, i, &actor, sizeof(actor));
        sample_add_actor(sample, &actor);
    }
}

/* Adds the actors of a node to the sample. A node that does not reply is left out. */
static void sample_node(tdm_runtime *runtime, const char *node_id, struct top_sample *sample)
{
    tdm_document *document;

    if (tdm__cluster_call_node(runtime, "timeline.counts", node_id, &document) == TDM_OK) {
        sample_add_node(sample, tdm_document_root(document));
        tdm_document_destroy(document);
    }
}

/* Returns the counters of the actor with this ID, or NULL if the sample does not contain the
 * actor. */
static const struct actor_calls *sample_find_actor(const struct top_sample *sample, const char *id)
{
    for (uint32_t i = 0; i < sample->count; i++) {
        if (strcmp(sample->actors[i].id, id) == 0) {
            return &sample->actors[i];
        }
    }
    return NULL;
}

/* ---- the table -------------------------------------------------------------------------- */

/* Computes an actor's row from two samples. An actor that restarted since the previous sample has
 * no rates. */
static struct actor_row actor_row_of(const struct tdm_actor_state *actor,
                                     const struct top_sample *before, const struct top_sample *now)
{
    struct actor_row actor_row = {.actor = actor,
                                  .calls_of_actor = sample_find_actor(now, actor->id)};
    const struct actor_calls *old = sample_find_actor(before, actor->id);
    double seconds = (double)(now->at_ns - before->at_ns) * 1e-9;

    if (actor_row.calls_of_actor != NULL && old != NULL &&
        actor_row.calls_of_actor->calls >= old->calls && seconds > 0) {
        actor_row.is_known = true;
        actor_row.calls = (double)(actor_row.calls_of_actor->calls - old->calls) / seconds;
        actor_row.failures = (double)(actor_row.calls_of_actor->failures - old->failures) / seconds;
        actor_row.busy =
            (double)(actor_row.calls_of_actor->busy_ns - old->busy_ns) * 1e-9 / seconds;
    }
    return actor_row;
}

/* Orders rows by load, the busiest actor first, and then by ID so that rows keep their places. */
static int compare_rows(const void *one, const void *other)
{
    const struct actor_row *left = one;
    const struct actor_row *right = other;

    if (left->busy > right->busy || left->busy < right->busy) {
        return left->busy > right->busy ? -1 : 1;
    }
    return strcmp(left->actor->id, right->actor->id);
}

/* Adds the row of an actor to the table. */
static void add_row(struct tdm__table *table, const struct actor_row *actor_row)
{
    const struct tdm_actor_state *actor = actor_row->actor;

    tdm__table_add(table, "%s", actor->name[0] != '\0' ? actor->name : actor->class_name);
    tdm__table_add(table, "%s", actor->state);
    if (actor_row->is_known) {
        tdm__table_add(table, "%.0f", actor_row->calls);
        tdm__table_add(table, "%.1f%%", actor_row->busy * 100);
        tdm__table_add(table, "%.0f", actor_row->failures);
    } else {
        for (int i = 0; i < 3; i++) {
            tdm__table_add(table, "%s", "");
        }
    }
    if (actor_row->calls_of_actor != NULL) {
        tdm__table_add(table, "%llu", (unsigned long long)actor_row->calls_of_actor->queue);
    } else {
        tdm__table_add(table, "%s", "");
    }
    tdm__table_add(table, "%s", actor->node_name);
    tdm__table_add_pid(table, actor->pid);
    tdm__table_add(table, "%.*s", (int)ID_SHOWN, actor->id);
}

/* Returns the number of rows that fit on the screen below the summary and the titles. */
static uint32_t rows_max(const struct tdm__cluster_summary *cluster_summary,
                         struct tdm__terminal_size screen)
{
    uint32_t taken = 10 + cluster_summary->amounts_count;

    if (screen.height == 0) {
        return UINT32_MAX;
    }
    return screen.height > taken ? screen.height - taken : 1;
}

/* Prints the table of actors. */
static void print_rows(const struct tdm__cluster_summary *cluster_summary,
                       const struct actor_row *rows, uint32_t count)
{
    static const char *const titles[] = {"ACTOR", "STATE", "CALLS/S", "BUSY", "FAILED/S",
                                         "QUEUE", "NODE",  "PID",     "ID",   NULL};
    struct tdm__terminal_size screen = tdm__terminal_size_of(stdout);
    uint32_t shown = rows_max(cluster_summary, screen);
    struct tdm__table *table;

    if (tdm__table_create(titles, &table) != TDM_OK) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        add_row(table, &rows[i]);
    }
    (void)putchar('\n');
    tdm__table_print_clipped(table, stdout, screen.width, shown);
    if (count > shown) {
        (void)printf("and %u more\n", count - shown);
    }
}

/* Prints the table of living actors with rates between two samples. Dead actors appear in the
 * summary only. */
static void print_actors(const struct tdm__cluster_summary *cluster_summary,
                         const struct tdm_actor_state *actors, uint32_t actors_count,
                         const struct top_sample *before, const struct top_sample *now)
{
    struct actor_row *rows = calloc(actors_count + 1, sizeof(*rows));
    uint32_t count = 0;

    if (rows == NULL) {
        return;
    }
    for (uint32_t i = 0; i < actors_count; i++) {
        if (strcmp(actors[i].state, "DEAD") != 0) {
            rows[count++] = actor_row_of(&actors[i], before, now);
        }
    }
    qsort(rows, count, sizeof(*rows), compare_rows);
    print_rows(cluster_summary, rows, count);
    free(rows);
}

/* ---- again and again -------------------------------------------------------------------- */

/* Prints the time of day. */
static void print_time(void)
{
    struct timespec now = {0};
    struct tm local;
    char text[32];

    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (localtime_r(&now.tv_sec, &local) != NULL &&
        strftime(text, sizeof(text), "%H:%M:%S", &local) > 0) {
        (void)printf("tandem top  %s\n", text);
    }
}

/* Takes a sample of the cluster and prints it. `before` is the previous sample, which is replaced
 * by the new one. */
static tdm_status top_refresh(tdm_runtime *runtime, struct top_sample *before)
{
    struct tdm__cluster_summary cluster_summary = {0};
    struct top_sample now = {.at_ns = tdm__clock_ns()};
    const struct tdm_node_state *nodes = NULL;
    const struct tdm_actor_state *actors = NULL;
    const struct tdm_placement_group_state *groups = NULL;
    uint32_t nodes_count = 0;
    uint32_t actors_count;
    uint32_t groups_count;
    tdm_status status = tdm_list_nodes(runtime, TDM__CLUSTER_TIMEOUT_MS, &nodes, &nodes_count);

    for (uint32_t i = 0; i < nodes_count; i++) {
        sample_node(runtime, nodes[i].id, &now);
    }
    if (status == TDM_OK) {
        status = tdm_list_actors(runtime, TDM__CLUSTER_TIMEOUT_MS, &actors, &actors_count,
                                 &cluster_summary.missing_nodes);
    }
    if (status == TDM_OK) {
        status =
            tdm_list_placement_groups(runtime, TDM__CLUSTER_TIMEOUT_MS, &groups, &groups_count);
    }
    if (status == TDM_OK) {
        bool on_screen = tdm__terminal_size_of(stdout).width > 0;

        tdm__cluster_summary_add_nodes(&cluster_summary, nodes, nodes_count);
        tdm__cluster_summary_add_actors(&cluster_summary, actors, actors_count);
        tdm__cluster_summary_add_groups(&cluster_summary, groups, groups_count);
        (void)fputs(on_screen ? "\033[H\033[J" : "", stdout);
        print_time();
        tdm__cluster_summary_print(&cluster_summary, stdout);
        print_actors(&cluster_summary, actors, actors_count, before, &now);
        (void)fflush(stdout);
    }
    tdm_list_free(groups);
    tdm_list_free(actors);
    tdm_list_free(nodes);
    free(before->actors);
    *before = now;
    return status;
}

/* Takes and prints `count` samples (0 means no limit), one every `every` seconds. */
static tdm_status top_refresh_loop(tdm_runtime *runtime, uint64_t every, uint64_t count)
{
    struct top_sample before = {0};
    tdm_status status = top_refresh(runtime, &before);

    for (uint64_t i = 1; status == TDM_OK && i != count && ferror(stdout) == 0; i++) {
        (void)poll(NULL, 0, (int)every * 1000);
        status = top_refresh(runtime, &before);
    }
    free(before.actors);
    return status;
}

/* Reads the value of the option `name`, a number from 1 to `max`. Prints the error and returns
 * false if the value is wrong. */
static bool read_count(const struct tdm__parsed_arguments *args, const char *name, uint64_t max,
                       uint64_t *count)
{
    const char *text = tdm__option_value(args, name);
    char *end;
    uint64_t number;

    if (text == NULL) {
        return true;
    }
    number = strtoull(text, &end, 10);
    if (end == text || *end != '\0' || number == 0 || number > max) {
        (void)tdm__refuse_arguments("top", "%s: expected a number from 1 to %llu, got \"%s\"", name,
                                    (unsigned long long)max, text);
        return false;
    }
    *count = number;
    return true;
}

/* Runs `tandem top` and returns the exit code. */
static int top_main(const struct tdm__parsed_arguments *args)
{
    uint64_t every = EVERY_SECONDS;
    uint64_t count = 0;
    tdm_runtime *runtime;
    tdm_status status;

    if (!read_count(args, "--every", EVERY_SECONDS_MAX, &every) ||
        !read_count(args, "--count", UINT32_MAX, &count)) {
        return TDM__EXIT_USAGE;
    }
    status = tdm__cluster_join(args, &runtime);
    return status == TDM_OK ? tdm__cluster_leave(runtime, top_refresh_loop(runtime, every, count))
                            : tdm__command_failed(status);
}

const struct tdm__command tdm__command_top = {
    .name = "top",
    .summary = "watch what a running cluster does",
    .help = "usage: tandem top [--every SECONDS] [--count N] [--address ADDRESS]\n\n"
            "`tandem status` and the living actors, the busiest first, with the calls of each\n"
            "a second, those that failed, how much of the time its methods ran (of several\n"
            "at once the sum), and the calls that wait.  Ctrl-C ends it.\n\n"
            "  --every    seconds between two looks (2)\n"
            "  --count    looks; default: without end.  The first one knows no rates yet.\n"
            "  --address  of a node; default: TANDEM_ADDRESS, else the only node here\n",
    .options = options,
    .run = top_main};
