/* main.c - many simulated clusters, each with the faults of its seed. */
/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_sim_test [-t SECONDS] [count [first]]: worlds of `count` seeds from `first` (1) on, at
 * most for SECONDS of real time, but WORLDS_LEAST of them in any case. cluster_sim_test -s SEED...:
 * those of the seeds. TANDEM_SEED=n runs only that one, with TANDEM_TRACE=1 its history is printed.
 */
#include "tests/cluster_sim/world.h"
#include "tests/sim/fiber.h"
#include "tests/sim/sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* With -t so many seeds run however long that takes. A slow machine does so in a minute. */
enum { WORLDS_LEAST = 150 };
enum { WORLDS = 500, SECONDS = 3600 };

static double seconds(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The lowest descriptor that is free: what was opened has been closed. */
static int free_descriptor(void)
{
    int fd = dup(STDIN_FILENO);

    (void)close(fd);
    return fd;
}

static void remove_directory(const char *directory)
{
    for (int i = 1; i < 8; i++) {
        static const char *const formats[] = {"%s/d%d/logs/daemon.log", "%s/d%d/logs", "%s/d%d",
                                              "%s/m%d-daemon"};
        char path[200];

        for (size_t k = 0; k < sizeof(formats) / sizeof(formats[0]); k++) {
            (void)snprintf(path, sizeof(path), formats[k], directory, i);
            (void)remove(path);
        }
    }
    (void)rmdir(directory);
}

/* Runs the world of a seed. */
static void run(uint64_t seed, const char *directory)
{
    int before = free_descriptor();

    world_run(seed, directory);
    if (free_descriptor() != before) {
        world_fail("a descriptor was left open");
    }
}

int main(int argc, char **argv)
{
    bool has_seeds = argc > 1 && strcmp(argv[1], "-s") == 0;
    const char *given = secure_getenv("TANDEM_SEED");
    bool has_limit = argc > 2 && strcmp(argv[1], "-t") == 0;
    double limit = has_limit ? strtod(argv[2], NULL) : SECONDS;
    int next = has_limit ? 3 : 1;
    uint64_t count = argc > next ? strtoull(argv[next], NULL, 0) : WORLDS;
    uint64_t first = argc > next + 1 ? strtoull(argv[next + 1], NULL, 0) : 1;
    uint64_t done = 0;
    double began = seconds();
    char directory[] = "/tmp/tandem-sim-XXXXXX";

    if (mkdtemp(directory) == NULL) {
        perror(directory);
        return 1;
    }
    sim_log_begin();
    sim_trace_on(secure_getenv("TANDEM_TRACE") != NULL);
    for (int i = 2; has_seeds && i < argc; i++, done++) {
        run(strtoull(argv[i], NULL, 0), directory);
    }
    if (has_seeds) {
        count = 0;
    } else if (given != NULL) {
        first = strtoull(given, NULL, 0);
        count = 1;
    }
    for (uint64_t seed = first;
         seed < first + count && (done < WORLDS_LEAST || seconds() - began < limit);
         seed++, done++) {
        run(seed, directory);
    }
    fiber_trim();
    remove_directory(directory);
    if (count > 0) {
        (void)printf("seeds %" PRIu64 " to %" PRIu64 ": ", first, first + done - 1);
    }
    (void)printf("%" PRIu64 " clusters, %" PRIu64 " steps, %" PRIu64 " simulated seconds, %" PRIu64
                 " faults, %" PRIu64 " workers, %" PRIu64 " calls (%" PRIu64
                 " refused), %.1f clusters a second\n",
                 done, world_totals.steps, world_totals.simulated_ms / 1000, world_totals.faults,
                 world_totals.workers, world_totals.calls, world_totals.refused_calls,
                 (double)done / (seconds() - began));
    return 0;
}
