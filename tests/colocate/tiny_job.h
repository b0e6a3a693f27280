/* tiny_job.h - what the smallest job library tells the test that loads it, too. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_COLOCATE_TINY_JOB_H
#define TDM_TESTS_COLOCATE_TINY_JOB_H

#include <stdint.h>

/* One answer as the reward function saw it: of which weights, and under which seed. */
struct tiny_answer {
    char prompt[16];
    int32_t step;
    int32_t seed; /* Low bits of the sample's seed. */
};

enum { TINY_ANSWERS_MAX = 1024 };

/* Exported by the library as "tiny_answers". */
struct tiny_answers {
    /* The reward of an answer by the weights of this step is not a number; 0: every one is. */
    int32_t nan_of_step;
    uint32_t count;
    struct tiny_answer all[TINY_ANSWERS_MAX];
};

#endif
