/* side.c - runs the rounds that bench/against_ray/compare.py asks for and prints their numbers. */
/* SPDX-License-Identifier: Apache-2.0 */
/* It reads lines "ROUND SECONDS" from stdin and replies to each with a line of numbers on
 * stdout. With the argument "raw" it runs the rounds of the bare processes and starts no
 * runtime. */
#include "side.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A round and the name by which it is requested. */
struct named_round {
    /* Name; NULL ends a table. */
    const char *name;
    /* Function that runs it. */
    side_round_fn *run;
};

/* Rounds of Tandem. */
static const struct named_round ours[] = {
    {"call_same_core", side_call_same_core},
    {"call_own_cores", side_call_own_cores},
    {"pipelined", side_pipelined},
    {"two_by_two", side_two_by_two},
    {"call_mib", side_call_mib},
    {"put_large", side_put_large_objects},
    {"put_small", side_put_small},
    {"get_small", side_get_small},
    {"group", side_placement_group},
    {"actor_life", side_actor_lifecycle},
    {"idle", side_idle_actors},
    {"first_call", side_first_call},
    {NULL, NULL},
};

/* Rounds of bare processes. */
static const struct named_round raw[] = {
    {"call_same_core", side_raw_same_core},
    {"call_own_cores", side_raw_own_cores},
    {"pipelined", side_raw_pipelined},
    {"pipelined_singly", side_raw_one_by_one},
    {"two_by_two", side_raw_two_by_two},
    {"two_by_two_singly", side_raw_two_by_two_singly},
    {"call_mib", side_raw_copy_twice},
    {"put_large", side_raw_copy},
    {NULL, NULL},
};

void side_numbers_add(struct side_numbers *numbers, double value)
{
    if (numbers->count < SIDE_NUMBERS_MAX) {
        numbers->values[numbers->count++] = value;
    }
}

void side_numbers_add_rate(struct side_numbers *numbers, struct side_latencies *latencies,
                           double elapsed)
{
    side_numbers_add(numbers, latencies->count / elapsed);
    side_numbers_add(numbers, bench_median(latencies->values, latencies->count) * 1e6);
}

void side_expect_equal(uint64_t wanted, uint64_t got, const char *what)
{
    if (wanted != got) {
        TDM_CHECK(tdm_fail(TDM_E_PROTOCOL, "%s: wanted %llu, got %llu", what,
                           (unsigned long long)wanted, (unsigned long long)got));
    }
}

/* Computes four independent sums, so that the hash is as fast as memory is read. */
uint64_t side_hash(const void *data, size_t size_bytes)
{
    uint64_t sums[4] = {1, 2, 3, 4};
    uint64_t words[4];

    for (size_t i = 0; i + sizeof(words) <= size_bytes; i += sizeof(words)) {
        memcpy(words, (const char *)data + i, sizeof(words));
        for (int sum = 0; sum < 4; sum++) {
            sums[sum] = (sums[sum] ^ words[sum]) * 0x9e3779b97f4a7c15u;
        }
    }
    return sums[0] ^ (sums[1] << 1) ^ (sums[2] << 2) ^ (sums[3] << 3);
}

tdm_actor *side_actor(tdm_runtime *runtime, const char *class_name)
{
    static struct {
        const char *class_name;
        tdm_actor *actor;
    } made[8];

    for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
        if (made[i].actor == NULL) {
            made[i].class_name = class_name;
            TDM_CHECK(tdm_actor_create(runtime, class_name, NULL, &made[i].actor, ""));
            TDM_CHECK(tdm_actor_wait_ready(made[i].actor, SIDE_TIMEOUT_MS));
        }
        if (strcmp(made[i].class_name, class_name) == 0) {
            return made[i].actor;
        }
    }
    bench_die("more classes than expected");
}

pid_t side_actor_pid(tdm_actor *actor)
{
    struct tdm_actor_info info;

    tdm_actor_describe(actor, &info);
    return (pid_t)info.pid;
}

/* Runs the round that `line` names and prints its numbers. */
static void run_round(const struct named_round *rounds, tdm_runtime *runtime, char *line)
{
    struct side_numbers numbers = {0};
    char *seconds = strchr(line, ' ');

    if (seconds == NULL) {
        bench_die("a line is: ROUND SECONDS");
    }
    *seconds++ = '\0';
    while (rounds->name != NULL && strcmp(rounds->name, line) != 0) {
        rounds++;
    }
    if (rounds->name == NULL) {
        bench_die(line);
    }
    rounds->run(runtime, strtod(seconds, NULL), &numbers);
    for (uint32_t i = 0; i < numbers.count; i++) {
        (void)printf("%.17g ", numbers.values[i]);
    }
    (void)printf("\n");
    (void)fflush(stdout);
}

int main(int argc, char **argv)
{
    bool is_raw = argc == 2 && strcmp(argv[1], "raw") == 0;
    tdm_runtime *runtime = NULL;
    char line[128];

    bench_peer_run(argc, argv, side_raw_roles, side_raw_roles_count);
    if (!is_raw) {
        TDM_CHECK(tdm_runtime_start(NULL, &runtime));
    }
    while (fgets(line, sizeof(line), stdin) != NULL) {
        run_round(is_raw ? raw : ours, runtime, line);
    }
    tdm_runtime_stop(runtime);
    return 0;
}
