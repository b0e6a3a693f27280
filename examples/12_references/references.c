/* references.c - results as arguments: by value, by reference, kept by others. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <tandem/tandem.h>

struct keeper {
    tdm_ref *kept; /* borrowed from whoever made it: the value stays while this is held */
};

static tdm_status keeper_keep(tdm_call *call, void *self)
{
    struct keeper *keeper = self;

    return tdm_call_unpack(call, "(R)", &keeper->kept);
}

static tdm_status keeper_read(tdm_call *call, void *self)
{
    struct keeper *keeper = self;
    const char *text;

    TDM_TRY(tdm_get(keeper->kept, 5000, "s", &text));
    return tdm_call_reply(call, "s", text);
}

/* Hands out what it keeps: the answer is a reference, not the text. */
static tdm_status keeper_lend(tdm_call *call, void *self)
{
    return tdm_call_reply(call, "R", ((struct keeper *)self)->kept);
}

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

    /* r: the method gets the value. */
    TDM_CHECK(tdm_actor_call(keeper, "length", &answer, "r", text));
    TDM_CHECK(tdm_get(answer, 5000, "u", &length));
    (void)printf("%llu bytes\n", (unsigned long long)length);
    tdm_ref_release(answer);

    /* R: it gets the reference, here inside an array, and may keep it. */
    TDM_CHECK(tdm_actor_call(keeper, "keep", &kept, "(R)", text));
    TDM_CHECK(tdm_get(kept, 5000, ""));
    tdm_ref_release(kept);
    tdm_ref_release(text); /* the keeper still has it */
    TDM_CHECK(tdm_actor_call(keeper, "read", &answer, ""));
    TDM_CHECK(tdm_get(answer, 5000, "s", &words));
    (void)printf("kept: %s\n", words);
    tdm_ref_release(answer);

    /* And gives it back, to be held here anew. */
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
