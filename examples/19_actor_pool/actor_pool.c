/* actor_pool.c - more work than actors: each actor gets the next item when it is free. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <tandem/tandem.h>

enum { GRADERS = 3, ANSWERS = 5 };

/* Method grade(s): replies with the number of vowels of an answer. */
static tdm_status grader_grade(tdm_call *call, void *self)
{
    const char *answer;
    int64_t vowels = 0;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "s", &answer));
    for (const char *at = answer; *at != '\0'; at++) {
        vowels += strchr("aeiou", *at) != NULL ? 1 : 0;
    }
    return tdm_call_reply(call, "i", vowels);
}

TDM_ACTOR_CLASS(grader, .methods = {{"grade", grader_grade}});

/* Callback of the pool: calls grade() of a free actor with the next value. */
static tdm_status grade(tdm_actor *grader, const void *value, tdm_ref **ref_out)
{
    const char *const *answer = value;

    return tdm_actor_call(grader, "grade", ref_out, "s", *answer);
}

/* Callback of the pool: adds one result to the total. The result is there already. */
static tdm_status add_up(void *arg, uint32_t index, tdm_ref *ref)
{
    int64_t *total = arg;
    int64_t vowels;

    (void)index;
    TDM_TRY(tdm_get(ref, 0, "i", &vowels));
    *total += vowels;
    return TDM_OK;
}

int main(void)
{
    static const char *const answers[ANSWERS] = {"one", "two", "three", "four", "seventeen"};
    struct tdm_pool_map map = {.call = grade,
                               .values = answers,
                               .value_bytes = sizeof(answers[0]),
                               .values_count = ANSWERS,
                               .result = add_up};
    tdm_actor *graders[GRADERS];
    tdm_actor_pool *pool;
    tdm_runtime *runtime;
    int64_t total = 0;

    TDM_CHECK(tdm_runtime_start(NULL, &runtime));
    for (int i = 0; i < GRADERS; i++) {
        TDM_CHECK(tdm_actor_create(runtime, "grader", NULL, &graders[i], ""));
    }
    TDM_CHECK(tdm_actor_pool_create(graders, GRADERS, &pool));

    /* Submits the items one by one. The results come in the order of submission. */
    for (int i = 0; i < ANSWERS; i++) {
        TDM_CHECK(tdm_actor_pool_submit(pool, "grade", "s", answers[i]));
    }
    for (int i = 0; tdm_actor_pool_has_next(pool); i++) {
        int64_t vowels;
        tdm_ref *ref;

        TDM_CHECK(tdm_actor_pool_get_next(pool, 10000, &ref));
        TDM_CHECK(tdm_get(ref, 0, "i", &vowels));
        (void)printf("%s has %lld\n", answers[i], (long long)vowels);
        tdm_ref_release(ref);
    }

    /* Submits all items at once. The callback gets the results as they arrive. */
    map.arg = &total;
    TDM_CHECK(tdm_actor_pool_map_unordered(pool, &map, 10000));
    (void)printf("together %lld\n", (long long)total);

    tdm_actor_pool_destroy(pool);
    for (int i = 0; i < GRADERS; i++) {
        tdm_actor_destroy(graders[i]);
    }
    tdm_runtime_stop(runtime);
    return 0;
}
