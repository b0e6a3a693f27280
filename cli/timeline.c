/* timeline.c - `tandem timeline`: writes the calls of all actors as a Chrome trace. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Every actor that runs with TANDEM_TIMELINE=1 keeps its last calls as spans. The command collects
 * them from the daemons of all nodes, and keeps the documents until the file is written.
 *
 * Spans have times of their node's monotonic clock. Each node also sends the offset to the time of
 * day, by which the spans of different nodes are aligned. The earliest span is placed at the
 * beginning of the trace. In the trace an actor is a process and a call is a span. There is one
 * thread. */

#include "actors/common/worker_metrics.h"
#include "cli/cluster.h"
#include "colocate/job/trace.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <string.h>
#include <tandem/state.h>

static struct tdm__option options[] = {
    {"-o", true, NULL}, {"--address", true, NULL}, {NULL, false, NULL}};

/* Largest number of nodes in a trace. */
enum { NODES_MAX = 256 };

/* The collected spans and the trace that is being written. */
struct timeline {
    /* Replies of the nodes, with the spans of their actors (owned). */
    tdm_document *nodes[NODES_MAX];
    uint32_t nodes_count; /* Number of entries in `nodes`. */
    /* Time of day of the earliest span, in nanoseconds. */
    int64_t earliest_ns;
    uint64_t spans_count; /* Number of spans of all nodes. */
    /* Number of actors that were written so far, which is the process number of the last one in the
     * trace. */
    uint32_t actors_count;
    /* Time on the trace's clock at which the earliest span is placed, in nanoseconds. */
    int64_t base_ns;
    struct tdm__trace *trace; /* Trace file that is being written. */
};

/* Calls `fn` for every actor in the nodes' replies whose spans can be decoded. */
static void timeline_each_actor(struct timeline *timeline,
                                void (*fn)(struct timeline *timeline,
                                           const struct tdm__timeline_message *node,
                                           const struct tdm__timeline_actor_message *actor,
                                           const struct tdm__message_list *spans))
{
    for (uint32_t i = 0; i < timeline->nodes_count; i++) {
        struct tdm__timeline_message node;

        if (tdm__timeline_decode(tdm_document_root(timeline->nodes[i]), &node) != TDM_OK) {
            continue;
        }
        for (uint32_t k = 0; k < node.actors.count; k++) {
            struct tdm__timeline_actor_message actor;
            struct tdm__actor_spans_message reply;

            tdm__message_list_read(&node.actors, k, &actor, sizeof(actor));
            if (tdm__actor_spans_decode(actor.reply.value, &reply) == TDM_OK) {
                fn(timeline, &node, &actor, &reply.spans);
            }
        }
    }
}

/* Counts the spans of one actor and updates the time of the earliest span. */
static void timeline_find_first(struct timeline *timeline, const struct tdm__timeline_message *node,
                                const struct tdm__timeline_actor_message *actor,
                                const struct tdm__message_list *spans)
{
    (void)actor;
    for (uint32_t i = 0; i < spans->count; i++) {
        struct tdm__actor_span_message span;
        int64_t began_ns;

        tdm__message_list_read(spans, i, &span, sizeof(span));
        began_ns = span.began_ns + node->time_of_day_offset_ns;
        if (timeline->spans_count == 0 || began_ns < timeline->earliest_ns) {
            timeline->earliest_ns = began_ns;
        }
        timeline->spans_count++;
    }
}

/* Writes one call of an actor to the trace. */
static void timeline_write_span(struct timeline *timeline, const struct tdm__timeline_message *node,
                                const struct tdm__actor_span_message *span, uint32_t process)
{
    int64_t offset_ns = timeline->base_ns + node->time_of_day_offset_ns - timeline->earliest_ns;
    const struct tdm__trace_argument arguments[] = {
        {.name = "call", .number = (double)span->call_id},
        {.name = "caller_pid", .number = (double)span->caller_pid},
        {.name = "status", .text = tdm_strerror((tdm_status)span->status)}};
    const struct tdm__trace_event event = {.name = span->method,
                                           .category = span->status == TDM_OK ? "call" : "failed",
                                           .process = process,
                                           .begin_ns = span->began_ns + offset_ns,
                                           .end_ns = span->ended_ns + offset_ns,
                                           .arguments = arguments,
                                           .arguments_count =
                                               sizeof(arguments) / sizeof(arguments[0])};

    tdm__trace_event(timeline->trace, &event);
}

