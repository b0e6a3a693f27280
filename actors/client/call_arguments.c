/* call_arguments.c - the arguments of a call, some of which may still be on their way. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/client/call_arguments.h"

#include "actors/client/actor_handle.h"
#include "actors/objects/large_value.h"
#include "actors/objects/pull.h"
#include "actors/objects/ref_table.h"
#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/free_list.h"
#include "runtime/wire/placeholders.h"

enum { SMALL_BYTES_MAX = 256 };

struct tdm__call_arguments {
    tdm_runtime *runtime; /* borrowed */
    tdm_writer *packed;   /* owned; with placeholders where values of references belong */
    tdm_writer *first;    /* owned; whose placeholders for references and handles are filled by now;
                           * the list of the other placeholders lives there */
    tdm_writer *filled;   /* owned; NULL until the placeholders are filled */
    struct tdm__large *large;              /* counted; instead of `packed`, where that is large */
    tdm_writer *told;                      /* owned; where the large ones lie */
    int fd;                                /* borrowed; with which to say so */
    struct tdm__placeholders placeholders; /* for values */
    struct tdm__pins values;               /* the references whose values are arguments */
    struct tdm__pins passed;               /* what is passed on: kept until the call is answered */
    bool opaque;                           /* values that came packed may pass more on */
};

static tdm_status arguments_create(tdm_runtime *runtime, struct tdm__call_arguments **arguments_out)
{
    struct tdm__call_arguments *arguments = runtime->cached_arguments;
    tdm_status status;

    if (arguments != NULL) {
        runtime->cached_arguments = NULL;
        *arguments_out = arguments;
        return TDM_OK;
    }
    arguments = tdm__free_list_alloc_zeroed(sizeof(*arguments));
    if (arguments == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the arguments of a call");
    }
    arguments->runtime = runtime;
    status = tdm_writer_create(&arguments->packed);
    if (status != TDM_OK) {
        tdm__free_list_free(arguments, sizeof(*arguments));
        return status;
    }
    *arguments_out = arguments;
    return TDM_OK;
}

/* ---- references and handles: written and held as the call is made ------------------------ */

/* For tdm__fill_placeholders(): placeholders for values stay, at another place. */
struct filling {
    struct tdm__call_arguments *arguments;
    uint32_t values_count;
};

static tdm_status fill_link(void *arg, tdm_writer *writer, char letter, void *object)
{
    struct filling *filling = arg;
    struct tdm__call_arguments *arguments = filling->arguments;
    const tdm_actor *actor;

    if (letter == 'r') {
        arguments->placeholders.offsets[filling->values_count] =
            tdm_writer_bytes(writer).size_bytes;
        filling->values_count++;
        return TDM_OK;
    }
    TDM_TRY(tdm__refs_fill_placeholder(arguments->runtime, writer, letter, object));
    if (letter == 'R') {
        return tdm__pins_add(&arguments->passed, object);
    }
    actor = object;
    return actor->is_counted && actor->channel->hold != NULL
               ? tdm__pins_add(&arguments->passed, actor->channel->hold)
               : TDM_OK;
}

static tdm_status fill_links(struct tdm__call_arguments *arguments)
{
    struct filling filling = {.arguments = arguments};

    if (arguments->placeholders.links_count == 0) {
        return TDM_OK;
    }
    arguments->first = arguments->packed;
    arguments->packed = NULL;
    TDM_TRY(tdm_writer_create(&arguments->packed));
    return tdm__fill_placeholders(arguments->packed, tdm_writer_bytes(arguments->first),
                                  &arguments->placeholders, fill_link, &filling);
}

static tdm_status hold_values(struct tdm__call_arguments *arguments)
{
    for (uint32_t i = 0; i < arguments->placeholders.count; i++) {
        tdm_ref *ref = arguments->placeholders.refs[i];

        TDM_TRY(tdm__pins_add(&arguments->values, ref));
        tdm__reference_fetch(ref);
    }
    return TDM_OK;
}

static tdm_status hold_opaque(struct tdm__call_arguments *arguments, struct tdm_bytes packed)
{
    if (!arguments->opaque) {
        return TDM_OK;
    }
    arguments->opaque = false;
    return tdm__pins_from_packed(arguments->runtime, packed, &arguments->passed);
}

