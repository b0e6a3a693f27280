/* earlier_job_test.c - a new source of updates takes over a record whose members have ended. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/earlier_job.h"

#include "colocate/weights/version_service.h"
#include "tests/support/one_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { WAIT_MS = 10000, SHORT_MS = 400 };

TDM_ACTOR_CLASS(member, .state_bytes = 1);

static tdm_runtime *runtime;
static struct tdm__job_spec spec;
static const struct tdm__hash hash = {3, 4};

/* Returns the group of a job for this model that has no actors yet. */
static struct tdm__worker_group group_of(const char *model)
{
    (void)snprintf(spec.update_model, sizeof(spec.update_model), "%s", model);
    spec.update_timeout_ms = SHORT_MS;
    return (struct tdm__worker_group){.runtime = runtime, .spec = &spec};
}

static struct tdm__member member_of(tdm_actor *actor)
{
    struct tdm__member member = {.incarnation = 1};
    struct tdm_actor_info info;

    tdm_actor_describe(actor, &info);
    TRY(tdm__id_parse(info.id, &member.actor));
    return member;
}

static tdm_status request(const char *model, struct tdm__version_request request)
{
    struct tdm__version_reply reply;

    return tdm__version_service_call(runtime, model, &request, WAIT_MS, &reply);
}

static tdm_status begin(const char *model, uint8_t update, uint64_t base,
                        const struct tdm__member *member, const struct tdm__worker_group *workers)
{
    return request(model, (struct tdm__version_request){.kind = TDM__VERSION_BEGIN,
                                                        .update = {{update}},
                                                        .base = base,
                                                        .source = {{{9}}, 1},
                                                        .members = member,
                                                        .members_count = 1,
                                                        .dead = workers->dead,
                                                        .dead_count = workers->dead_count});
}

/* Commits version 1 of the model, which the member then serves. */
static void commit(const char *model, const struct tdm__member *member)
{
    const struct tdm__worker_group nobody = {.dead = NULL};

    TRY(begin(model, 1, 0, member, &nobody));
    TRY(request(model, (struct tdm__version_request){.kind = TDM__VERSION_PREPARED,
                                                     .update = {{1}},
                                                     .member = *member,
                                                     .hash = hash}));
    TRY(request(model, (struct tdm__version_request){.kind = TDM__VERSION_DECIDE,
                                                     .update = {{1}},
                                                     .proposal = TDM__UPDATE_COMMITTED}));
    TRY(request(model, (struct tdm__version_request){
                           .kind = TDM__VERSION_FLIPPED, .update = {{1}}, .member = *member}));
}

static void end(tdm_actor *actor)
{
    TRY(tdm_actor_kill(actor, WAIT_MS));
    tdm_actor_destroy(actor);
}

static void record_of_ended_members_is_continued(void **state)
{
    tdm_actor *before = one_node_actor(runtime, "member", "before", 0);
    tdm_actor *after = one_node_actor(runtime, "member", "after", 0);
    const struct tdm__member old = member_of(before);
    const struct tdm__member new = member_of(after);
    struct tdm__worker_group workers = group_of("ended");
    struct tdm__earlier_versions earlier;

    (void)state;
    commit("ended", &old);
    end(before);
    /* What a second job did before: it knows no version, and leaves the earlier member out. */
    assert_int_equal(begin("ended", 2, 0, &new, &workers), TDM_E_CONFLICT);
    assert_int_equal(begin("ended", 2, 1, &new, &workers), TDM_E_STATE);
    TRY(tdm__earlier_job_supersede(&workers, &earlier));
    assert_true(earlier.committed == 1 && earlier.highest == 1);
    assert_int_equal(workers.dead_count, 1);
    TRY(begin("ended", 2, earlier.committed, &new, &workers));
    end(after);
    free(workers.dead);
}

static void undecided_update_is_aborted(void **state)
{
    tdm_actor *before = one_node_actor(runtime, "member", "before", 0);
    tdm_actor *after = one_node_actor(runtime, "member", "after", 0);
    const struct tdm__member old = member_of(before);
    const struct tdm__member new = member_of(after);
    struct tdm__worker_group workers = group_of("undecided");
    struct tdm__earlier_versions earlier;

    (void)state;
    TRY(begin("undecided", 1, 0, &old, &workers));
    end(before);
    TRY(tdm__earlier_job_supersede(&workers, &earlier));
    assert_true(earlier.committed == 0 && earlier.highest == 1);
    TRY(begin("undecided", 2, 0, &new, &workers));
    end(after);
    free(workers.dead);
}

static void member_that_lives_is_named(void **state)
{
    tdm_actor *actor = one_node_actor(runtime, "member", "alive", 0);
    const struct tdm__member member = member_of(actor);
    struct tdm__worker_group workers = group_of("alive");
    struct tdm__earlier_versions earlier;
    struct tdm_actor_info info;

    (void)state;
    commit("alive", &member);
    tdm_actor_describe(actor, &info);
    assert_int_equal(tdm__earlier_job_supersede(&workers, &earlier), TDM_E_STATE);
    assert_non_null(strstr(tdm_error_detail(), info.id));
    assert_non_null(strstr(tdm_error_detail(), "update.model"));
    assert_int_equal(workers.dead_count, 0);
    end(actor);
    free(workers.dead);
}

static void model_without_a_record_has_nothing_to_continue(void **state)
{
    struct tdm__worker_group workers = group_of("new");
    struct tdm__earlier_versions earlier;

    (void)state;
    TRY(tdm__earlier_job_supersede(&workers, &earlier));
    assert_true(earlier.committed == 0 && earlier.highest == 0);
    assert_int_equal(workers.dead_count, 0);
    free(workers.dead);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(record_of_ended_members_is_continued),
        cmocka_unit_test(undecided_update_is_aborted),
        cmocka_unit_test(member_that_lives_is_named),
        cmocka_unit_test(model_without_a_record_has_nothing_to_continue),
    };
    int failed;

    runtime = one_node_start((uint64_t)1 << 26);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
