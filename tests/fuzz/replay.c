/* replay.c - runs a fuzz target over the files of its corpus, for builds without libFuzzer. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_BYTES_MAX = 1 << 20 };

static void replay_bytes(const unsigned char *bytes, size_t size)
{
    /* The copy has exactly this size, so that the sanitizer detects reads past its end. */
    uint8_t *exact = calloc(size > 0 ? size : 1, 1);

    if (exact == NULL) {
        abort();
    }
    memcpy(exact, bytes, size);
    (void)LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

static int replay_file(const char *folder, const char *name)
{
    static unsigned char bytes[INPUT_BYTES_MAX];
    char path[4096];
    FILE *file;
    size_t size;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "rbe");
    if (file == NULL) {
        (void)fprintf(stderr, "%s: cannot be opened\n", path);
        return 1;
    }
    size = fread(bytes, 1, sizeof(bytes), file);
    (void)fclose(file);
    (void)printf("%s: %zu bytes\n", path, size);
    replay_bytes(bytes, size);
    return 0;
}

static int replay_folder(const char *folder)
{
    DIR *directory = opendir(folder);
    const struct dirent *entry;
    int failed = 0;

    if (directory == NULL) {
        (void)fprintf(stderr, "%s: cannot be opened\n", folder);
        return 1;
    }
    while ((entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] != '.') {
            failed |= replay_file(folder, entry->d_name);
        }
    }
    (void)closedir(directory);
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0;

    replay_bytes((const unsigned char *)"", 0);
    for (int i = 1; i < argc; i++) {
        failed |= replay_folder(argv[i]);
    }
    return failed;
}
