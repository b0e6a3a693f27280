/* method_metrics.c - numbers of calls of each method of an actor, by state. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/method_metrics.h"

#include "runtime/messages/messages.h"

#include <stdio.h>
#include <string.h>

void tdm__method_metrics_init(struct tdm__method_metrics *method_metrics,
                              const struct tdm_actor_class *actor_class)
{
    *method_metrics = (struct tdm__method_metrics){.actor_class = actor_class};
}

/* Returns the counts of the name, or NULL if it has none. */
static struct tdm__method_counts *counts_of_name(struct tdm__method_metrics *method_metrics,
                                                 const char *name)
{
    for (uint32_t i = 0; i < method_metrics->names_count; i++) {
        if (strcmp(method_metrics->names[i].name, name) == 0) {
            return &method_metrics->names[i].counts;
        }
    }
    return NULL;
}

/* Returns the counts of `method`, or those of the name under which the method "*" was called. */
static struct tdm__method_counts *counts_of(struct tdm__method_metrics *method_metrics,
                                            const struct tdm_method_entry *method, const char *name)
{
    struct tdm__method_counts *counts = name == NULL ? NULL : counts_of_name(method_metrics, name);

    return counts != NULL ? counts
                          : &method_metrics->methods[method - method_metrics->actor_class->methods];
}

void tdm__method_metrics_arrived(struct tdm__method_metrics *method_metrics,
                                 const struct tdm_method_entry *method, const char *name)
{
    if (name != NULL && strlen(name) < TDM__METRICS_NAME_BYTES &&
        method_metrics->names_count < TDM__METRICS_NAMES_MAX &&
        counts_of_name(method_metrics, name) == NULL) {
        (void)snprintf(method_metrics->names[method_metrics->names_count].name,
                       TDM__METRICS_NAME_BYTES, "%s", name);
        method_metrics->names_count++;
    }
    counts_of(method_metrics, method, name)->waiting++;
}

void tdm__method_metrics_began(struct tdm__method_metrics *method_metrics,
                               const struct tdm_method_entry *method, const char *name)
{
    struct tdm__method_counts *counts = counts_of(method_metrics, method, name);

    counts->waiting--;
    counts->running++;
}

void tdm__method_metrics_finished(struct tdm__method_metrics *method_metrics,
                                  const struct tdm_method_entry *method, const char *name,
                                  bool began, bool succeeded)
{
    struct tdm__method_counts *counts = counts_of(method_metrics, method, name);

    if (began) {
        counts->running--;
    } else {
        counts->waiting--;
    }
    if (succeeded) {
        counts->finished++;
    } else {
        counts->failed++;
    }
}

/* Returns row number `index` of all methods and names, or NULL behind the last one. */
static const struct tdm__method_counts *row_at(const struct tdm__method_metrics *method_metrics,
                                               size_t index, const char **name_out)
{
    if (index < TDM_METHODS_MAX) {
        *name_out = method_metrics->actor_class->methods[index].name;
        return &method_metrics->methods[index];
    }
    index -= TDM_METHODS_MAX;
    if (index < method_metrics->names_count) {
        *name_out = method_metrics->names[index].name;
        return &method_metrics->names[index].counts;
    }
    return NULL;
}

/* Returns true if a call was counted here. */
static bool counts_are_used(const struct tdm__method_counts *counts)
{
    return counts->waiting > 0 || counts->running > 0 || counts->finished > 0 || counts->failed > 0;
}

/* Fills one entry of the message; `index` counts only methods that were called. */
static void method_calls_get(const void *arg, uint32_t index, void *item_out)
{
    const struct tdm__method_metrics *method_metrics = arg;
    struct tdm__method_calls_message *item = item_out;
    const char *name = "";
    const struct tdm__method_counts *counts = row_at(method_metrics, 0, &name);

    for (size_t at = 1; !counts_are_used(counts) || index-- > 0; at++) {
        counts = row_at(method_metrics, at, &name);
    }
    *item = (struct tdm__method_calls_message){.method = name,
                                               .waiting = counts->waiting,
                                               .running = counts->running,
                                               .finished = counts->finished,
                                               .failed = counts->failed};
}

void tdm__method_metrics_write(const struct tdm__method_metrics *method_metrics, tdm_writer *writer)
{
    struct tdm__actor_calls_message message = {
        .methods = {.get = method_calls_get, .arg = method_metrics}};
    const struct tdm__method_counts *counts;
    const char *name;

    for (size_t i = 0;
         method_metrics != NULL && (counts = row_at(method_metrics, i, &name)) != NULL; i++) {
        message.methods.count += counts_are_used(counts) ? 1 : 0;
    }
    (void)tdm__actor_calls_encode(&message, writer);
}
