/* soak.c - a load generator: threads perform random operations until the time is over.
 *
 *     soak SECONDS THREADS SEED NUMBER [ACT]
 *
 * It prints one line of counts each second, and each failure on stderr.  A line ends with the
 * KiB of its heap that are in use, that the allocator has, and that were in use at the last
 * rest.  Each minute all threads rest between two operations.  What is in use then is what they
 * keep: their actors and Tandem's own state.  The script scripts/soak starts it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "soak.h"

#include <inttypes.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* All operations with their relative frequencies. */
static const struct soak_operation acts[] = {
    {"call_one_by_one", soak_call_one_by_one, 20},
    {"call_pipelined", soak_call_pipelined, 20},
    {"call_large_argument", soak_call_large_argument, 10},
    {"call_large_reply", soak_call_large_reply, 10},
    {"call_stream", soak_call_stream, 10},
    {"call_stream_left", soak_call_stream_abandoned, 5},
    {"call_canceled", soak_call_canceled, 5},
    {"call_too_late", soak_call_past_deadline, 2},
    {"call_asynchronous", soak_call_asynchronous, 10},
    {"call_threaded", soak_call_threaded, 10},
    {"call_failing", soak_call_failing, 5},
    {"put_small", soak_put_small, 10},
    {"put_large", soak_put_large, 10},
    {"borrow", soak_borrow_reference, 10},
    {"chain", soak_chain_references, 10},
    {"pass_handle", soak_pass_handle, 5},
    {"create_and_kill", soak_create_and_kill, 5},
    {"create_and_let_go", soak_create_and_release, 5},
    {"create_named", soak_create_named, 5},
    {"create_broken", soak_create_broken, 2},
    {"create_inside", soak_create_in_actor, 3},
    {"restart", soak_restart, 3},
    {"cancel_by_force", soak_force_cancel, 2},
    {"group", soak_placement_group, 5},
    {"list", soak_list_state, 1},
    {"replace", soak_replace_actor, 1},
};

/* Number of operations and most threads. */
enum { ACTS = sizeof(acts) / sizeof(acts[0]), THREADS_MAX = 64 };
/* Seconds between two rests, and milliseconds to wait for asynchronous releases during a
 * rest. */
enum { REST_EVERY_SECONDS = 60, SETTLE_MS = 500 };

/* Counts of all threads. */
static struct soak_totals counts;
/* Time at which all threads stop, in seconds of CLOCK_MONOTONIC. */
static double deadline;
static const char *only; /* The only operation to perform; NULL for all of them. */

/* State of the rest, protected by `rest_lock`: while `rest_wanted` is set, threads stop
 * between two operations; `working_count` is the number of threads that have not stopped. */
static pthread_mutex_t rest_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t rest_changed = PTHREAD_COND_INITIALIZER;
static bool rest_wanted;
static uint64_t working_count;
static size_t rest_heap_bytes;

/* Returns seconds of CLOCK_MONOTONIC. */
static double seconds_now(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Returns the weight of an operation; 0 if only another one is wanted. */
static uint32_t weight_of(const struct soak_operation *act)
{
    return only == NULL || strcmp(only, act->name) == 0 ? act->weight : 0;
}

/* Returns the sum of all weights. */
static uint64_t weight_of_all(void)
{
    uint64_t total = 0;

    for (size_t i = 0; i < ACTS; i++) {
        total += weight_of(&acts[i]);
    }
    return total;
}

/* Chooses a random operation by weight. */
static const struct soak_operation *choose_operation(struct soak_thread *driver_thread)
{
    uint64_t drawn = soak_random(driver_thread, weight_of_all());
    size_t i = 0;

    for (; drawn >= weight_of(&acts[i]); i++) {
        drawn -= weight_of(&acts[i]);
    }
    return &acts[i];
}

/* Performs one random operation. After a failure it reports it and replaces the thread's actors. */
static void act_once(struct soak_thread *driver_thread)
{
    const char *name = "prepare";
    tdm_status status = soak_thread_create_actors(driver_thread);

    if (status == TDM_OK) {
        const struct soak_operation *act = choose_operation(driver_thread);

        name = act->name;
        status = act->run(driver_thread);
    }
    counts.acts++;
    if (status != TDM_OK) {
        counts.failures_count++;
        (void)fprintf(stderr, "thread %" PRIu64 ": %s: %s: %s\n", driver_thread->number, name,
                      tdm_strerror(status), tdm_error_detail());
        soak_thread_destroy_actors(driver_thread);
    }
}

/* Returns the bytes of the heap that are in use. */
static size_t heap_bytes(void)
{
    const struct mallinfo2 heap = mallinfo2();

    return heap.uordblks + heap.hblkhd;
}

/* Changes the number of working threads. The caller must hold `rest_lock`. */
static void change_working(int by)
{
    working_count += (uint64_t)by;
    (void)pthread_cond_broadcast(&rest_changed);
}

/* Stops the thread while a rest is wanted. */
static void rest_if_wanted(void)
{
    (void)pthread_mutex_lock(&rest_lock);
    if (rest_wanted) {
        change_working(-1);
        while (rest_wanted) {
            (void)pthread_cond_wait(&rest_changed, &rest_lock);
        }
        change_working(+1);
    }
    (void)pthread_mutex_unlock(&rest_lock);
}

/* Stops all threads, waits until asynchronous releases are done, measures the heap, and lets the
 * threads continue. */
static void measure_at_rest(void)
{
    (void)pthread_mutex_lock(&rest_lock);
    rest_wanted = true;
    while (working_count > 0) {
        (void)pthread_cond_wait(&rest_changed, &rest_lock);
    }
    (void)poll(NULL, 0, SETTLE_MS);
    rest_heap_bytes = heap_bytes();
    rest_wanted = false;
    (void)pthread_cond_broadcast(&rest_changed);
    (void)pthread_mutex_unlock(&rest_lock);
}

/* Main function of a thread. */
static void *run_thread(void *arg)
{
    struct soak_thread *driver_thread = arg;

    while (seconds_now() < deadline) {
        rest_if_wanted();
        act_once(driver_thread);
    }
    soak_thread_destroy_actors(driver_thread);
    (void)pthread_mutex_lock(&rest_lock);
    change_working(-1);
    (void)pthread_mutex_unlock(&rest_lock);
    return NULL;
}

/* Prints one line of counts. */
static void print_counts(void)
{
    const struct mallinfo2 heap = mallinfo2();

    (void)printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
                 " %zu %zu %zu\n",
                 counts.acts, counts.calls, counts.bytes, counts.actors, counts.groups,
                 counts.failures_count, heap_bytes() / 1024, (heap.arena + heap.hblkhd) / 1024,
                 rest_heap_bytes / 1024);
    (void)fflush(stdout);
}

