/* large_arrays.c - an array that is stored once and read by several processes without a copy. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/tandem.h>

enum { READERS = 3, ROWS = 2048, COLUMNS = 1024 };

/* Returns 1 if the memory at the address is shared and read-only according to the kernel. */
static int is_shared(const void *address)
{
    FILE *file = fopen("/proc/self/maps", "r");
    char line[512];
    int shared = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        char *rest;
        uintptr_t begin = strtoul(line, &rest, 16);
        uintptr_t end = strtoul(rest + 1, &rest, 16);

        if ((uintptr_t)address >= begin && (uintptr_t)address < end) {
            shared = strncmp(rest, " r--s", 5) == 0;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return shared;
}

/* Method sum(): the argument lies in shared memory, mapped read-only, and `data` points into it. */
static tdm_status reader_sum(tdm_call *call, void *self)
{
    struct tdm_ndarray array;
    const float *data;
    double sum = 0;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "a", &array));
    data = array.data;
    for (uint64_t i = 0; i < array.shape[0] * array.shape[1]; i++) {
        sum += data[i];
    }
    return tdm_call_reply(call, "f?", sum, is_shared(data));
}

TDM_ACTOR_CLASS(reader, .methods = {{"sum", reader_sum}});

int main(void)
{
    static float weights[ROWS][COLUMNS]; /* 8 MiB. */
    struct tdm_ndarray array = {
        .dtype = TDM_F32, .dims_count = 2, .shape = {ROWS, COLUMNS}, .data = weights};
    tdm_runtime *runtime;
    tdm_actor *readers[READERS];
    tdm_ref *sums[READERS];
    tdm_ref *ref;

    TDM_CHECK(tdm_runtime_start(NULL, &runtime));
    for (int row = 0; row < ROWS; row++) {
        for (int column = 0; column < COLUMNS; column++) {
            weights[row][column] = (float)(row % 2);
        }
    }
    TDM_CHECK(tdm_put(runtime, &ref, "a", &array)); /* This makes the only copy. */
    for (int i = 0; i < READERS; i++) {
        TDM_CHECK(tdm_actor_create(runtime, "reader", NULL, &readers[i], ""));
        TDM_CHECK(tdm_actor_call(readers[i], "sum", &sums[i], "r", ref));
    }
    for (int i = 0; i < READERS; i++) {
        double sum;
        int shared;

        TDM_CHECK(tdm_get(sums[i], 10000, "f?", &sum, &shared));
        (void)printf("reader %d: sum %.0f, %s\n", i, sum,
                     shared ? "read where it was put" : "from a copy");
        tdm_ref_release(sums[i]);
        tdm_actor_destroy(readers[i]);
    }
    tdm_ref_release(ref);
    tdm_runtime_stop(runtime);
    return 0;
}
