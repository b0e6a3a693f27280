/* tally.c - how many calls of each method an actor has had, and where they are. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/tally.h"

#include "runtime/messages/messages.h"

void tdm__tally_init(struct tdm__tally *tally, const struct tdm_actor_class *actor_class)
{
    *tally = (struct tdm__tally){.actor_class = actor_class};
}

static size_t index_of(const struct tdm__tally *tally, const struct tdm_method_entry *method)
{
    return (size_t)(method - tally->actor_class->methods);
}

void tdm__tally_arrived(struct tdm__tally *tally, const struct tdm_method_entry *method)
{
    tally->methods[index_of(tally, method)].waiting++;
}

void tdm__tally_began(struct tdm__tally *tally, const struct tdm_method_entry *method)
{
    size_t index = index_of(tally, method);

    tally->methods[index].waiting--;
    tally->methods[index].running++;
}

void tdm__tally_answered(struct tdm__tally *tally, const struct tdm_method_entry *method,
                         bool began, bool well)
{
    size_t index = index_of(tally, method);

    if (began) {
        tally->methods[index].running--;
    } else {
        tally->methods[index].waiting--;
    }
    if (well) {
        tally->methods[index].finished++;
    } else {
        tally->methods[index].failed++;
    }
}

static bool was_called(const struct tdm__tally *tally, size_t index)
{
    return tally->methods[index].waiting > 0 || tally->methods[index].running > 0 ||
           tally->methods[index].finished > 0 || tally->methods[index].failed > 0;
}

/* Fills the message of the method with this number among those that were called. */
static void get_method(const void *arg, uint32_t index, void *item_out)
{
    const struct tdm__tally *tally = arg;
    struct tdm__method_calls_message *item = item_out;
    size_t at = 0;

    while (!was_called(tally, at) || index-- > 0) {
        at++;
    }
    *item = (struct tdm__method_calls_message){.method = tally->actor_class->methods[at].name,
                                               .waiting = tally->methods[at].waiting,
                                               .running = tally->methods[at].running,
                                               .finished = tally->methods[at].finished,
                                               .failed = tally->methods[at].failed};
}

void tdm__tally_write(const struct tdm__tally *tally, tdm_writer *writer)
{
    struct tdm__actor_calls_message message = {.methods = {.get = get_method, .arg = tally}};

    for (size_t i = 0; tally != NULL && i < TDM_METHODS_MAX; i++) {
        message.methods.count += was_called(tally, i) ? 1 : 0;
    }
    (void)tdm__actor_calls_encode(&message, writer);
}
