/* timeline.c - `tandem timeline`: what ran when, as a Chrome trace. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/observe.h"
#include "cli/cluster.h"
#include "colocate/job/trace.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdio.h>
#include <string.h>
#include <tandem/state.h>

static struct tdm__option options[] = {
    {"-o", true, NULL}, {"--address", true, NULL}, {NULL, false, NULL}};

enum { NODES_MAX = 256 };

/* What the nodes told; an actor is a process of the trace, its row the calls it ran. */
struct timeline {
    tdm_document *nodes[NODES_MAX]; /* owned */
    uint32_t nodes_count;
    int64_t first_ns; /* time of day of the earliest span */
    uint64_t spans_count;
    uint32_t actors_count; /* with spans: their numbers in the trace */
    int64_t base_ns;       /* of the trace: the earliest span is put there */
    struct tdm__trace *trace;
};

/* Calls fn for every actor: its row, and its node's offset to the time of day. */
static void each_actor(struct timeline *timeline,
                       void (*fn)(struct timeline *timeline, const tdm_value *node,
                                  const tdm_value *actor))
{
    for (uint32_t i = 0; i < timeline->nodes_count; i++) {
        const tdm_value *node = tdm_document_root(timeline->nodes[i]);
        const tdm_value *actors = tdm_value_at(node, 2);

        for (uint32_t k = 0; k < tdm_value_count(actors); k++) {
            fn(timeline, node, tdm_value_at(actors, k));
        }
    }
}

static int64_t time_of(const tdm_value *node, const tdm_value *span, uint32_t field)
{
    return tdm_value_int(tdm_value_at(span, field), 0) +
           tdm_value_int(tdm_value_at(node, 1), 0);
}

static void find_first(struct timeline *timeline, const tdm_value *node, const tdm_value *actor)
{
    const tdm_value *spans = tdm_value_at(actor, 4);

    for (uint32_t i = 0; i < tdm_value_count(spans); i++) {
        int64_t began_ns = time_of(node, tdm_value_at(spans, i), 4);

        if (timeline->spans_count == 0 || began_ns < timeline->first_ns) {
            timeline->first_ns = began_ns;
        }
        timeline->spans_count++;
    }
}

static void write_span(struct timeline *timeline, const tdm_value *node, const tdm_value *span,
                       uint32_t process)
{
    int64_t status = tdm_value_int(tdm_value_at(span, 6), 0);
    const struct tdm__trace_argument arguments[] = {
        {.name = "call", .number = (double)tdm_value_uint(tdm_value_at(span, 1), 0)},
        {.name = "caller_pid", .number = (double)tdm_value_int(tdm_value_at(span, 3), 0)},
        {.name = "status", .text = tdm_strerror((tdm_status)status)}};
    const struct tdm__trace_event event = {
        .name = tdm_value_string(tdm_value_at(span, 0), "?"),
        .category = status == TDM_OK ? "call" : "failed",
        .process = process,
        .begin_ns = timeline->base_ns + time_of(node, span, 4) - timeline->first_ns,
        .end_ns = timeline->base_ns + time_of(node, span, 5) - timeline->first_ns,
        .arguments = arguments,
        .arguments_count = sizeof(arguments) / sizeof(arguments[0])};

    tdm__trace_event(timeline->trace, &event);
}

static void write_actor(struct timeline *timeline, const tdm_value *node,
                        const tdm_value *actor)
{
    const tdm_value *spans = tdm_value_at(actor, 4);
    const char *name = tdm_value_string(tdm_value_at(actor, 2), "");
    uint32_t process; /* no pid: those of two machines may be the same */
    char label[256];

    if (tdm_value_count(spans) == 0) {
        return;
    }
    process = ++timeline->actors_count;
    (void)snprintf(label, sizeof(label), "%s on %s, pid %lld",
                   name[0] != '\0' ? name : tdm_value_string(tdm_value_at(actor, 1), "?"),
                   tdm_value_string(tdm_value_at(node, 0), "?"),
                   (long long)tdm_value_int(tdm_value_at(actor, 3), 0));
    tdm__trace_name_process(timeline->trace, process, label);
    tdm__trace_name_thread(timeline->trace, process, 0, "calls");
    for (uint32_t i = 0; i < tdm_value_count(spans); i++) {
        write_span(timeline, node, tdm_value_at(spans, i), process);
    }
}

static tdm_status ask_all(tdm_runtime *runtime, struct timeline *timeline)
{
    const struct tdm_node_state *nodes;
    uint32_t count;

    TDM_TRY(tdm_list_nodes(runtime, TDM__CLUSTER_MS, &nodes, &count));
    for (uint32_t i = 0; i < count; i++) {
        if (timeline->nodes_count == NODES_MAX) {
            (void)fprintf(stderr,
                          "tandem: the calls of %u nodes more are left out: at most %d\n",
                          count - i, (int)NODES_MAX);
            break;
        }
        if (tdm__cluster_ask_node(runtime, "timeline.read", nodes[i].id,
                                  &timeline->nodes[timeline->nodes_count]) == TDM_OK) {
            timeline->nodes_count++;
        } else {
            (void)fprintf(stderr, "tandem: node %s: %s\n", nodes[i].name, tdm_error_detail());
        }
    }
    tdm_list_free(nodes);
    return TDM_OK;
}

static tdm_status write_file(struct timeline *timeline, const char *path)
{
    TDM_TRY(tdm__trace_open(path, &timeline->trace));
    timeline->base_ns = tdm__clock_ns();
    each_actor(timeline, write_actor);
    TDM_TRY(tdm__trace_close(timeline->trace));
    (void)printf("%llu calls in %s\n", (unsigned long long)timeline->spans_count, path);
    return TDM_OK;
}

static tdm_status collect(tdm_runtime *runtime, const char *path)
{
    struct timeline timeline = {0};
    tdm_status status = ask_all(runtime, &timeline);

    if (status == TDM_OK) {
        each_actor(&timeline, find_first);
        if (timeline.spans_count == 0) {
            status = tdm__fail(TDM_E_NOT_FOUND,
                               "no actor has recorded a call: they do with TANDEM_TIMELINE=1 "
                               "in their environment (a private node's: the driver's)");
        }
    }
    if (status == TDM_OK) {
        status = write_file(&timeline, path);
    }
    while (timeline.nodes_count > 0) {
        timeline.nodes_count--;
        tdm_document_destroy(timeline.nodes[timeline.nodes_count]);
    }
    return status;
}

static int run(const struct tdm__words *words)
{
    const char *path = tdm__option_value(words, "-o");
    tdm_runtime *runtime;
    tdm_status status = tdm__cluster_join(words, &runtime);

    if (status != TDM_OK) {
        return tdm__command_failed(status);
    }
    return tdm__cluster_leave(runtime, collect(runtime, path == NULL ? "timeline.json" : path));
}

const struct tdm__command tdm__command_timeline = {
    .name = "timeline",
    .summary = "write what the actors ran when, as a Chrome trace",
    .help = "usage: tandem timeline [-o FILE] [--address ADDRESS]\n\n"
            "Collects the last 16,384 calls of each living actor that was started with\n"
            "TANDEM_TIMELINE=1 in its environment, and writes a file that Perfetto and\n"
            "chrome://tracing open: an actor is a process, a call a span.\n\n"
            "  -o FILE    default: timeline.json\n"
            "  --address  of a node; default: TANDEM_ADDRESS, else the only node here\n",
    .options = options,
    .run = run};
