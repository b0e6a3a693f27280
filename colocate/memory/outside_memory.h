/* outside_memory.h - memory that a program allocates without Tandem, for the memory arbiter. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_MEMORY_OUTSIDE_MEMORY_H
#define TDM_COLOCATE_MEMORY_OUTSIDE_MEMORY_H

#include <stdbool.h>
#include <tandem/outside_memory.h>

/* What outside memory needs of the memory arbiter and of the device. All are mandatory. */
struct tdm__outside_callbacks {
    /* Blocks until `bytes` are granted for the tag and the device reports them free. */
    tdm_status (*request)(void *arg, const char *tag, size_t bytes, int64_t timeout_ms);
    /* Announces that `bytes` of the tag will soon be free. */
    void (*announce)(void *arg, const char *tag, size_t bytes);
    /* Tells the arbiter what the tag is declared to use now, and what the device reports. */
    tdm_status (*tell_usage)(void *arg, const char *tag, uint64_t declared_bytes,
                             uint64_t reported_bytes);
    /* Writes the bytes that are in use, by the report of the device. */
    tdm_status (*read_used)(void *arg, uint64_t *used_bytes_out);
    /* True if the memory of the device is host memory, so that copies in host memory count, too. */
    bool is_host_memory;
    void *arg; /* First argument of the functions. */
};

/* Declares outside memory, as tdm_outside_memory_create() does; options->gpu is not read. Copies
 * the callbacks. */
tdm_status tdm__outside_memory_create(const struct tdm__outside_callbacks *callbacks,
                                      const struct tdm_outside_memory_options *options,
                                      tdm_outside_memory **memory_out);
/* Returns the tag of the memory, borrowed from it. */
const char *tdm__outside_memory_tag(const tdm_outside_memory *memory);
/* Returns the declared bytes of the memory. */
uint64_t tdm__outside_memory_bytes(const tdm_outside_memory *memory);

#endif