static tdm_status arguments_fill(struct tdm__call_arguments *arguments, const char *format,
                                 va_list args)
{
    arguments->opaque = tdm__format_has(format, "vp");
    TDM_TRY(tdm__large_pack(arguments->runtime, format, args, &arguments->large));
    if (arguments->large != NULL) {
        return hold_opaque(arguments, tdm__large_bytes(arguments->large));
    }
    TDM_TRY(tdm__pack_with_placeholders(arguments->packed, format, args, &arguments->placeholders));
    TDM_TRY(hold_values(arguments));
    TDM_TRY(fill_links(arguments));
    return arguments->placeholders.count > 0
               ? TDM_OK
               : hold_opaque(arguments, tdm_writer_bytes(arguments->packed));
}

tdm_status tdm__call_arguments_create(tdm_runtime *runtime, const char *format, va_list args,
                                      struct tdm__call_arguments **arguments_out)
{
    struct tdm__call_arguments *arguments;
    tdm_status status;

    TDM_TRY(arguments_create(runtime, &arguments));
    status = arguments_fill(arguments, format, args);
    if (status != TDM_OK) {
        tdm__call_arguments_destroy(arguments);
        return status;
    }
    *arguments_out = arguments;
    return TDM_OK;
}

tdm_status tdm__call_arguments_copy(tdm_runtime *runtime, struct tdm_bytes packed,
                                    struct tdm__call_arguments **arguments_out)
{
    struct tdm__call_arguments *arguments;
    tdm_status status;

    TDM_TRY(arguments_create(runtime, &arguments));
    arguments->opaque = true;
    tdm_write_packed(arguments->packed, packed);
    status = tdm_writer_status(arguments->packed);
    if (status != TDM_OK) {
        status = tdm__fail(TDM_E_NOMEM, "arguments of %zu bytes", packed.size_bytes);
    } else {
        status = hold_opaque(arguments, packed);
    }
    if (status != TDM_OK) {
        tdm__call_arguments_destroy(arguments);
        return status;
    }
    *arguments_out = arguments;
    return TDM_OK;
}

static bool is_small(const struct tdm__call_arguments *arguments)
{
    return arguments->large == NULL && arguments->placeholders.count == 0 &&
           arguments->passed.count == 0 &&
           tdm_writer_bytes(arguments->packed).size_bytes <= SMALL_BYTES_MAX;
}

struct tdm_bytes tdm__call_arguments_inline_bytes(const struct tdm__call_arguments *arguments)
{
    struct tdm_bytes none = {NULL, 0};

    return is_small(arguments) ? tdm_writer_bytes(arguments->packed) : none;
}

bool tdm__call_arguments_contain_refs(const struct tdm__call_arguments *arguments)
{
    return arguments->passed.count > 0;
}

/* ---- the end ---------------------------------------------------------------------------- */

/* Those of most calls are few bytes, soon copied to where they stay: one is kept, empty. */
static bool cached_arguments_keep(struct tdm__call_arguments *arguments)
{
    tdm_runtime *runtime = arguments->runtime;

    if (runtime->cached_arguments != NULL || arguments->first != NULL || arguments->told != NULL ||
        !is_small(arguments)) {
        return false;
    }
    tdm_writer_clear(arguments->packed);
    arguments->placeholders = (struct tdm__placeholders){.count = 0}; /* the lists went with that */
    arguments->opaque = false;
    runtime->cached_arguments = arguments;
    return true;
}

static void arguments_free(struct tdm__call_arguments *arguments)
{
    tdm_writer_destroy(arguments->packed);
    tdm_writer_destroy(arguments->first);
    tdm_writer_destroy(arguments->filled);
    tdm_writer_destroy(arguments->told);
    tdm__large_release(arguments->large);
    tdm__pins_release(&arguments->values);
    tdm__pins_release(&arguments->passed);
    tdm__free_list_free(arguments, sizeof(*arguments));
}

