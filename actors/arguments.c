/* arguments.c - the arguments of a call, some of which may still be on their way. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/arguments.h"

#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/wire/holes.h"

#include <stdlib.h>

struct tdm__arguments {
    tdm_writer *packed;      /* owned; with holes where the references belong */
    tdm_writer *filled;      /* owned; NULL until the holes are filled */
    struct tdm__holes holes; /* its refs are struct tdm_ref, held */
};

static tdm_status arguments_create(struct tdm__arguments **arguments_out)
{
    struct tdm__arguments *arguments = calloc(1, sizeof(*arguments));
    tdm_status status;

    if (arguments == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the arguments of a call");
    }
    status = tdm_writer_create(&arguments->packed);
    if (status != TDM_OK) {
        free(arguments);
        return status;
    }
    *arguments_out = arguments;
    return TDM_OK;
}

tdm_status tdm__arguments_make(const char *format, va_list args,
                               struct tdm__arguments **arguments_out)
{
    struct tdm__arguments *arguments;
    tdm_status status;

    TDM_TRY(arguments_create(&arguments));
    status = tdm__pack_with_holes(arguments->packed, format, args, &arguments->holes);
    for (uint32_t i = 0; i < arguments->holes.count; i++) {
        tdm__ref_retain(arguments->holes.refs[i]);
    }
    if (status != TDM_OK) {
        tdm__arguments_destroy(arguments);
        return status;
    }
    *arguments_out = arguments;
    return TDM_OK;
}

tdm_status tdm__arguments_of_packed(struct tdm_bytes packed,
                                    struct tdm__arguments **arguments_out)
{
    TDM_TRY(arguments_create(arguments_out));
    tdm_write_packed((*arguments_out)->packed, packed);
    if (tdm_writer_status((*arguments_out)->packed) != TDM_OK) {
        tdm__arguments_destroy(*arguments_out);
        return tdm__fail(TDM_E_NOMEM, "arguments of %zu bytes", packed.size_bytes);
    }
    return TDM_OK;
}

void tdm__arguments_destroy(struct tdm__arguments *arguments)
{
    if (arguments == NULL) {
        return;
    }
    for (uint32_t i = 0; i < arguments->holes.count; i++) {
        tdm_ref_release(arguments->holes.refs[i]);
    }
    tdm_writer_destroy(arguments->packed);
    tdm_writer_destroy(arguments->filled);
    free(arguments);
}

bool tdm__arguments_ready(const struct tdm__arguments *arguments)
{
    for (uint32_t i = 0; i < arguments->holes.count; i++) {
        if (!((const tdm_ref *)arguments->holes.refs[i])->done) {
            return false;
        }
    }
    return true;
}

/* A result is an array; one that holds a single value is passed as that value. */
static void write_result(tdm_writer *writer, const tdm_ref *ref)
{
    const tdm_value *result = tdm_document_root(ref->document);

    tdm_write_value(writer, tdm_value_count(result) == 1 ? tdm_value_at(result, 0) : result);
}

static tdm_status fill_holes(struct tdm__arguments *arguments)
{
    struct tdm_bytes packed = tdm_writer_bytes(arguments->packed);
    const char *bytes = packed.data;
    size_t from = 0;

    TDM_TRY(tdm_writer_create(&arguments->filled));
    for (uint32_t i = 0; i < arguments->holes.count; i++) {
        const tdm_ref *ref = arguments->holes.refs[i];
        size_t to = arguments->holes.offsets[i];

        TDM_TRY(tdm__wrap(tdm__ref_outcome(ref), "reference %u among the arguments", i + 1));
        tdm_write_packed(arguments->filled, (struct tdm_bytes){bytes + from, to - from});
        write_result(arguments->filled, ref);
        from = to;
    }
    tdm_write_packed(arguments->filled,
                     (struct tdm_bytes){bytes + from, packed.size_bytes - from});
    return tdm_writer_status(arguments->filled);
}

tdm_status tdm__arguments_pack(struct tdm__arguments *arguments, struct tdm_bytes *packed_out)
{
    TDM_ASSERT(tdm__arguments_ready(arguments));
    if (arguments->holes.count == 0) {
        *packed_out = tdm_writer_bytes(arguments->packed);
        return TDM_OK;
    }
    TDM_TRY(fill_holes(arguments));
    *packed_out = tdm_writer_bytes(arguments->filled);
    return TDM_OK;
}
