/* main.c - many random programs, each in a simulated world of its own. */
/* SPDX-License-Identifier: Apache-2.0 */
/* sim_test [count [first]]: worlds of `count` seeds from `first` (1) on.  TANDEM_SEED=n runs only
 * that one, with TANDEM_TRACE=1 its history is printed. */
#include "tests/sim/fiber.h"
#include "tests/sim/model.h"
#include "tests/sim/program.h"
#include "tests/sim/sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SIMULATIONS = 500 };

struct totals {
    uint64_t steps;
    uint64_t calls;
    uint64_t failures;
    uint64_t cuts;
    uint64_t ends;
};

static void add(struct totals *totals)
{
    totals->steps += sim_steps_count();
    totals->calls += model.calls_count;
    totals->failures += model.failures_count;
    totals->cuts += model.cuts_count + model.owner_cuts_count;
    totals->ends += model.ends_count;
}

/* The lowest descriptor that is free: what was opened has been closed. */
static int free_descriptor(void)
{
    int fd = dup(STDIN_FILENO);

    (void)close(fd);
    return fd;
}

int main(int argc, char **argv)
{
    const char *given = secure_getenv("TANDEM_SEED");
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 0) : SIMULATIONS;
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    char directory[] = "/tmp/tandem-sim-XXXXXX";
    struct totals totals = {0};

    if (mkdtemp(directory) == NULL) {
        perror(directory);
        return 1;
    }
    sim_log_begin();
    sim_trace_on(secure_getenv("TANDEM_TRACE") != NULL);
    if (given != NULL) {
        first = strtoull(given, NULL, 0);
        count = 1;
    }
    for (uint64_t seed = first; seed < first + count; seed++) {
        int before = free_descriptor();

        program_run(seed, directory);
        add(&totals);
        if (free_descriptor() != before) {
            model_fail("a descriptor was left open");
        }
    }
    fiber_trim();
    (void)rmdir(directory);
    (void)printf("%" PRIu64 " worlds, seeds %" PRIu64 " to %" PRIu64 ": %" PRIu64 " steps, %" PRIu64
                 " calls (%" PRIu64 " failed as they may), %" PRIu64 " connections cut, %" PRIu64
                 " processes ended\n",
                 count, first, first + count - 1, totals.steps, totals.calls, totals.failures,
                 totals.cuts, totals.ends);
    return 0;
}
