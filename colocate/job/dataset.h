/* dataset.h - reads prompts and expected answers from JSON Lines and shuffles them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_DATASET_H
#define TDM_COLOCATE_JOB_DATASET_H

#include <stdint.h>
#include <tandem/error.h>

/* One line of a data set. */
struct tdm__dataset_row {
    /* Owned text that the engine completes. */
    char *prompt;
    /* Owned text that the reward function compares with the completion. */
    char *answer;
};

/* The rows of one file, all in memory. Read-only after tdm__dataset_read(). */
struct tdm__dataset {
    /* Owned array of rows. */
    struct tdm__dataset_row *rows;
    /* Number of rows; at least 1. */
    uint32_t rows_count;
};

/* Longest line in bytes, and the greatest number of rows in one file. */
enum { TDM__DATASET_LINE_BYTES_MAX = 1 << 20, TDM__DATASET_ROWS_MAX = 10 * 1000 * 1000 };

/* Reads a file with one JSON object on each line. Only the values of `prompt_key` and
 * `answer_key` are used. Empty lines are skipped. Errors name file and line: TDM_E_PROTOCOL
 * "train.jsonl:12: …", or TDM_E_NOT_FOUND if there is no file. */
tdm_status tdm__dataset_read(const char *path, const char *prompt_key, const char *answer_key,
                             struct tdm__dataset *dataset_out);
/* Frees the rows. A zeroed data set is allowed. */
void tdm__dataset_fini(struct tdm__dataset *dataset);

/* Returns the index of the row at `position` of an endless sequence of epochs. Each epoch
 * contains every row once, in an order that depends on the seed and the epoch. The function has
 * no state, so that a resumed job gets the same rows as an uninterrupted one. Step s with
 * batches of n rows uses the positions s·n … s·n + n-1. */
uint32_t tdm__dataset_shuffled_row(uint32_t rows_count, uint64_t seed, uint64_t position);

#endif
