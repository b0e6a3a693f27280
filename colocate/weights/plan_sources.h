/* plan_sources.h - what the trainer ranks of a transfer plan hold, and which of them copies. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_PLAN_SOURCES_H
#define TDM_COLOCATE_WEIGHTS_PLAN_SOURCES_H

#include "colocate/transfer/rect_copy.h"
#include "colocate/weights/location.h"
#include "colocate/weights/replicas.h"

/* Size in bytes; after as much of a slice from one trainer rank, an equally near rank goes on that
 * has sent less. */
enum { TDM__PLAN_SHARE_BYTES = 16 << 20 };

/* Value of last_rank while no rank was chosen for the slice that is being planned. */
#define TDM__PLAN_NO_RANK UINT32_MAX

/* Consecutive elements of a tensor that are also consecutive in one rank's slice. */
struct tdm__element_run {
    uint64_t begin;        /* Index in the tensor of the run's first element. */
    uint64_t end;          /* Index in the tensor after the run's last element. */
    uint64_t slice_offset; /* Index in the slice of the run's first element. */
    uint32_t tensor;       /* Index in the manifest of the tensor to which the elements belong. */
    /* If the run is wanted, index of the slice in the engine rank's layout. If it is held, index of
     * the group of equal slices (replicas.h). */
    uint32_t slice;
    /* Rank that has the slice: the first trainer rank of the group if the run is held, an engine
     * rank if it is wanted. */
    uint32_t rank;
};

/* A growable array of element runs. */
struct tdm__element_runs {
    struct tdm__element_run *items; /* Array of element runs; owned. */
    uint32_t count;                 /* Number of element runs in the array. */
    uint32_t capacity;              /* Number of element runs for which the array has room. */
};

/* A box of a tensor of one or two dimensions; the elements of a vector are one row. */
struct tdm__plan_rectangle {
    uint64_t row;     /* First row in the tensor. */
    uint64_t column;  /* First column in the tensor. */
    uint64_t rows;    /* Number of rows. */
    uint64_t columns; /* Number of columns, and the distance of rows in a slice of this box. */
};

/* The trainer rank from which a part of a slice is copied. */
struct tdm__holder_choice {
    struct tdm__slice_holder holder; /* Trainer rank and its slice. */
    uint8_t locality;                /* How near it is, an enum tdm__copy_locality. */
    bool had_alternative;            /* True if another holder is equally near. */
};

/* Arguments of tdm__plan_sources_init(), with the same meaning as in struct
 * tdm__transfer_plan_options (transfer_plan.h). All pointers are borrowed. */
struct tdm__plan_sources_options {
    const struct tdm__manifest *manifest;       /* Tensors of the model. */
    const struct tdm__layout *from;             /* Layouts of the trainer ranks. */
    const struct tdm__layout *to;               /* Layouts of the engine ranks, checked already. */
    uint32_t from_count;                        /* Number of trainer ranks. */
    uint32_t to_count;                          /* Number of engine ranks. */
    const struct tdm__location *from_locations; /* Where each trainer rank is, or NULL. */
    const struct tdm__location *to_locations;   /* Where each engine rank's target is, or NULL. */
    /* True if all engine ranks of a node get the elements of a group from the same rank of another
     * node. The elements then need to cross between the nodes only once. */
    bool crosses_once;
};

/* What trainer ranks hold, while a plan is compiled. The caller of init owns it. */
struct tdm__plan_sources {
    struct tdm__plan_sources_options options; /* Arguments; the pointers are borrowed. */
    struct tdm__replicas replicas;            /* Trainer ranks that hold equal slices. Owned. */
    /* Element runs of the tensors that are planned by runs, sorted by tensor and element. Owned. */
    struct tdm__element_runs held;
    /* For each tensor the index of its first run in `held`, and one entry more for the end.
     * Owned. */
    uint32_t *firsts;
    /* For each tensor the index of its first group in `replicas`, and one entry more for the end.
     * Owned. */
    uint32_t *groups;
    /* For each tensor true if it is planned by runs: it has other than one or two dimensions, or
     * some slice of it is a flat range. Other tensors are planned by rectangles. Owned. */
    bool *by_runs;
    /* For each trainer rank the bytes that it sends to other GPUs according to the plan so far.
     * Owned. */
    uint64_t *sent_bytes;
    bool
        counts_only; /* True in the compiler's first pass, which counts bytes and adds no copies. */
    /* Trainer rank that was chosen last for the slice that is being planned, or
     * TDM__PLAN_NO_RANK. The compiler sets it before each slice. */
    uint32_t last_rank;
    /* Bytes of that slice that were taken from last_rank one after the other. */
    uint64_t last_bytes;
};

/* Finds equal slices of trainer ranks, and collects the element runs of tensors that are planned by
 * runs. Returns TDM_E_INVAL with a message that names the tensor and the ranks if other slices have
 * elements in common. The caller calls tdm__plan_sources_fini() also after a failure. */
tdm_status tdm__plan_sources_init(const struct tdm__plan_sources_options *options,
                                  struct tdm__plan_sources *sources);
/* Frees all arrays. */
void tdm__plan_sources_fini(struct tdm__plan_sources *sources);

/* Appends the element runs of one slice, which is a box or a flat range of elements. */
tdm_status tdm__element_runs_add_slice(struct tdm__element_runs *runs,
                                       const struct tdm__manifest *manifest,
                                       const struct tdm_slice *slice, uint32_t index,
                                       uint32_t rank);
/* Returns the box of a slice that is no flat range, of a tensor of one or two dimensions. */
struct tdm__plan_rectangle tdm__plan_rectangle_of_slice(const struct tdm_tensor_info *tensor,
                                                        const struct tdm_slice *slice);
/* Computes what two boxes of a tensor have in common; returns false if that is nothing. */
bool tdm__plan_rectangle_intersect(const struct tdm__plan_rectangle *one,
                                   const struct tdm__plan_rectangle *other,
                                   struct tdm__plan_rectangle *both_out);
/* Returns the slice that all holders of a group have, as the first of them describes it. */
const struct tdm_slice *tdm__plan_sources_slice(const struct tdm__plan_sources *sources,
                                                uint32_t group);
/* Returns how near a trainer rank is to an engine rank's target: an enum tdm__copy_locality. */
uint8_t tdm__plan_sources_locality(const struct tdm__plan_sources *sources, uint32_t from_rank,
                                   uint32_t to_rank);
/* Chooses from which holder of a group to copy: the nearest, then the one that goes on, then the
 * one whose rank sends the fewest bytes. With crosses_once the group and the engine rank's node
 * alone decide among the holders on other nodes. */
struct tdm__holder_choice tdm__plan_sources_choose(const struct tdm__plan_sources *sources,
                                                   uint32_t to_rank, uint32_t group);
/* Counts the bytes that a chosen rank sends. The first pass counts those that no other rank is near
 * enough to send, the second pass the others. */
void tdm__plan_sources_count(struct tdm__plan_sources *sources,
                             const struct tdm__holder_choice *choice, uint64_t bytes);
/* Returns how many of `count` elements of a tensor a chosen rank copies before the choice is made
 * again. If it had an alternative these are whole rows of about TDM__PLAN_SHARE_BYTES. */
uint64_t tdm__plan_sources_share(const struct tdm_tensor_info *tensor,
                                 const struct tdm__holder_choice *choice, uint64_t count);
/* Returns the index in `held` of the tensor's first run that ends after element `at`. */
uint32_t tdm__plan_sources_find_run(const struct tdm__plan_sources *sources, uint32_t tensor,
                                    uint64_t at);

#endif
