/* text_file.h - writes a small text file whole or not at all. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_TEXT_FILE_H
#define COLOCATED_RL_TEXT_FILE_H

#include <stddef.h>
#include <stdio.h>
#include <tandem/error.h>

struct text_file {
    FILE *stream; /* to print to */
    char path[1024];
    char temporary[1040]; /* beside it, until it is closed well */
};

tdm_status text_file_open(struct text_file *file, const char *directory, const char *name);
/* Flushes to the disk and takes the place of what was at the path; on failure nothing is left
 * behind. */
tdm_status text_file_close(struct text_file *file);

/* Prints text as a JSON string, quotes included. */
void text_file_string(struct text_file *file, const char *text, size_t bytes);

#endif
