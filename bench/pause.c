/* pause.c - compares pausing and resuming a region with contents with memcpy of the same bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
/* An actor owns the region and measures itself. A pause copies the contents, unmaps them and
 * returns the pages. A resume takes pages, which the kernel clears, maps them and copies the
 * contents back. The peer is one process that copies between two warm buffers of its own. */
#include "copy_workers.h"
#include "measure.h"

#include <stdio.h>
#include <string.h>
#include <tandem/tandem.h>

/* Timeout of calls in milliseconds, rounds before measuring, and bytes of a page. */
enum { TIMEOUT_MS = 60000, WARM_ROUNDS = 2, PAGE_BYTES = 4096 };

/* Size of the region in bytes. */
#define REGION_BYTES ((uint64_t)1 << 30)

/* State of the actor with the region. */
struct tenant {
    /* Owned region of REGION_BYTES. */
    tdm_region *region;
    /* Number of pauses so far. */
    uint64_t turn;
};

/* Constructor: creates the region. */
static tdm_status tenant_construct(tdm_call *call, void *self)
{
    struct tenant *tenant = self;
    struct tdm_region_options options = {
        .tag = "weights", .size_bytes = REGION_BYTES, .policy = TDM_REGION_KEEP};

    TDM_TRY(tdm_call_unpack(call, ""));
    return tdm_region_create(tdm_runtime_current(), &options, &tenant->region);
}

/* Destructor: frees the region. */
static void tenant_destruct(void *self)
{
    tdm_region_destroy(((struct tenant *)self)->region);
}

/* Writes a number that depends on the turn to every page, so that a page that was not restored
 * is noticed. */
static void mark_pages(struct tenant *tenant)
{
    char *address = tdm_region_address(tenant->region);

    tenant->turn++;
    for (uint64_t at = 0; at < REGION_BYTES; at += PAGE_BYTES) {
        uint64_t mark = at + tenant->turn;

        memcpy(address + at, &mark, sizeof(mark));
    }
}

/* Checks that every page has the number of this turn. */
static tdm_status check_pages(const struct tenant *tenant)
{
    const char *address = tdm_region_address(tenant->region);

    for (uint64_t at = 0; at < REGION_BYTES; at += PAGE_BYTES) {
        uint64_t mark;

        memcpy(&mark, address + at, sizeof(mark));
        if (mark != at + tenant->turn) {
            return tdm_fail(TDM_E_METHOD, "byte %llu has not come back", (unsigned long long)at);
        }
    }
    return TDM_OK;
}

/* Method "turn": pauses and resumes the region and replies the seconds of each. */
static tdm_status tenant_turn(tdm_call *call, void *self)
{
    struct tenant *tenant = self;
    double begun;
    double paused;
    double resumed;

    mark_pages(tenant);
    begun = bench_clock_seconds();
    TDM_TRY(tdm_region_pause(tenant->region));
    paused = bench_clock_seconds();
    TDM_TRY(tdm_region_resume(tenant->region, TIMEOUT_MS));
    resumed = bench_clock_seconds();
    TDM_TRY(check_pages(tenant));
    return tdm_call_reply(call, "ff", paused - begun, resumed - paused);
}

TDM_ACTOR_CLASS(tenant, .state_bytes = sizeof(struct tenant), .construct = tenant_construct,
                .destruct = tenant_destruct, .methods = {{"turn", tenant_turn}});

/* Calls "turn" and returns the seconds of the pause and of the resume. */
static void turn(tdm_actor *tenant, double *pause_out, double *resume_out)
{
    tdm_ref *ref;

    TDM_CHECK(tdm_actor_call(tenant, "turn", &ref, ""));
    TDM_CHECK(tdm_get(ref, TIMEOUT_MS, "ff", pause_out, resume_out));
    tdm_ref_release(ref);
}

/* Measures all rounds and reports both measures. */
static void measure_turns(tdm_actor *tenant, const struct bench_copy_workers *copiers)
{
    static struct bench_measure pause = {.name = "pause_1gib",
                                         .unit = "GiB/s",
                                         .against = "memcpy, one warmed process",
                                         .better = BENCH_MORE_IS_BETTER,
                                         .at_least = 0.8};
    static struct bench_measure resume = {.name = "resume_1gib",
                                          .unit = "GiB/s",
                                          .against = "memcpy, one warmed process",
                                          .better = BENCH_MORE_IS_BETTER,
                                          .at_least = 0.8};
    const double gib = (double)REGION_BYTES / (1u << 30);
    double paused;
    double resumed;

    for (int i = 0; i < WARM_ROUNDS; i++) {
        turn(tenant, &paused, &resumed);
    }
    for (uint32_t i = 0; i < bench_rounds(); i++) {
        double copied = bench_ours_first(i) ? 0 : bench_copy_workers_run(copiers);

        turn(tenant, &paused, &resumed);
        if (bench_ours_first(i)) {
            copied = bench_copy_workers_run(copiers);
        }
        bench_measure_round(&pause, gib / paused, gib / copied);
        bench_measure_round(&resume, gib / resumed, gib / copied);
    }
    bench_measure_report(&pause);
    bench_measure_report(&resume);
}

int main(int argc, char **argv)
{
    static const struct bench_role roles[] = {BENCH_COPIER_ROLE};
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    struct bench_copy_workers copiers;
    tdm_runtime *runtime;
    tdm_actor *tenant;

    bench_peer_run(argc, argv, roles, 1);
    options.gpus = 1;
    options.gpu_bytes = REGION_BYTES;
    TDM_CHECK(tdm_runtime_start(&options, &runtime));
    bench_parse_arguments(argc, argv);
    TDM_CHECK(tdm_actor_create(runtime, "tenant", &(struct tdm_actor_options){.num_gpus = 1},
                               &tenant, ""));
    TDM_CHECK(tdm_actor_wait_ready(tenant, TIMEOUT_MS));
    bench_copy_workers_start(&copiers, "copier", 1, REGION_BYTES);

    measure_turns(tenant, &copiers);

    bench_copy_workers_stop(&copiers);
    tdm_actor_destroy(tenant);
    tdm_runtime_stop(runtime);
    return bench_status();
}
