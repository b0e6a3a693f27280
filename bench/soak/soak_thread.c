/* soak_thread.c - state and checks that all operations of the soak share. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "soak.h"

#include <stdio.h>
#include <string.h>

uint64_t soak_random(struct soak_thread *driver_thread, uint64_t below)
{
    uint64_t mixed;

    driver_thread->random_state += 0x9e3779b97f4a7c15u; /* This is splitmix64. */
    mixed = driver_thread->random_state;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return (mixed ^ (mixed >> 31)) % below;
}

tdm_status soak_expect_equal(uint64_t wanted, uint64_t got, const char *what)
{
    if (wanted != got) {
        return tdm_fail(TDM_E_STATE, "%s: wanted %llu, got %llu", what, (unsigned long long)wanted,
                        (unsigned long long)got);
    }
    return TDM_OK;
}

tdm_status soak_expect_status(tdm_status wanted, tdm_status got, const char *what)
{
    if (wanted != got) {
        char detail[1024];

        (void)snprintf(detail, sizeof(detail), "%s", got == TDM_OK ? "" : tdm_error_detail());
        return tdm_fail(TDM_E_STATE, "%s: wanted \"%s\", got \"%s\": %s", what,
                        tdm_strerror(wanted), tdm_strerror(got), detail);
    }
    return TDM_OK;
}

uint64_t soak_hash(const void *data, uint64_t size_bytes)
{
    const unsigned char *bytes = data;
    uint64_t hash = size_bytes;

    for (uint64_t i = 0; i + sizeof(uint64_t) <= size_bytes; i += sizeof(uint64_t)) {
        uint64_t word;

        memcpy(&word, bytes + i, sizeof(word));
        hash = (hash ^ word) * 0x100000001b3u;
    }
    return hash;
}

struct tdm_ndarray soak_array(struct soak_thread *driver_thread)
{
    driver_thread->words[0] = soak_random(driver_thread, UINT64_MAX);
    return (struct tdm_ndarray){TDM_I64, 1, {SOAK_MIB / sizeof(uint64_t)}, driver_thread->words};
}

tdm_status soak_get_number(struct soak_thread *driver_thread, tdm_ref *ref, uint64_t wanted,
                           const char *what)
{
    uint64_t number = 0;
    tdm_status status = tdm_get(ref, SOAK_TIMEOUT_MS, "u", &number);

    if (status == TDM_OK) {
        status = soak_expect_equal(wanted, number, what);
        driver_thread->counts->calls++;
    }
    tdm_ref_release(ref);
    return status;
}

/* Creates one of the thread's actors and waits until it is ready. */
static tdm_status create_thread_actor(struct soak_thread *driver_thread, enum soak_actor_role kept)
{
    static const char *const classes[SOAK_ACTORS] = {"soak_worker", "soak_worker", "soak_later",
                                                     "soak_many", "soak_worker"};
    struct tdm_actor_options options = {0};

    if (kept == SOAK_REMOTE) {
        options.scheduling = TDM_SCHEDULE_NODE;
        options.node_id = driver_thread->remote_node_id;
    } else if (kept == SOAK_THREADED) {
        options.max_concurrency = 4;
    } else if (kept == SOAK_RESTARTING) {
        options.max_restarts = -1;
        driver_thread->restarts_count = 0;
    }
    TDM_TRY(tdm_actor_create(driver_thread->runtime, classes[kept], &options,
                             &driver_thread->actors[kept], "i", 0));
    driver_thread->counts->actors++;
    return tdm_actor_wait_ready(driver_thread->actors[kept], SOAK_TIMEOUT_MS);
}

tdm_status soak_thread_create_actors(struct soak_thread *driver_thread)
{
    for (int i = 0; i < SOAK_ACTORS; i++) {
        if (driver_thread->actors[i] == NULL) {
            TDM_TRY(create_thread_actor(driver_thread, (enum soak_actor_role)i));
        }
    }
    return TDM_OK;
}

void soak_thread_destroy_actors(struct soak_thread *driver_thread)
{
    for (int i = 0; i < SOAK_ACTORS; i++) {
        tdm_actor_destroy(driver_thread->actors[i]);
        driver_thread->actors[i] = NULL;
    }
}
