/* tally.c - how many calls of each method an actor has had, and where they are. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/tally.h"

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

void tdm__tally_write(const struct tdm__tally *tally, tdm_writer *writer)
{
    uint32_t count = 0;

    for (size_t i = 0; i < TDM_METHODS_MAX; i++) {
        count += was_called(tally, i) ? 1 : 0;
    }
    tdm_write_array(writer, count);
    for (size_t i = 0; i < TDM_METHODS_MAX; i++) {
        if (was_called(tally, i)) {
            tdm_write_array(writer, 5);
            tdm_write_string(writer, tally->actor_class->methods[i].name);
            tdm_write_uint(writer, tally->methods[i].waiting);
            tdm_write_uint(writer, tally->methods[i].running);
            tdm_write_uint(writer, tally->methods[i].finished);
            tdm_write_uint(writer, tally->methods[i].failed);
        }
    }
}
