/* arguments.c - the arguments of a call, some of which may still be on their way. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/arguments.h"

#include "actors/handle.h"
#include "actors/objects/large.h"
#include "actors/objects/objects.h"
#include "actors/objects/pull.h"
#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/spare.h"
#include "runtime/wire/holes.h"

enum { SMALL_BYTES_MAX = 256 };

struct tdm__arguments {
    tdm_runtime *runtime; /* borrowed */
    tdm_writer *packed;   /* owned; with holes where values of references belong */
    tdm_writer *first;    /* owned; whose holes for references and handles are filled by now;
                           * the list of the other holes lives there */
    tdm_writer *filled;   /* owned; NULL until the holes are filled */
    struct tdm__large *large; /* counted; instead of `packed`, where that is large */
    tdm_writer *told;         /* owned; where the large ones lie */
    int fd;                   /* borrowed; with which to say so */
    struct tdm__holes holes;  /* for values */
    struct tdm__holds values; /* the references whose values are arguments */
    struct tdm__holds passed; /* what is passed on: kept until the call is answered */
    bool opaque;              /* values that came packed may pass more on */
};

static tdm_status arguments_create(tdm_runtime *runtime, struct tdm__arguments **arguments_out)
{
    struct tdm__arguments *arguments = runtime->spare_arguments;
    tdm_status status;

    if (arguments != NULL) {
        runtime->spare_arguments = NULL;
        *arguments_out = arguments;
        return TDM_OK;
    }
    arguments = tdm__spare_take_zeroed(sizeof(*arguments));
    if (arguments == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the arguments of a call");
    }
    arguments->runtime = runtime;
    status = tdm_writer_create(&arguments->packed);
    if (status != TDM_OK) {
        tdm__spare_give(arguments, sizeof(*arguments));
        return status;
    }
    *arguments_out = arguments;
    return TDM_OK;
}

/* ---- references and handles: written and held as the call is made ------------------------ */

/* For tdm__fill_holes(): holes for values stay, at another place. */
struct filling {
    struct tdm__arguments *arguments;
    uint32_t values_count;
};

static tdm_status fill_link(void *arg, tdm_writer *writer, char letter, void *object)
{
    struct filling *filling = arg;
    struct tdm__arguments *arguments = filling->arguments;
    const tdm_actor *actor;

    if (letter == 'r') {
        arguments->holes.offsets[filling->values_count] = tdm_writer_bytes(writer).size_bytes;
        filling->values_count++;
        return TDM_OK;
    }
    TDM_TRY(tdm__link_fill(arguments->runtime, writer, letter, object));
    if (letter == 'R') {
        return tdm__holds_add(&arguments->passed, object);
    }
    actor = object;
    return actor->counted && actor->link->hold != NULL
               ? tdm__holds_add(&arguments->passed, actor->link->hold)
               : TDM_OK;
}

static tdm_status fill_links(struct tdm__arguments *arguments)
{
    struct filling filling = {.arguments = arguments};

    if (arguments->holes.links_count == 0) {
        return TDM_OK;
    }
    arguments->first = arguments->packed;
    arguments->packed = NULL;
    TDM_TRY(tdm_writer_create(&arguments->packed));
    return tdm__fill_holes(arguments->packed, tdm_writer_bytes(arguments->first),
                           &arguments->holes, fill_link, &filling);
}

static tdm_status hold_values(struct tdm__arguments *arguments)
{
    for (uint32_t i = 0; i < arguments->holes.count; i++) {
        tdm_ref *ref = arguments->holes.refs[i];

        TDM_TRY(tdm__holds_add(&arguments->values, ref));
        tdm__reference_want(ref);
    }
    return TDM_OK;
}

static tdm_status hold_opaque(struct tdm__arguments *arguments, struct tdm_bytes packed)
{
    if (!arguments->opaque) {
        return TDM_OK;
    }
    arguments->opaque = false;
    return tdm__holds_of_packed(arguments->runtime, packed, &arguments->passed);
}

static tdm_status arguments_fill(struct tdm__arguments *arguments, const char *format,
                                 va_list args)
{
    arguments->opaque = tdm__format_has(format, "vp");
    TDM_TRY(tdm__large_pack(arguments->runtime, format, args, &arguments->large));
    if (arguments->large != NULL) {
        return hold_opaque(arguments, tdm__large_bytes(arguments->large));
    }
    TDM_TRY(tdm__pack_with_holes(arguments->packed, format, args, &arguments->holes));
    TDM_TRY(hold_values(arguments));
    TDM_TRY(fill_links(arguments));
    return arguments->holes.count > 0
               ? TDM_OK
               : hold_opaque(arguments, tdm_writer_bytes(arguments->packed));
}

tdm_status tdm__arguments_make(tdm_runtime *runtime, const char *format, va_list args,
                               struct tdm__arguments **arguments_out)
{
    struct tdm__arguments *arguments;
    tdm_status status;

    TDM_TRY(arguments_create(runtime, &arguments));
    status = arguments_fill(arguments, format, args);
    if (status != TDM_OK) {
        tdm__arguments_destroy(arguments);
        return status;
    }
    *arguments_out = arguments;
    return TDM_OK;
}

