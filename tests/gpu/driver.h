/* driver.h - the part of the CUDA driver API that the probe uses, loaded at run time. */
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

/* Returns false from the calling function if the expression is false; the reason is kept. */
#define TRY(expression)                                                                            \
    do {                                                                                           \
        if (!(expression)) {                                                                       \
            return false;                                                                          \
        }                                                                                          \
    } while (0)
#define CU(name, ...) TRY(driver_check(driver.name(__VA_ARGS__), #name))

/* Opens the library, the first device and its primary context. */
bool driver_open(void);
bool driver_describe(char *text, size_t room, size_t *granularity_out);

/* Returns the latest error text, of this process or of the importer. */
const char *driver_failure(void);
bool driver_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool driver_check(int result, const char *name);
const char *driver_error_name(int result);

bool driver_create(size_t size_bytes, int handle_types, uint64_t *handle_out);
bool driver_access(uint64_t address, size_t size_bytes);

/* A range of reserved addresses with physical memory; the handle is 0 if there is no memory. */
struct driver_block {
    uint64_t address;
    uint64_t handle;
    size_t size_bytes;
    bool mapped;
};
/* Reserves addresses and creates memory without mapping it. */
bool driver_block_create(struct driver_block *block, size_t size_bytes, int handle_types);
/* Does the same with another process's memory. */
bool driver_block_import(struct driver_block *block, size_t size_bytes, int fd);
bool driver_block_map(struct driver_block *block);
bool driver_block_unmap(struct driver_block *block);
bool driver_block_release(struct driver_block *block);
/* Releases all that the block has. */
bool driver_block_destroy(struct driver_block *block);

/* These write a pattern in which every word differs, and check it. */
bool driver_pattern_write(uint64_t address, size_t size_bytes);
bool driver_pattern_check(uint64_t address, size_t size_bytes);

double driver_seconds(void);

#endif
