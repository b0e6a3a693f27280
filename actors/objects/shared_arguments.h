/* shared_arguments.h - calls whose arguments contain large values that are read where they are. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_SHARED_ARGUMENTS_H
#define TDM_ACTORS_OBJECTS_SHARED_ARGUMENTS_H

#include "actors/objects/large_value.h"
#include "runtime/rpc/rpc.h"

/* Returns what a result, which is an array of values, is as an argument: its only value, or the
 * array. Borrowed from the result. */
const tdm_value *tdm__result_as_argument(const tdm_value *result);

/* Large values that are passed to a call besides its small arguments, each in its own segment. */
struct tdm__shared_values {
    /* The values, retained; value i is part i of the arguments (tdm__write_part()). */
    struct tdm__large *values[TDM__RPC_FDS_MAX];
    uint32_t count; /* Number of entries in `values`. */
};
/* Retains the value and adds it. There must be room for it. */
void tdm__shared_values_add(struct tdm__shared_values *shared, struct tdm__large *large);
/* Releases all values. */
void tdm__shared_values_release(struct tdm__shared_values *shared);

/* Exports the values to the process at the other end of `conn`, which is on this node, and writes
 * the message of the call: the packed arguments, which contain the parts, and the descriptions of
 * the exports. Stores the descriptors of the segments (borrowed) in `fds_out`. A value that was
 * spilled is read back first. */
tdm_status tdm__shared_arguments_export(const struct tdm__shared_values *shared,
                                        struct tdm_bytes arguments, struct tdm__conn *conn,
                                        tdm_writer *writer, int fds_out[TDM__RPC_FDS_MAX]);

/* Returns true if the message of a call was written by tdm__shared_arguments_export(). */
bool tdm__shared_arguments_are(struct tdm_bytes packed);
/* Creates a document of the arguments of such a call, which reads the values in place. Takes the
 * call's descriptors. */
tdm_status tdm__shared_arguments_import(tdm_runtime *runtime, struct tdm__incoming_call *incoming,
                                        tdm_document **document_out);
/* Returns the exports of such a call, which will not be executed, to the caller. */
void tdm__shared_arguments_return(struct tdm__conn *conn, struct tdm__incoming_call *incoming);

#endif
