/* text_file.h - writes a small text file completely or not at all. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_TEXT_FILE_H
#define COLOCATED_RL_TEXT_FILE_H

#include <stddef.h>
#include <stdio.h>
#include <tandem/error.h>

/* A file that is being written under a temporary name. */
struct text_file {
    FILE *stream;         /* The stream to print to. */
    char path[1024];      /* Name of the file after text_file_close(). */
    char temporary[1040]; /* Name of the file until then, in the same directory. */
};

/* Creates the temporary file. The caller prints to file->stream and calls text_file_close(). */
tdm_status text_file_open(struct text_file *file, const char *directory, const char *name);
/* Flushes the file to disk and renames it to its final name, replacing a file of that name. On
 * failure nothing is left behind. */
tdm_status text_file_close(struct text_file *file);

/* Prints text as a JSON string, quotes included. */
void text_file_string(struct text_file *file, const char *text, size_t bytes);

#endif
