/* engine_set.c - a set of engines of a job. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/engine_set.h"

#include "runtime/assert.h"

#include <stddef.h>
#include <string.h>

/* Returns the bit of an engine in its word. */
static uint64_t bit_of(uint32_t engine)
{
    return UINT64_C(1) << (engine % TDM__ENGINE_SET_WORD_BITS);
}

void tdm__engine_set_clear(struct tdm__engine_set *set)
{
    memset(set, 0, sizeof(*set));
}

void tdm__engine_set_add(struct tdm__engine_set *set, uint32_t engine)
{
    TDM_ASSERT(engine < TDM__JOB_ENGINES_MAX);
    set->words[engine / TDM__ENGINE_SET_WORD_BITS] |= bit_of(engine);
}

void tdm__engine_set_remove(struct tdm__engine_set *set, uint32_t engine)
{
    TDM_ASSERT(engine < TDM__JOB_ENGINES_MAX);
    set->words[engine / TDM__ENGINE_SET_WORD_BITS] &= ~bit_of(engine);
}

void tdm__engine_set_add_all(struct tdm__engine_set *set, const struct tdm__engine_set *other)
{
    for (size_t i = 0; i < TDM__ENGINE_SET_WORDS; i++) {
        set->words[i] |= other->words[i];
    }
}

bool tdm__engine_set_has(const struct tdm__engine_set *set, uint32_t engine)
{
    TDM_ASSERT(engine < TDM__JOB_ENGINES_MAX);
    return (set->words[engine / TDM__ENGINE_SET_WORD_BITS] & bit_of(engine)) != 0;
}

bool tdm__engine_set_equal(const struct tdm__engine_set *a, const struct tdm__engine_set *b)
{
    return memcmp(a->words, b->words, sizeof(a->words)) == 0;
}

bool tdm__engine_set_is_empty(const struct tdm__engine_set *set)
{
    return tdm__engine_set_count(set) == 0;
}

uint32_t tdm__engine_set_count(const struct tdm__engine_set *set)
{
    uint32_t count = 0;

    for (size_t i = 0; i < TDM__ENGINE_SET_WORDS; i++) {
        count += (uint32_t)__builtin_popcountll(set->words[i]);
    }
    return count;
}

uint32_t tdm__engine_set_first(const struct tdm__engine_set *set)
{
    uint32_t engine = 0;

    while (engine < TDM__JOB_ENGINES_MAX && !tdm__engine_set_has(set, engine)) {
        engine++;
    }
    return engine;
}
