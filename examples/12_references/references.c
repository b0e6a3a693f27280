/* references.c - results as arguments: passed by value, passed by reference, kept by an actor. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <tandem/tandem.h>

struct keeper {
    /* A reference that the keeper has received (owned); NULL if absent. The value exists
     * while any process holds a reference to it. */
    tdm_ref *kept;
};

/* Method keep((R)): keeps the reference, which comes inside an array. */
static tdm_status keeper_keep(tdm_call *call, void *self)
{
    struct keeper *keeper = self;

    return tdm_call_unpack(call, "(R)", &keeper->kept);
}

/* Method read(): replies with the value of the kept reference. */
static tdm_status keeper_read(tdm_call *call, void *self)
{
    struct keeper *keeper = self;
    const char *text;

    TDM_TRY(tdm_get(keeper->kept, 5000, "s", &text));
    return tdm_call_reply(call, "s", text);
}

/* Method lend(): replies with the reference, not with the text. */
static tdm_status keeper_lend(tdm_call *call, void *self)
{
    return tdm_call_reply(call, "R", ((struct keeper *)self)->kept);
}

/* Method length(s): replies with the number of bytes of a text. */
static tdm_status keeper_length(tdm_call *call, void *self)
{
    const char *text;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "s", &text));
    return tdm_call_reply(call, "u", (uint64_t)strlen(text));
}

static void keeper_destruct(void *self)
{
    tdm_ref_release(((struct keeper *)self)->kept);
}

TDM_ACTOR_CLASS(keeper, .state_bytes = sizeof(struct keeper), .destruct = keeper_destruct,
                .methods = {{"keep", keeper_keep},
                            {"read", keeper_read},
                            {"lend", keeper_lend},
                            {"length", keeper_length}});

int main(void)
{
    tdm_runtime *runtime;
    tdm_actor *keeper;
    tdm_ref *text;
    tdm_ref *kept;
    tdm_ref *answer;
    tdm_ref *lent;
    const char *words;
    uint64_t length;

    TDM_CHECK(tdm_runtime_start(NULL, &runtime));
    TDM_CHECK(tdm_actor_create(runtime, "keeper", NULL, &keeper, ""));
    TDM_CHECK(tdm_put(runtime, &text, "s", "a text that is put once"));

    /* Format r: the method receives the value. */
    TDM_CHECK(tdm_actor_call(keeper, "length", &answer, "r", text));
    TDM_CHECK(tdm_get(answer, 5000, "u", &length));
    (void)printf("%llu bytes\n", (unsigned long long)length);
    tdm_ref_release(answer);

    /* Format R: the method receives the reference, here inside an array, and may keep it. */
    TDM_CHECK(tdm_actor_call(keeper, "keep", &kept, "(R)", text));
    TDM_CHECK(tdm_get(kept, 5000, ""));
    tdm_ref_release(kept);
    tdm_ref_release(text); /* The keeper still holds the text. */
    TDM_CHECK(tdm_actor_call(keeper, "read", &answer, ""));
    TDM_CHECK(tdm_get(answer, 5000, "s", &words));
    (void)printf("kept: %s\n", words);
    tdm_ref_release(answer);

    /* The keeper returns the reference, and this program holds the text again. */
    TDM_CHECK(tdm_actor_call(keeper, "lend", &answer, ""));
    TDM_CHECK(tdm_get(answer, 5000, "R", &lent));
    tdm_ref_release(answer);
    TDM_CHECK(tdm_get(lent, 5000, "s", &words));
    (void)printf("lent: %s\n", words);
    tdm_ref_release(lent);

    tdm_actor_destroy(keeper);
    tdm_runtime_stop(runtime);
    return 0;
}