/* Returns the ID of another node, or of this node if there is no other one. */
static void find_remote_node(tdm_runtime *runtime, char remote_node_id[33])
{
    const struct tdm_node_state *nodes;
    struct tdm_runtime_info info;
    uint32_t count;

    tdm_runtime_describe(runtime, &info);
    (void)snprintf(remote_node_id, 33, "%s", info.node_id);
    TDM_CHECK(tdm_list_nodes(runtime, SOAK_TIMEOUT_MS, &nodes, &count));
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(nodes[i].id, info.node_id) != 0) {
            (void)snprintf(remote_node_id, 33, "%s", nodes[i].id);
        }
    }
    tdm_list_free(nodes);
}

/* Allocates and fills the thread's words. Returns false if memory is exhausted. */
static bool soak_thread_open(struct soak_thread *driver_thread)
{
    driver_thread->words = malloc(SOAK_MIB);
    if (driver_thread->words == NULL) {
        return false;
    }
    for (uint64_t i = 0; i < SOAK_MIB / sizeof(uint64_t); i++) {
        driver_thread->words[i] = soak_random(driver_thread, UINT64_MAX);
    }
    return true;
}

/* Prints the counts each second and measures at rest each minute, until the deadline. */
static void monitor_threads(void)
{
    double next_rest = seconds_now() + REST_EVERY_SECONDS;

    while (seconds_now() < deadline) {
        print_counts();
        (void)poll(NULL, 0, 1000);
        if (seconds_now() >= next_rest) {
            measure_at_rest();
            next_rest += REST_EVERY_SECONDS;
        }
    }
}

/* Runs all threads until the deadline. */
static void run_threads(tdm_runtime *runtime, uint64_t threads_count, uint64_t seed,
                        uint64_t number)
{
    static struct soak_thread thread_states[THREADS_MAX];
    pthread_t threads[THREADS_MAX];
    char remote_node_id[33];
    uint64_t started = 0;

    find_remote_node(runtime, remote_node_id);
    for (; started < threads_count; started++) {
        uint64_t thread_number = number * THREADS_MAX + started;

        thread_states[started] = (struct soak_thread){.runtime = runtime,
                                                      .counts = &counts,
                                                      .remote_node_id = remote_node_id,
                                                      .random_state = seed + (thread_number << 32),
                                                      .number = thread_number};
        (void)pthread_mutex_lock(&rest_lock);
        change_working(+1);
        (void)pthread_mutex_unlock(&rest_lock);
        if (!soak_thread_open(&thread_states[started]) ||
            pthread_create(&threads[started], NULL, run_thread, &thread_states[started]) != 0) {
            (void)fprintf(stderr, "soak: only %" PRIu64 " threads\n", started);
            counts.failures_count++;
            break;
        }
    }
    monitor_threads();
    for (uint64_t i = 0; i < started; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    for (uint64_t i = 0; i < threads_count; i++) {
        free(thread_states[i].words);
    }
    print_counts();
}

/* Parses a whole number; prints an error and returns false if the text is not a number. */
static bool read_number(const char *text, uint64_t *number_out)
{
    char *end;
    unsigned long long number = strtoull(text, &end, 10);

    if (end == text || *end != '\0') {
        (void)fprintf(stderr, "soak: \"%s\" is no number\n", text);
        return false;
    }
    *number_out = number;
    return true;
}

int main(int argc, char **argv)
{
    tdm_runtime *runtime;
    uint64_t numbers[4]; /* The numbers are seconds, threads, seed and number. */

    /* In the process of an actor this call does not return. */
    TDM_CHECK(tdm_runtime_start(NULL, &runtime));
    only = argc == 6 ? argv[5] : NULL;
    if (argc < 5 || argc > 6 || weight_of_all() == 0) {
        (void)fprintf(stderr, "usage: soak SECONDS THREADS SEED NUMBER [ACT]\n");
        return 2;
    }
    for (int i = 0; i < 4; i++) {
        if (!read_number(argv[i + 1], &numbers[i])) {
            return 2;
        }
    }
    if (numbers[1] > THREADS_MAX) {
        (void)fprintf(stderr, "soak: at most %d threads\n", THREADS_MAX);
        return 2;
    }
    deadline = seconds_now() + (double)numbers[0];
    run_threads(runtime, numbers[1], numbers[2], numbers[3]);
    tdm_runtime_stop(runtime);
    return counts.failures_count > 0;
}
