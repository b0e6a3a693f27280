/* engine_set.h - a set of engines of a job. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_ENGINE_SET_H
#define TDM_COLOCATE_JOB_ENGINE_SET_H

#include "colocate/job/job_limits.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    /* Engines in one word of a set, and words of a set. */
    TDM__ENGINE_SET_WORD_BITS = 64,
    TDM__ENGINE_SET_WORDS = TDM__JOB_ENGINES_MAX / TDM__ENGINE_SET_WORD_BITS
};

_Static_assert(TDM__JOB_ENGINES_MAX % TDM__ENGINE_SET_WORD_BITS == 0, "a set has whole words");

/* A set of numbers of engines, which are below TDM__JOB_ENGINES_MAX. A zeroed struct is the empty
 * set; an assignment copies the set. */
struct tdm__engine_set {
    uint64_t words[TDM__ENGINE_SET_WORDS]; /* Bit n % 64 of word n / 64 is set if engine n is in. */
};

/* Removes all engines from the set. */
void tdm__engine_set_clear(struct tdm__engine_set *set);
/* Adds an engine to the set. */
void tdm__engine_set_add(struct tdm__engine_set *set, uint32_t engine);
/* Removes an engine from the set. */
void tdm__engine_set_remove(struct tdm__engine_set *set, uint32_t engine);
/* Adds all engines of `other` to the set. */
void tdm__engine_set_add_all(struct tdm__engine_set *set, const struct tdm__engine_set *other);
/* Returns true if the engine is in the set. */
bool tdm__engine_set_has(const struct tdm__engine_set *set, uint32_t engine);
/* Returns true if both sets have the same engines. */
bool tdm__engine_set_equal(const struct tdm__engine_set *a, const struct tdm__engine_set *b);
/* Returns true if no engine is in the set. */
bool tdm__engine_set_is_empty(const struct tdm__engine_set *set);
/* Returns the number of engines in the set. */
uint32_t tdm__engine_set_count(const struct tdm__engine_set *set);
/* Returns the lowest engine in the set; TDM__JOB_ENGINES_MAX if the set is empty. */
uint32_t tdm__engine_set_first(const struct tdm__engine_set *set);

#endif
