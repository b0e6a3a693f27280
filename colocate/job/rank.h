/* rank.h - the state and functions that trainer and engine actors share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_RANK_H
#define TDM_COLOCATE_JOB_RANK_H

#include "colocate/job/gather_groups.h"
#include "colocate/job/library.h"
#include "colocate/job/named_layout.h"
#include "colocate/job/rank_files.h"
#include "colocate/job/spans.h"
#include "colocate/memory/outside_memory.h"
#include "colocate/memory/region.h"
#include "colocate/weights/commit.h"
#include "colocate/weights/location.h"
#include "colocate/weights/receiver.h"
#include "runtime/wire/message.h"

#include <tandem/actor.h>

/* Size in bytes of the buffer for the name of a rank, its NUL included. */
enum { TDM__RANK_NAME_BYTES = TDM__MODEL_NAME_BYTES_MAX + 32 };
/* Formats the actor name by which ranks find each other, for example "engine/0/1". The name of a
 * model other than TDM__JOB_MODEL is put before it, so that jobs for several models can run in
 * one cluster. */
void tdm__rank_name(char name[TDM__RANK_NAME_BYTES], const char *model, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The common first member of the trainer and engine actors. The actor owns it; its methods use
 * it on the actor's method thread unless they say otherwise. */
struct tdm__rank {
    /* Borrowed runtime of the actor process. */
    tdm_runtime *runtime;
    /* Owned settings of the job. */
    tdm_config *config;
    /* Where the files of the job are on this node. */
    struct tdm__rank_files files;
    /* Owned job library; never closed, because it stays until the process ends. */
    struct tdm__job_library library;
    /* Owned collective group of the ranks that compute together. */
    tdm_collective_group *group;
    /* What the library is told about the rank; it borrows from the other fields. */
    struct tdm_rank_context context;
    /* Owned layout from the job file; NULL if the library itself reports where the model is. */
    struct tdm__named_layout *named_layout;
    /* Name of that group. */
    char group_name[TDM__RANK_NAME_BYTES];
    /* Name under which the store keeps the weight versions. */
    char model[TDM__MODEL_NAME_BYTES_MAX];
    /* Owned state of the library's trainer or engine table; NULL until its open() succeeded. */
    void *state;
    /* Borrowed GPU memory manager of the runtime. */
    struct tdm__regions *regions;
    /* Owned memory regions in the order in which the library declared them; NULL for outside
     * memory.
     */
    tdm_region *memory[TDM_RANK_REGIONS_MAX];
    /* Owned outside memory at the same places; NULL for regions. */
    tdm_outside_memory *outside[TDM_RANK_REGIONS_MAX];
    /* Number of elements of `memory` and of `outside`. */
    uint32_t memory_count;
    /* The library's functions that allocate and free outside memory; NULL if it has none. The actor
     * sets them before it reserves regions. */
    tdm_status (*resume_outside)(void *state, const char *tag);
    tdm_status (*pause_outside)(void *state, const char *tag);
    /* Node and GPU of this rank. */
    struct tdm__location location;
    /* Which trainer ranks serve which engines. */
    struct tdm__gather_groups groups;
    /* Size of the staging bucket in bytes. */
    uint64_t bucket_bytes;
    /* Longest time in milliseconds for collectives and for calls between ranks. */
    int64_t timeout_ms;
    /* Which checksums the rank verifies. */
    enum tdm__verify verify;
    /* True if an engine rank receives new weights over those that it serves (update.mode
     * "bucket"). */
    bool overwrites;
    /* Spans for the trace that the controller has not fetched yet. */
    struct tdm__spans spans;
};

/* Reads the constructor arguments, opens the library and joins the collective group, which
 * blocks until all ranks of the group have joined. `section` is the rank's section of the job
 * file: "trainer" or "engine". */
tdm_status tdm__rank_open(struct tdm__rank *rank, tdm_call *call, const char *section);
/* Releases everything that was opened, also after a failure. `close` is the library's function
 * that frees `state`. */
void tdm__rank_close(struct tdm__rank *rank, void (*close)(void *state));

/* Returns `status`, which a function of the library returned, with its error detail. After
 * TDM_E_DEVICE it first makes a call to the GPU: if an error of one of the library's kernels has
 * broken this process for CUDA, that call ends the process, so that the actor is restarted. */
tdm_status tdm__rank_check_device(const struct tdm__rank *rank, tdm_status status);

/* Creates the regions and the outside memory that the library declared, in the paused state:
 * regions have addresses but no memory. TDM_E_INVAL for outside memory if the library has no
 * functions for it. */
tdm_status tdm__rank_reserve_regions(struct tdm__rank *rank, const struct tdm_region_spec *specs,
                                     uint32_t count);
/* Finds the region with this tag; TDM_E_NOT_FOUND if it does not exist, or is outside memory. */
tdm_status tdm__rank_find_region(struct tdm__rank *rank, const char *tag, tdm_region **region_out);
/* Writes the address of each region to `addresses`, in the order of declaration; NULL for outside
 * memory. */
void tdm__rank_region_addresses(struct tdm__rank *rank, void *addresses[TDM_RANK_REGIONS_MAX]);

/* Resumes the regions with this tag, or all if it is NULL, in their order. Regions that are
 * resident are skipped. Outside memory is granted first, and the library then allocates it. Adds a
 * span to the trace for each region. */
tdm_status tdm__rank_resume_regions(struct tdm__rank *rank, const char *tag);
/* Pauses all resident regions in the opposite order; the library frees outside memory, and the
 * device must report it free within 5 s, or it stays counted. Adds a span to the trace for each
 * region. */
tdm_status tdm__rank_pause_regions(struct tdm__rank *rank);

/* Encodes `arguments` by their table and calls a method of another rank with them. Does not block.
 * The caller owns the reference to the reply. */
tdm_status tdm__rank_call(tdm_actor *actor, const char *method, const struct tdm__message *table,
                          const void *arguments, tdm_ref **ref_out);

/* Writes whether the job file gives a tolerance for log-probabilities, so that they are compared.
 */
tdm_status tdm__rank_compares_logprobs(const struct tdm__rank *rank, bool *compares_out);

/* Method "trace" of both classes: replies with the rank's spans and forgets them. */
tdm_status tdm__rank_method_trace(struct tdm__rank *rank, tdm_call *call);

/* Replies to a call with the GPU of the rank, the size of its region `weights`, and the layout that
 * an engine has in it. `converts` says whether the engine keeps a tensor there in another dtype
 * than the trainers.
 */
tdm_status tdm__rank_reply_layout(const struct tdm__rank *rank, tdm_call *call,
                                  const struct tdm__layout *layout, const tdm_region *weights,
                                  bool converts);

#endif