tdm_status tdm__arguments_of_packed(tdm_runtime *runtime, struct tdm_bytes packed,
                                    struct tdm__arguments **arguments_out)
{
    struct tdm__arguments *arguments;
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
        tdm__arguments_destroy(arguments);
        return status;
    }
    *arguments_out = arguments;
    return TDM_OK;
}

static bool is_small(const struct tdm__arguments *arguments)
{
    return arguments->large == NULL && arguments->holes.count == 0 &&
           arguments->passed.count == 0 &&
           tdm_writer_bytes(arguments->packed).size_bytes <= SMALL_BYTES_MAX;
}

struct tdm_bytes tdm__arguments_small(const struct tdm__arguments *arguments)
{
    struct tdm_bytes none = {NULL, 0};

    return is_small(arguments) ? tdm_writer_bytes(arguments->packed) : none;
}

bool tdm__arguments_pass_on(const struct tdm__arguments *arguments)
{
    return arguments->passed.count > 0;
}

/* ---- the end ---------------------------------------------------------------------------- */

/* Those of most calls are few bytes, soon copied to where they stay: one is kept, empty. */
static bool keep_spare(struct tdm__arguments *arguments)
{
    tdm_runtime *runtime = arguments->runtime;

    if (runtime->spare_arguments != NULL || arguments->first != NULL ||
        arguments->told != NULL || !is_small(arguments)) {
        return false;
    }
    tdm_writer_clear(arguments->packed);
    arguments->holes = (struct tdm__holes){.count = 0}; /* the lists went with that */
    arguments->opaque = false;
    runtime->spare_arguments = arguments;
    return true;
}

static void destroy(struct tdm__arguments *arguments)
{
    tdm_writer_destroy(arguments->packed);
    tdm_writer_destroy(arguments->first);
    tdm_writer_destroy(arguments->filled);
    tdm_writer_destroy(arguments->told);
    tdm__large_release(arguments->large);
    tdm__holds_release(&arguments->values);
    tdm__holds_release(&arguments->passed);
    tdm__spare_give(arguments, sizeof(*arguments));
}

void tdm__arguments_destroy(struct tdm__arguments *arguments)
{
    if (arguments != NULL && !keep_spare(arguments)) {
        destroy(arguments);
    }
}

void tdm__arguments_drop_spare(tdm_runtime *runtime)
{
    if (runtime->spare_arguments != NULL) {
        destroy(runtime->spare_arguments);
        runtime->spare_arguments = NULL;
    }
}

/* ---- values: filled in when they are there ----------------------------------------------- */

bool tdm__arguments_ready(const struct tdm__arguments *arguments)
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

static tdm_status write_filled(struct tdm__arguments *arguments, tdm_writer *filled)
{
    struct tdm_bytes packed = tdm_writer_bytes(arguments->packed);
    const char *bytes = packed.data;
    size_t from = 0;

    for (uint32_t i = 0; i < arguments->holes.count; i++) {
        size_t to = arguments->holes.offsets[i];

        tdm_write_packed(filled, (struct tdm_bytes){bytes + from, to - from});
        TDM_TRY(tdm__wrap(write_result(filled, arguments->holes.refs[i]),
                          "reference %u among the arguments", i + 1));
        from = to;
    }
    tdm_write_packed(filled, (struct tdm_bytes){bytes + from, packed.size_bytes - from});
    TDM_TRY(tdm_writer_status(filled));
    return hold_opaque(arguments, tdm_writer_bytes(filled));
}

static tdm_status fill_values(struct tdm__arguments *arguments)
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

static tdm_status lend(struct tdm__arguments *arguments, struct tdm__conn *conn, bool near,
                       struct tdm__request *request)
{
    tdm_writer_destroy(arguments->told); /* from when the call was sent before */
    arguments->told = NULL;
    TDM_TRY(tdm_writer_create(&arguments->told));
    if (near) {
        TDM_TRY(tdm__large_lend(arguments->large, conn, arguments->told, &arguments->fd));
        request->fds = &arguments->fd;
        request->fds_count = 1;
    } else {
        TDM_TRY(tdm__large_offer(arguments->large, conn, arguments->told));
    }
    request->packed = tdm_writer_bytes(arguments->told);
    return TDM_OK;
}

tdm_status tdm__arguments_pack(struct tdm__arguments *arguments, struct tdm__conn *conn,
                               bool near, struct tdm__request *request)
{
    size_t inline_max = conn == NULL ? SIZE_MAX
                        : near       ? TDM__INLINE_BYTES_MAX
                                     : TDM__PULL_CHUNK_BYTES;

    TDM_ASSERT(tdm__arguments_ready(arguments));
    if (arguments->holes.count > 0 && arguments->filled == NULL) {
        TDM_TRY(fill_values(arguments));
    }
    if (arguments->large == NULL) {
        request->packed = tdm_writer_bytes(arguments->holes.count > 0 ? arguments->filled
                                                                      : arguments->packed);
        if (request->packed.size_bytes > inline_max) { /* without room they travel inside */
            (void)tdm__large_copy_now(arguments->runtime, request->packed, &arguments->large);
        }
    } else {
        request->packed = tdm__large_bytes(arguments->large);
    }
    return arguments->large == NULL || request->packed.size_bytes <= inline_max
               ? TDM_OK
               : lend(arguments, conn, near, request);
}
