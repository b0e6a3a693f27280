/* call_arguments.c - the arguments of a call, whose values may still be incomplete references. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Owns struct tdm__call_arguments. Arguments are packed when the call is made. References (R)
 * and handles (h) are written and pinned at once. Values of references (r) leave placeholders,
 * which are filled in when all these references are complete. Large arguments are packed
 * straight into shared memory and exported each time the call is sent. Large values of references
 * are not copied for a callee on this node: they stay in their own segments, which are exported
 * (shared_arguments.h).
 *
 * All references are held until the reply has arrived, since the call may be sent again. The
 * runtime caches one empty object, because the arguments of most calls are small and soon copied
 * into the call. Everything needs the loop's lock. */

#include "actors/client/call_arguments.h"

#include "actors/client/client_records.h"
#include "actors/objects/borrowed_refs.h"
#include "actors/objects/export.h"
#include "actors/objects/large_value.h"
#include "actors/objects/owned_refs.h"
#include "actors/objects/pins.h"
#include "actors/objects/pull.h"
#include "actors/objects/ref_complete.h"
#include "actors/objects/ref_table.h"
#include "actors/objects/shared_arguments.h"
#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/free_list.h"
#include "runtime/wire/format.h"
#include "runtime/wire/placeholders.h"
#include "runtime/wire/value.h"

/* Most bytes of arguments that are copied into the pending call. */
enum { SMALL_BYTES_MAX = 256 };

/* The packed arguments of one call or constructor. */
struct tdm__call_arguments {
    tdm_runtime *runtime; /* The runtime that it belongs to, borrowed. */
    tdm_writer *packed;   /* Packed arguments, owned, with placeholders for values of references. */
    /* Packed arguments before references and handles were written into them, owned; NULL without
     * these. The list of the value placeholders lives here. */
    tdm_writer *unfilled;
    /* Packed arguments with all values filled in, or with parts for those in `shared`, owned; NULL
     * until then. */
    tdm_writer *filled;
    /* Values that are passed in their own segments. */
    struct tdm__shared_values shared;
    /* Indices in `placeholders` of the references whose values are in `shared`, ascending. */
    uint32_t shared_placeholders[TDM__RPC_FDS_MAX];
    /* Large arguments in shared memory, retained; NULL if they are small. Used instead of
     * `packed`. */
    struct tdm__large *large;
    /* Description of the export of `large` or offer, owned; NULL before the call is sent. */
    tdm_writer *export_description;
    int fds[TDM__RPC_FDS_MAX];             /* Descriptors of the segments, borrowed. */
    struct tdm__placeholders placeholders; /* Placeholders for values of references. */
    struct tdm__pins values;               /* References whose values are arguments. */
    struct tdm__pins passed; /* References and keep-alive references that the callee receives. */
    /* True while values that the user passed in packed form have not been searched for
     * references. */
    bool has_unsearched_values;
};

