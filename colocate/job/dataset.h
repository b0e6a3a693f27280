/* dataset.h - questions and answers from JSON Lines, and which of them a step takes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_DATASET_H
#define TDM_COLOCATE_JOB_DATASET_H

#include <stdint.h>
#include <tandem/error.h>

struct tdm__dataset_row {
    char *prompt; /* owned by the dataset */
    char *answer;
};

struct tdm__dataset {
    struct tdm__dataset_row *rows; /* owned */
    uint32_t rows_count;           /* at least 1 */
};

enum { TDM__DATASET_LINE_BYTES_MAX = 1 << 20, TDM__DATASET_ROWS_MAX = 10 * 1000 * 1000 };

/* Reads one JSON object a line, of which two keys matter; empty lines are passed over.
 * TDM_E_PROTOCOL "train.jsonl:12: …", TDM_E_NOT_FOUND without the file. */
tdm_status tdm__dataset_read(const char *path, const char *prompt_key, const char *answer_key,
                             struct tdm__dataset *dataset_out);
void tdm__dataset_fini(struct tdm__dataset *dataset); /* a zeroed one is allowed */

/* The row number `position` of an endless sequence of epochs, each of which takes every row
 * once, in an order of its own.  Pure: a resumed job takes the rows the first run would have
 * taken.  Step s of batches of n has the positions s·n … s·n + n-1. */
uint32_t tdm__dataset_shuffled_row(uint32_t rows_count, uint64_t seed, uint64_t position);

#endif
