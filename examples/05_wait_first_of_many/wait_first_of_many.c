/* wait_first_of_many.c - submits many calls, takes the first results, and uses a pending result as
 * an argument. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <stdio.h>
#include <tandem/tandem.h>

enum { SAMPLERS = 4, WANTED = 3 };

struct sampler {
    int64_t number; /* Number of this sampler. */
};

static tdm_status sampler_construct(tdm_call *call, void *self)
{
    return tdm_call_unpack(call, "i", &((struct sampler *)self)->number);
}

/* Method sample(): the last sampler is slow on purpose. */
static tdm_status sampler_sample(tdm_call *call, void *self)
{
    const struct sampler *sampler = self;
    const char *prompt;
    char text[64];

    TDM_TRY(tdm_call_unpack(call, "s", &prompt));
    if (sampler->number == SAMPLERS - 1) {
        (void)poll(NULL, 0, 500);
    }
    (void)snprintf(text, sizeof(text), "%s %lld", prompt, (long long)sampler->number);
    return tdm_call_reply(call, "s", text);
}

TDM_ACTOR_CLASS(sampler, .state_bytes = sizeof(struct sampler), .construct = sampler_construct,
                .methods = {{"sample", sampler_sample}});

int main(void)
{
    tdm_runtime *runtime;
    tdm_actor *samplers[SAMPLERS];
    tdm_ref *refs[SAMPLERS];
    uint8_t done[SAMPLERS];
    tdm_ref *prompt;
    tdm_ref *chained;
    const char *text;

    TDM_CHECK(tdm_runtime_start(NULL, &runtime));
    for (int i = 0; i < SAMPLERS; i++) {
        TDM_CHECK(tdm_actor_create(runtime, "sampler", NULL, &samplers[i], "i", (int64_t)i));
        TDM_CHECK(tdm_actor_wait_ready(samplers[i], 10000));
    }

    /* One tdm_put() stores a value for all calls. With the format letter r each method receives the
     * value of the reference as its argument. */
    TDM_CHECK(tdm_put(runtime, &prompt, "s", "sample"));
    for (int i = 0; i < SAMPLERS; i++) {
        TDM_CHECK(tdm_actor_call(samplers[i], "sample", &refs[i], "r", prompt));
    }
    TDM_CHECK(tdm_wait(refs, SAMPLERS, WANTED, 10000, done));
    for (int i = 0; i < SAMPLERS; i++) {
        (void)printf("sampler %d is %s\n", i, done[i] ? "done" : "still at it");
    }

    /* The argument of a call may be a result that does not exist yet. The call is sent when the
     * result exists. */
    TDM_CHECK(tdm_actor_call(samplers[0], "sample", &chained, "r", refs[SAMPLERS - 1]));
    TDM_CHECK(tdm_get(chained, 10000, "s", &text));
    (void)printf("%s\n", text);

    tdm_ref_release(prompt);
    tdm_ref_release(chained);
    for (int i = 0; i < SAMPLERS; i++) {
        tdm_ref_release(refs[i]);
        tdm_actor_destroy(samplers[i]);
    }
    tdm_runtime_stop(runtime);
    return 0;
}
