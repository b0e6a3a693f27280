/* method_metrics.c - numbers of calls of each method of an actor, by state. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/method_metrics.h"

#include "runtime/messages/messages.h"

void tdm__method_metrics_init(struct tdm__method_metrics *method_metrics,
                              const struct tdm_actor_class *actor_class)
{
    *method_metrics = (struct tdm__method_metrics){.actor_class = actor_class};
}

/* Returns the index of `method` in its actor class. */
static size_t method_index(const struct tdm__method_metrics *method_metrics,
                           const struct tdm_method_entry *method)
{
    return (size_t)(method - method_metrics->actor_class->methods);
}

void tdm__method_metrics_arrived(struct tdm__method_metrics *method_metrics,
                                 const struct tdm_method_entry *method)
{
    method_metrics->methods[method_index(method_metrics, method)].waiting++;
}

void tdm__method_metrics_began(struct tdm__method_metrics *method_metrics,
                               const struct tdm_method_entry *method)
{
    size_t index = method_index(method_metrics, method);

    method_metrics->methods[index].waiting--;
    method_metrics->methods[index].running++;
}

void tdm__method_metrics_finished(struct tdm__method_metrics *method_metrics,
                                  const struct tdm_method_entry *method, bool began, bool succeeded)
{
    size_t index = method_index(method_metrics, method);

    if (began) {
        method_metrics->methods[index].running--;
    } else {
        method_metrics->methods[index].waiting--;
    }
    if (succeeded) {
        method_metrics->methods[index].finished++;
    } else {
        method_metrics->methods[index].failed++;
    }
}

/* Returns true if a call of method number `index` has arrived. */
static bool method_was_called(const struct tdm__method_metrics *method_metrics, size_t index)
{
    return method_metrics->methods[index].waiting > 0 ||
           method_metrics->methods[index].running > 0 ||
           method_metrics->methods[index].finished > 0 || method_metrics->methods[index].failed > 0;
}

/* Fills one entry of the message; `index` counts only methods that were called. */
static void method_calls_get(const void *arg, uint32_t index, void *item_out)
{
    const struct tdm__method_metrics *method_metrics = arg;
    struct tdm__method_calls_message *item = item_out;
    size_t at = 0;

    while (!method_was_called(method_metrics, at) || index-- > 0) {
        at++;
    }
    *item =
        (struct tdm__method_calls_message){.method = method_metrics->actor_class->methods[at].name,
                                           .waiting = method_metrics->methods[at].waiting,
                                           .running = method_metrics->methods[at].running,
                                           .finished = method_metrics->methods[at].finished,
                                           .failed = method_metrics->methods[at].failed};
}

void tdm__method_metrics_write(const struct tdm__method_metrics *method_metrics, tdm_writer *writer)
{
    struct tdm__actor_calls_message message = {
        .methods = {.get = method_calls_get, .arg = method_metrics}};

    for (size_t i = 0; method_metrics != NULL && i < TDM_METHODS_MAX; i++) {
        message.methods.count += method_was_called(method_metrics, i) ? 1 : 0;
    }
    (void)tdm__actor_calls_encode(&message, writer);
}