/* Returns the cached object or a new one. */
static tdm_status arguments_create(tdm_runtime *runtime, struct tdm__call_arguments **arguments_out)
{
    struct tdm__call_arguments *arguments = runtime->client->cached_arguments;
    tdm_status status;

    if (arguments != NULL) {
        runtime->client->cached_arguments = NULL;
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

/* ---- references and handles, written when the call is made ---------------------------------- */

/* State of tdm__fill_placeholders() for one call. Placeholders for values remain, at new
 * offsets. */
struct placeholder_filling {
    struct tdm__call_arguments *arguments; /* The arguments that are being packed. */
    uint32_t values_count;                 /* Number of value placeholders so far. */
};

/* Writes and pins one reference or handle; keeps a placeholder for a value. */
static tdm_status arguments_fill_placeholder(void *arg, tdm_writer *writer, char letter,
                                             void *object)
{
    struct placeholder_filling *filling = arg;
    struct tdm__call_arguments *arguments = filling->arguments;
    const tdm_actor *actor;

    if (letter == 'r') {
        arguments->placeholders.offsets[filling->values_count] =
            tdm_writer_bytes(writer).size_bytes;
        filling->values_count++;
        return TDM_OK;
    }
    TDM_TRY(tdm__refs_write_object(arguments->runtime, writer, letter, object));
    if (letter == 'R') {
        return tdm__pins_add(&arguments->passed, object);
    }
    actor = object;
    return actor->is_counted && actor->channel->keep_alive != NULL
               ? tdm__pins_add(&arguments->passed, actor->channel->keep_alive)
               : TDM_OK;
}

/* Replaces the placeholders for references and handles. */
static tdm_status arguments_fill_references(struct tdm__call_arguments *arguments)
{
    struct placeholder_filling filling = {.arguments = arguments};

    if (arguments->placeholders.links_count == 0) {
        return TDM_OK;
    }
    arguments->unfilled = arguments->packed;
    arguments->packed = NULL;
    TDM_TRY(tdm_writer_create(&arguments->packed));
    return tdm__fill_placeholders(arguments->packed, tdm_writer_bytes(arguments->unfilled),
                                  &arguments->placeholders, arguments_fill_placeholder, &filling);
}

/* Holds the references whose values are arguments, and requests the values. */
static tdm_status arguments_hold_value_refs(struct tdm__call_arguments *arguments)
{
    for (uint32_t i = 0; i < arguments->placeholders.count; i++) {
        tdm_ref *ref = arguments->placeholders.refs[i];

        TDM_TRY(tdm__pins_add(&arguments->values, ref));
        tdm__reference_fetch(ref);
    }
    return TDM_OK;
}

/* Pins the references inside values that the user passed in packed form. */
static tdm_status arguments_pin_packed_values(struct tdm__call_arguments *arguments,
                                              struct tdm_bytes packed)
{
    if (!arguments->has_unsearched_values) {
        return TDM_OK;
    }
    arguments->has_unsearched_values = false;
    return tdm__pins_from_packed(arguments->runtime, packed, &arguments->passed);
}

/* Packs the arguments by format into `arguments`. */
static tdm_status arguments_fill(struct tdm__call_arguments *arguments, const char *format,
                                 va_list args)
{
    arguments->has_unsearched_values = tdm__format_has(format, "vp");
    TDM_TRY(tdm__large_pack(arguments->runtime, format, args, tdm__refs_write_object,
                            &arguments->large));
    if (arguments->large != NULL) {
        arguments->has_unsearched_values = tdm__format_has(format, "vpRh&");
        return arguments_pin_packed_values(arguments, tdm__large_bytes(arguments->large));
    }
    TDM_TRY(tdm__pack_with_placeholders(arguments->packed, format, args, &arguments->placeholders));
    TDM_TRY(arguments_hold_value_refs(arguments));
    TDM_TRY(arguments_fill_references(arguments));
    return arguments->placeholders.count > 0
               ? TDM_OK
               : arguments_pin_packed_values(arguments, tdm_writer_bytes(arguments->packed));
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
    arguments->has_unsearched_values = true;
    tdm_write_packed(arguments->packed, packed);
    status = tdm_writer_status(arguments->packed);
    if (status != TDM_OK) {
        status = tdm__fail(TDM_E_NOMEM, "arguments of %zu bytes", packed.size_bytes);
    } else {
        status = arguments_pin_packed_values(arguments, packed);
    }
    if (status != TDM_OK) {
        tdm__call_arguments_destroy(arguments);
        return status;
    }
    *arguments_out = arguments;
    return TDM_OK;
}

/* Returns true if the arguments are few bytes and contain nothing else to keep. */
static bool arguments_are_inline(const struct tdm__call_arguments *arguments)
{
    return arguments->large == NULL && arguments->placeholders.count == 0 &&
           arguments->passed.count == 0 &&
           tdm_writer_bytes(arguments->packed).size_bytes <= SMALL_BYTES_MAX;
}

struct tdm_bytes tdm__call_arguments_inline_bytes(const struct tdm__call_arguments *arguments)
{
    struct tdm_bytes none = {NULL, 0};

    return arguments_are_inline(arguments) ? tdm_writer_bytes(arguments->packed) : none;
}

bool tdm__call_arguments_contain_refs(const struct tdm__call_arguments *arguments)
{
    return arguments->passed.count > 0;
}

/* ---- freeing ----------------------------------------------------------------------------- */

/* Stores the emptied object in the runtime's cache. Returns false if that is full or the object
 * is not reusable. */
static bool cached_arguments_keep(struct tdm__call_arguments *arguments)
{
    tdm_runtime *runtime = arguments->runtime;

    if (runtime->client->cached_arguments != NULL || arguments->unfilled != NULL ||
        arguments->export_description != NULL || !arguments_are_inline(arguments)) {
        return false;
    }
    tdm_writer_clear(arguments->packed);
    /* The lists were freed with the packed bytes. */
    arguments->placeholders = (struct tdm__placeholders){.count = 0};
    arguments->has_unsearched_values = false;
    runtime->client->cached_arguments = arguments;
    return true;
}

/* Frees all that the arguments own. */
static void arguments_free(struct tdm__call_arguments *arguments)
{
    tdm_writer_destroy(arguments->packed);
    tdm_writer_destroy(arguments->unfilled);
    tdm_writer_destroy(arguments->filled);
    tdm_writer_destroy(arguments->export_description);
    tdm__large_release(arguments->large);
    tdm__shared_values_release(&arguments->shared);
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
    if (runtime->client->cached_arguments != NULL) {
        arguments_free(runtime->client->cached_arguments);
        runtime->client->cached_arguments = NULL;
    }
}

/* ---- values, filled in when they are complete -------------------------------------------- */

bool tdm__call_arguments_are_ready(const struct tdm__call_arguments *arguments)
{
    for (uint32_t i = 0; i < arguments->values.count; i++) {
        if (!arguments->values.refs[i]->done) {
            return false;
        }
    }
    return true;
}

/* Writes the value of a complete reference. */
static tdm_status arguments_write_value(tdm_writer *writer, tdm_ref *ref)
{
    const tdm_value *value;

    TDM_TRY(tdm__ref_value(ref, &value));
    tdm_write_value(writer, tdm__result_as_argument(value));
    return TDM_OK;
}

tdm_document *tdm__call_arguments_failure(const struct tdm__call_arguments *arguments)
{
    for (uint32_t i = 0; i < arguments->values.count; i++) {
        const tdm_ref *ref = arguments->values.refs[i];

        if (ref->done && ref->status != TDM_OK) {
            return tdm__failure_values_copy(ref->document);
        }
    }
    return NULL;
}

/* What is written in the place of the values in `shared`. */
enum shared_form {
    AS_PART, /* The number of the part. */
    AS_NIL   /* A nil: the references inside the other arguments are searched. */
};

/* Writes the packed arguments with all values into `filled`. */
static tdm_status arguments_write_filled(const struct tdm__call_arguments *arguments,
                                         enum shared_form form, tdm_writer *filled)
{
    struct tdm_bytes packed = tdm_writer_bytes(arguments->packed);
    const char *bytes = packed.data;
    uint32_t part = 0;
    size_t from = 0;

    for (uint32_t i = 0; i < arguments->placeholders.count; i++) {
        size_t to = arguments->placeholders.offsets[i];
        bool is_part = part < arguments->shared.count && arguments->shared_placeholders[part] == i;

        tdm_write_packed(filled, (struct tdm_bytes){bytes + from, to - from});
        if (is_part && form == AS_PART) {
            tdm__write_part(filled, (uint8_t)part);
        } else if (is_part) {
            tdm_write_nil(filled);
        } else {
            TDM_TRY(tdm__wrap(arguments_write_value(filled, arguments->placeholders.refs[i]),
                              "reference %u among the arguments", i + 1));
        }
        part += is_part ? 1 : 0;
        from = to;
    }
    tdm_write_packed(filled, (struct tdm_bytes){bytes + from, packed.size_bytes - from});
    return tdm_writer_status(filled);
}

/* Creates the packed arguments with all values in `*filled_out`. */
static tdm_status arguments_create_filled(const struct tdm__call_arguments *arguments,
                                          enum shared_form form, tdm_writer **filled_out)
{
    tdm_status status;

    TDM_TRY(tdm_writer_create(filled_out));
    status = arguments_write_filled(arguments, form, *filled_out);
    if (status != TDM_OK) {
        tdm_writer_destroy(*filled_out);
        *filled_out = NULL;
    }
    return status;
}

/* Creates `filled` and pins what the values contain. The values in `shared` contain nothing. */
static tdm_status arguments_fill_values(struct tdm__call_arguments *arguments)
{
    tdm_writer *searched;
    tdm_status status;

    if (arguments->has_unsearched_values) {
        TDM_TRY(arguments_create_filled(arguments, AS_NIL, &searched));
        status = arguments_pin_packed_values(arguments, tdm_writer_bytes(searched));
        tdm_writer_destroy(searched);
        TDM_TRY(status);
    }
    return arguments_create_filled(arguments, AS_PART, &arguments->filled);
}

/* Adds the large values of references to `shared`, as far as they fit into one message. A value
 * with references or handles inside is copied, because the callee looks for them among the
 * arguments. */
static void arguments_share_values(struct tdm__call_arguments *arguments)
{
    for (uint32_t i = 0;
         i < arguments->placeholders.count && arguments->shared.count < TDM__RPC_FDS_MAX; i++) {
        tdm_ref *ref = arguments->placeholders.refs[i];

        if (ref->status == TDM_OK && ref->nested.count == 0 && tdm__ref_ensure_segment(ref)) {
            arguments->shared_placeholders[arguments->shared.count] = i;
            tdm__shared_values_add(&arguments->shared, ref->large);
        }
    }
}

/* Forgets the arguments with parts, so that the values are copied into the arguments. */
static void arguments_stop_sharing(struct tdm__call_arguments *arguments)
{
    tdm__shared_values_release(&arguments->shared);
    tdm_writer_destroy(arguments->filled);
    arguments->filled = NULL;
}

/* Fills in the values: as parts if the callee is on this node and the rest is small. `shares` is
 * true if the callee is on this node. */
static tdm_status arguments_fill_for(struct tdm__call_arguments *arguments, bool shares)
{
    if (arguments->shared.count > 0 && !shares) {
        arguments_stop_sharing(arguments); /* The actor was restarted on another node. */
    }
    if (arguments->filled == NULL) {
        if (shares) {
            arguments_share_values(arguments);
        }
        TDM_TRY(arguments_fill_values(arguments));
    }
    if (arguments->shared.count > 0 &&
        tdm_writer_bytes(arguments->filled).size_bytes > TDM__INLINE_BYTES_MAX) {
        arguments_stop_sharing(arguments);
        TDM_TRY(arguments_fill_values(arguments));
    }
    return TDM_OK;
}

/* Exports the values in `shared` to the callee, and writes them and the arguments into a message.
 */
static tdm_status arguments_export_shared(struct tdm__call_arguments *arguments,
                                          struct tdm__conn *conn, struct tdm__rpc_request *request)
{
    tdm_writer_destroy(arguments->export_description); /* The call was sent before. */
    arguments->export_description = NULL;
    TDM_TRY(tdm_writer_create(&arguments->export_description));
    TDM_TRY(tdm__shared_arguments_export(&arguments->shared, tdm_writer_bytes(arguments->filled),
                                         conn, arguments->export_description, arguments->fds));
    request->fds = arguments->fds;
    request->fds_count = arguments->shared.count;
    request->packed = tdm_writer_bytes(arguments->export_description);
    return TDM_OK;
}

/* Exports large arguments to the callee: by descriptor if it is on this node (`same_node`), else as
 * an offer. */
static tdm_status argument_export(struct tdm__call_arguments *arguments, struct tdm__conn *conn,
                                  bool same_node, struct tdm__rpc_request *request)
{
    tdm_writer_destroy(arguments->export_description); /* The call was sent before. */
    arguments->export_description = NULL;
    TDM_TRY(tdm_writer_create(&arguments->export_description));
    if (same_node) {
        TDM_TRY(tdm__large_export(arguments->large, conn, arguments->export_description,
                                  &arguments->fds[0]));
        request->fds = arguments->fds;
        request->fds_count = 1;
    } else {
        TDM_TRY(tdm__large_offer(arguments->large, conn, arguments->export_description));
    }
    request->packed = tdm_writer_bytes(arguments->export_description);
    return TDM_OK;
}

tdm_status tdm__call_arguments_pack(struct tdm__call_arguments *arguments, struct tdm__conn *conn,
                                    bool same_node, struct tdm__rpc_request *request)
{
    size_t inline_max = conn == NULL ? SIZE_MAX
                        : same_node  ? TDM__INLINE_BYTES_MAX
                                     : TDM__PULL_CHUNK_BYTES;

    TDM_ASSERT(tdm__call_arguments_are_ready(arguments));
    if (arguments->placeholders.count > 0) {
        TDM_TRY(arguments_fill_for(arguments, conn != NULL && same_node));
    }
    if (arguments->shared.count > 0) {
        return arguments_export_shared(arguments, conn, request);
    }
    if (arguments->large == NULL) {
        request->packed = tdm_writer_bytes(arguments->placeholders.count > 0 ? arguments->filled
                                                                             : arguments->packed);
        /* Without memory for a segment they travel inside the message. */
        if (request->packed.size_bytes > inline_max) {
            (void)tdm__large_copy_now(arguments->runtime, request->packed, &arguments->large);
        }
    } else {
        request->packed = tdm__large_bytes(arguments->large);
    }
    return arguments->large == NULL || request->packed.size_bytes <= inline_max
               ? TDM_OK
               : argument_export(arguments, conn, same_node, request);
}
