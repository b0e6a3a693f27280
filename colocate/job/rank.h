/* rank.h - what a trainer rank and an engine rank have in common. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_RANK_H
#define TDM_COLOCATE_JOB_RANK_H

#include "colocate/job/library.h"
#include "colocate/job/named_layout.h"
#include "colocate/job/spans.h"
#include "colocate/memory/region.h"
#include "colocate/weights/commit.h"
#include "colocate/weights/location.h"
#include "colocate/weights/receiver.h"

#include <tandem/actor.h>

/* The arguments of both constructors, written by the controller. */
struct tdm__rank_arguments {
    const char *config_json;
    const char *config_name; /* of the file, for messages */
    const char *library;
    const char *model_config; /* path; "": none */
    const char *model;        /* whose versions the job makes */
    const char *group;        /* meeting point of the ranks that compute together */
    uint64_t rank;
    uint64_t ranks_count;
    uint64_t engine;
    uint64_t ranks_per_engine; /* ranks of each engine */
    uint64_t seed;
    uint64_t bucket_bytes;
    uint64_t timeout_ms; /* of collectives and of calls between ranks */
    uint64_t verify;     /* enum tdm__verify */
};
tdm_status tdm__rank_arguments_write(tdm_writer *writer,
                                     const struct tdm__rank_arguments *arguments);

/* The name by which ranks find each other, "engine/0/1": that of a model other than
 * TDM__JOB_MODEL stands in front of it, so that jobs for several models can be one family.
 */
enum { TDM__RANK_NAME_BYTES = TDM__MODEL_NAME_BYTES_MAX + 32 };
void tdm__rank_name(char name[TDM__RANK_NAME_BYTES], const char *model, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

struct tdm__rank {
    tdm_runtime *runtime; /* borrowed */
    tdm_config *config;   /* owned, like the rest */
    struct tdm__job_library library;
    tdm_collective_group *group;
    struct tdm_rank_context context;
    struct tdm__named_layout *named_layout; /* NULL: the library says where the model is */
    char model[TDM__MODEL_NAME_BYTES_MAX];
    void *state;                  /* of the library's table; NULL until it opened */
    struct tdm__regions *regions; /* borrowed from the runtime */
    tdm_region *memory[TDM_RANK_REGIONS_MAX];
    uint32_t memory_count;
    struct tdm__location location;
    uint32_t ranks_per_engine;
    uint64_t bucket_bytes;
    int64_t timeout_ms;
    enum tdm__verify verify;
    struct tdm__spans spans;
};

/* Reads the arguments, opens the library, meets the group.  `section` of the job file:
 * "trainer" or "engine". */
tdm_status tdm__rank_open(struct tdm__rank *rank, tdm_call *call, const char *section);
/* Closes what was opened; `close` is the table's entry for `state`. */
void tdm__rank_close(struct tdm__rank *rank, void (*close)(void *state));

/* Reserves what the library declared, without memory. */
tdm_status tdm__rank_reserve_regions(struct tdm__rank *rank, const struct tdm_region_spec *specs,
                                     uint32_t count);
/* The region with this tag; TDM_E_NOT_FOUND. */
tdm_status tdm__rank_find_region(struct tdm__rank *rank, const char *tag, tdm_region **region_out);
void tdm__rank_region_addresses(struct tdm__rank *rank, void *addresses[TDM_RANK_REGIONS_MAX]);

/* The regions with that tag, or all (NULL): taken in their order, given back in the opposite
 * one. Those that are so already are left alone; each is a span of the trace. */
tdm_status tdm__rank_resume_regions(struct tdm__rank *rank, const char *tag);
tdm_status tdm__rank_pause_regions(struct tdm__rank *rank);

/* Methods that both classes have. */
tdm_status tdm__rank_method_trace(struct tdm__rank *rank, tdm_call *call);

#endif
