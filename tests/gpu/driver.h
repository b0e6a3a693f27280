/* driver.h - the little of the CUDA driver API that the probe needs, found at run time. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_GPU_DRIVER_H
#define TDM_TESTS_GPU_DRIVER_H

#include "colocate/device/cuda/driver_api.h"

#include <stdbool.h>

struct driver {
#define X(name, arguments) int(*name) arguments;
    CU_CALLS(X)
#undef X
};
extern struct driver driver;

enum { DRIVER_TEXT_BYTES = 256 };

/* False from the function around it, with the reason kept, if it fails. */
#define TRY(expression)                                                                            \
    do {                                                                                           \
        if (!(expression)) {                                                                       \
            return false;                                                                          \
        }                                                                                          \
    } while (0)
#define CU(name, ...) TRY(driver_check(driver.name(__VA_ARGS__), #name))

/* Library, first device, its primary context. */
bool driver_open(void);
bool driver_describe(char *text, size_t room, size_t *granularity_out);

/* The last reason; this process's or one that the importer told. */
const char *driver_failure(void);
bool driver_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool driver_check(int result, const char *name);
const char *driver_error_name(int result);

bool driver_create(size_t size_bytes, int handle_types, uint64_t *handle_out);
bool driver_access(uint64_t address, size_t size_bytes);

/* Reserved addresses and, while handle is not 0, physical memory. */
struct driver_block {
    uint64_t address;
    uint64_t handle;
    size_t size_bytes;
    bool mapped;
};
/* Made, not mapped. */
bool driver_block_create(struct driver_block *block, size_t size_bytes, int handle_types);
/* The same of another process's memory. */
bool driver_block_import(struct driver_block *block, size_t size_bytes, int fd);
bool driver_block_map(struct driver_block *block);
bool driver_block_unmap(struct driver_block *block);
bool driver_block_release(struct driver_block *block);
/* Whatever of it is left. */
bool driver_block_destroy(struct driver_block *block);

/* Contents in which every word differs, and whether they are there. */
bool driver_pattern_write(uint64_t address, size_t size_bytes);
bool driver_pattern_check(uint64_t address, size_t size_bytes);

double driver_seconds(void);

#endif