void tdm__call_arguments_destroy(struct tdm__call_arguments *arguments)
{
    if (arguments != NULL && !cached_arguments_keep(arguments)) {
        arguments_free(arguments);
    }
}

void tdm__call_arguments_free_cached(tdm_runtime *runtime)
{
    if (runtime->cached_arguments != NULL) {
        arguments_free(runtime->cached_arguments);
        runtime->cached_arguments = NULL;
    }
}

/* ---- values: filled in when they are there ----------------------------------------------- */

bool tdm__call_arguments_are_ready(const struct tdm__call_arguments *arguments)
{
    for (uint32_t i = 0; i < arguments->values.count; i++) {
        if (!arguments->values.refs[i]->done) {
            return false;
        }
    }
    return true;
}

/* A result is an array; one that holds a single value is passed as that value. */
static tdm_status write_result(tdm_writer *writer, tdm_ref *ref)
{
    const tdm_value *value;

    TDM_TRY(tdm__ref_value(ref, &value));
    tdm_write_value(writer, tdm_value_count(value) == 1 ? tdm_value_at(value, 0) : value);
    return TDM_OK;
}

static tdm_status write_filled(struct tdm__call_arguments *arguments, tdm_writer *filled)
{
    struct tdm_bytes packed = tdm_writer_bytes(arguments->packed);
    const char *bytes = packed.data;
    size_t from = 0;

    for (uint32_t i = 0; i < arguments->placeholders.count; i++) {
        size_t to = arguments->placeholders.offsets[i];

        tdm_write_packed(filled, (struct tdm_bytes){bytes + from, to - from});
        TDM_TRY(tdm__wrap(write_result(filled, arguments->placeholders.refs[i]),
                          "reference %u among the arguments", i + 1));
        from = to;
    }
    tdm_write_packed(filled, (struct tdm_bytes){bytes + from, packed.size_bytes - from});
    TDM_TRY(tdm_writer_status(filled));
    return hold_opaque(arguments, tdm_writer_bytes(filled));
}

static tdm_status fill_values(struct tdm__call_arguments *arguments)
{
    tdm_writer *filled;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&filled));
    status = write_filled(arguments, filled);
    if (status != TDM_OK) {
        tdm_writer_destroy(filled);
        return status;
    }
    arguments->filled = filled;
    return TDM_OK;
}

static tdm_status argument_export(struct tdm__call_arguments *arguments, struct tdm__conn *conn,
                                  bool near, struct tdm__rpc_request *request)
{
    tdm_writer_destroy(arguments->told); /* from when the call was sent before */
    arguments->told = NULL;
    TDM_TRY(tdm_writer_create(&arguments->told));
    if (near) {
        TDM_TRY(tdm__large_export(arguments->large, conn, arguments->told, &arguments->fd));
        request->fds = &arguments->fd;
        request->fds_count = 1;
    } else {
        TDM_TRY(tdm__large_offer(arguments->large, conn, arguments->told));
    }
    request->packed = tdm_writer_bytes(arguments->told);
    return TDM_OK;
}

tdm_status tdm__call_arguments_pack(struct tdm__call_arguments *arguments, struct tdm__conn *conn,
                                    bool near, struct tdm__rpc_request *request)
{
    size_t inline_max = conn == NULL ? SIZE_MAX
                        : near       ? TDM__INLINE_BYTES_MAX
                                     : TDM__PULL_CHUNK_BYTES;

    TDM_ASSERT(tdm__call_arguments_are_ready(arguments));
    if (arguments->placeholders.count > 0 && arguments->filled == NULL) {
        TDM_TRY(fill_values(arguments));
    }
    if (arguments->large == NULL) {
        request->packed = tdm_writer_bytes(arguments->placeholders.count > 0 ? arguments->filled
                                                                             : arguments->packed);
        if (request->packed.size_bytes > inline_max) { /* without room they travel inside */
            (void)tdm__large_copy_now(arguments->runtime, request->packed, &arguments->large);
        }
    } else {
        request->packed = tdm__large_bytes(arguments->large);
    }
    return arguments->large == NULL || request->packed.size_bytes <= inline_max
               ? TDM_OK
               : argument_export(arguments, conn, near, request);
}