/* Writes the calls of one actor to the trace. */
static void timeline_write_actor(struct timeline *timeline,
                                 const struct tdm__timeline_message *node,
                                 const struct tdm__timeline_actor_message *actor,
                                 const struct tdm__message_list *spans)
{
    /* Number of the process in the trace. The number is not the process ID, because two machines
     * may use the same process ID. */
    uint32_t process;
    char label[512];

    if (spans->count == 0) {
        return;
    }
    process = ++timeline->actors_count;
    (void)snprintf(label, sizeof(label), "%s on %s, pid %lld",
                   actor->name[0] != '\0' ? actor->name : actor->class_name, node->node_name,
                   (long long)actor->pid);
    tdm__trace_name_process(timeline->trace, process, label);
    tdm__trace_name_thread(timeline->trace, process, 0, "calls");
    for (uint32_t i = 0; i < spans->count; i++) {
        struct tdm__actor_span_message span;

        tdm__message_list_read(spans, i, &span, sizeof(span));
        timeline_write_span(timeline, node, &span, process);
    }
}

/* Collects the spans of all nodes. Nodes that do not reply are reported and left out. */
static tdm_status timeline_collect(tdm_runtime *runtime, struct timeline *timeline)
{
    const struct tdm_node_state *nodes;
    uint32_t count;

    TDM_TRY(tdm_list_nodes(runtime, TDM__CLUSTER_TIMEOUT_MS, &nodes, &count));
    for (uint32_t i = 0; i < count; i++) {
        if (timeline->nodes_count == NODES_MAX) {
            (void)fprintf(stderr,
                          "tandem: warning: the timeline is incomplete: it has the calls of %d "
                          "nodes, and %u more are left out\n",
                          (int)NODES_MAX, count - i);
            break;
        }
        if (tdm__cluster_call_node(runtime, "timeline.read", nodes[i].id,
                                   &timeline->nodes[timeline->nodes_count]) == TDM_OK) {
            timeline->nodes_count++;
        } else {
            (void)fprintf(stderr, "tandem: warning: the timeline is incomplete: node %s: %s\n",
                          nodes[i].name, tdm_error_detail());
        }
    }
    tdm_list_free(nodes);
    return TDM_OK;
}

/* Writes the collected spans to a trace file at `path`. */
static tdm_status timeline_write_file(struct timeline *timeline, const char *path)
{
    TDM_TRY(tdm__trace_open(path, &timeline->trace));
    timeline->base_ns = tdm__clock_ns();
    timeline_each_actor(timeline, timeline_write_actor);
    TDM_TRY(tdm__trace_close(timeline->trace));
    (void)printf("%llu calls in %s\n", (unsigned long long)timeline->spans_count, path);
    return TDM_OK;
}

/* Collects the spans of all nodes and writes them to a trace file at `path`. Fails if there are no
 * spans. */
static tdm_status timeline_run(tdm_runtime *runtime, const char *path)
{
    struct timeline timeline = {0};
    tdm_status status = timeline_collect(runtime, &timeline);

    if (status == TDM_OK) {
        timeline_each_actor(&timeline, timeline_find_first);
        if (timeline.spans_count == 0) {
            status = tdm__fail(
                TDM_E_NOT_FOUND,
                "writing the timeline failed: no actor has recorded a call. Set TANDEM_TIMELINE=1 "
                "in the environment of the node (of the driver, if the node is private)");
        }
    }
    if (status == TDM_OK) {
        status = timeline_write_file(&timeline, path);
    }
    while (timeline.nodes_count > 0) {
        timeline.nodes_count--;
        tdm_document_destroy(timeline.nodes[timeline.nodes_count]);
    }
    return status;
}

/* Runs `tandem timeline` and returns the exit code. */
static int timeline_main(const struct tdm__parsed_arguments *args)
{
    const char *path = tdm__option_value(args, "-o");
    tdm_runtime *runtime;
    tdm_status status = tdm__cluster_join(args, &runtime);

    if (status != TDM_OK) {
        return tdm__command_failed(status);
    }
    return tdm__cluster_leave(runtime,
                              timeline_run(runtime, path == NULL ? "timeline.json" : path));
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
    .run = timeline_main};
