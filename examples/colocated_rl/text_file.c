/* text_file.c - writes a small text file completely or not at all. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/text_file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Returns TDM_E_IO with operation, path and cause. */
static tdm_status text_file_fail(const char *what, const char *path, int error_number)
{
    char reason[64];

    return tdm_fail(TDM_E_IO, "%s %s: %s", what, path,
                    strerror_r(error_number, reason, sizeof(reason)));
}

tdm_status text_file_open(struct text_file *file, const char *directory, const char *name)
{
    int bytes = snprintf(file->path, sizeof(file->path), "%s/%s", directory, name);

    if (bytes < 0 || (size_t)bytes >= sizeof(file->path)) {
        return tdm_fail(TDM_E_LIMIT, "a path of %d bytes, at most %zu: %s/%s", bytes,
                        sizeof(file->path) - 1, directory, name);
    }
    (void)snprintf(file->temporary, sizeof(file->temporary), "%s.new", file->path);
    file->stream = fopen(file->temporary, "we");
    return file->stream == NULL ? text_file_fail("open", file->temporary, errno) : TDM_OK;
}

tdm_status text_file_close(struct text_file *file)
{
    int failed =
        ferror(file->stream) != 0 || fflush(file->stream) != 0 || fsync(fileno(file->stream)) != 0;
    int error_number = errno;

    if (fclose(file->stream) != 0 && !failed) {
        failed = 1;
        error_number = errno;
    }
    if (!failed && rename(file->temporary, file->path) == 0) {
        return TDM_OK;
    }
    error_number = failed ? error_number : errno;
    (void)unlink(file->temporary);
    return text_file_fail("write", file->path, error_number);
}

void text_file_string(struct text_file *file, const char *text, size_t bytes)
{
    (void)fputc('"', file->stream);
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '"' || text[i] == '\\') {
            (void)fputc('\\', file->stream);
        }
        (void)fputc(text[i], file->stream);
    }
    (void)fputc('"', file->stream);
}
