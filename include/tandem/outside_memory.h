/* outside_memory.h - memory of a GPU that a program allocates without Tandem. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_OUTSIDE_MEMORY_H
#define TANDEM_OUTSIDE_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/region.h>
#include <tandem/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Outside memory is memory of a GPU that this actor, or a process that it has started, allocates
 * without Tandem: PyTorch's allocator, CUDA graphs, NCCL's buffers, the memory of an engine with a
 * sleep mode of its own.  The program says how much that is, and allocates and frees it between two
 * calls, so that other actors get the memory in turn, as with regions:
 *
 *     tdm_outside_memory_begin_resume();  ... allocate ...  tdm_outside_memory_end_resume();
 *     tdm_outside_memory_begin_pause();   ... free ...      tdm_outside_memory_end_pause();
 *
 * The node's memory arbiter grants the declared bytes, and compares them with what the device
 * reports afterwards.  A CUDA GPU reports what all of its users have together.  On a virtual GPU
 * the private memory of the actor and of all processes below it is the report.
 *
 * One thread at a time may call these functions and those of region.h. */
typedef struct tdm_outside_memory tdm_outside_memory;

/* Options of tdm_outside_memory_create(). */
struct tdm_outside_memory_options {
    /* What the memory is for, such as "torch": 1 to 31 bytes, copied.  Different from the tags of
     * the actor's regions. */
    const char *tag;
    size_t size_bytes; /* Declared size: the bytes that the program may use while resident. */
    /* TDM_REGION_KEEP: the program itself keeps the contents in host memory during a pause, so that
     * on a virtual GPU, whose memory is that of the host, no pause is compared. */
    enum tdm_region_policy policy;
    uint32_t gpu; /* Index of the GPU among this actor's GPUs; 0 is the first. */
};

/* Declares outside memory, which is paused: the program has not allocated it.  The caller destroys
 * it.  TDM_E_INVAL for a bad tag or size, and for a GPU that the actor does not have.  On failure
 * `*memory_out` is NULL. */
TDM_API TDM_MUST_CHECK tdm_status
tdm_outside_memory_create(tdm_runtime *runtime, const struct tdm_outside_memory_options *options,
                          tdm_outside_memory **memory_out);
/* Ends the declaration.  Memory that is resident counts as freed.  NULL is allowed. */
TDM_API void tdm_outside_memory_destroy(tdm_outside_memory *memory);

/* Blocks until the declared bytes are granted, at most `timeout_ms` milliseconds as
 * tdm_region_resume() does, and until a CUDA GPU reports them free.  The program then allocates,
 * and calls tdm_outside_memory_end_resume(), or tdm_outside_memory_end_pause() if it could not.
 * TDM_E_STATE: the memory is not paused.  TDM_E_DEVICE_FULL names the holders. */
TDM_API TDM_MUST_CHECK tdm_status tdm_outside_memory_begin_resume(tdm_outside_memory *memory,
                                                                  int64_t timeout_ms);
/* Ends a resume: the program has allocated.  Writes the bytes that the device reports as taken
 * since tdm_outside_memory_begin_resume() to `reported_bytes_out`, which may be NULL.  If they
 * differ from the declared ones by more than 16 MiB and a sixteenth, both numbers are logged; more
 * bytes than declared count for all requests of other actors.  Blocks for the daemon's reply.  It
 * also ends a pause that failed: the memory stays resident.  TDM_E_STATE: neither has begun. */
TDM_API tdm_status tdm_outside_memory_end_resume(tdm_outside_memory *memory,
                                                 uint64_t *reported_bytes_out);

/* Announces that the program is about to free the memory, so that requests of other actors wait for
 * it.  TDM_E_STATE: the memory is not resident. */
TDM_API TDM_MUST_CHECK tdm_status tdm_outside_memory_begin_pause(tdm_outside_memory *memory);
/* Ends a pause: the program has freed the memory.  Waits at most `timeout_ms` milliseconds until
 * the device reports it free.  What is left then is logged, counts for requests of other actors
 * until the next resume, and is written to `left_bytes_out`, which may be NULL; 0 if it is free. It
 * also ends a resume that failed.  TDM_E_STATE: neither has begun. */
TDM_API tdm_status tdm_outside_memory_end_pause(tdm_outside_memory *memory, int64_t timeout_ms,
                                                uint64_t *left_bytes_out);

/* Returns 1 while the memory is resident, 0 while it is paused or about to be either. */
TDM_API int tdm_outside_memory_is_resident(const tdm_outside_memory *memory);

#ifdef __cplusplus
}
#endif

#endif
