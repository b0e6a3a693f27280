/* message.c - encodes and decodes C structures by tables of their fields. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding visits the fields in one pass.  Each level of nesting has a `struct place` on the
 * stack that points to the level around it, so that an error can print the whole path of the
 * field, such as version_ask.members[3].actor.  Nothing is allocated: the text is made only
 * when a check has failed.
 *
 * The items of a list are checked with the message but are not stored, because their number is
 * not known.  decode_message() therefore accepts a NULL structure, which means "check only",
 * and tdm__message_list_read() decodes one item later.  That cannot fail any more.
 *
 * The module keeps no state, so any thread may call it. */
#include "runtime/wire/message.h"

#include "runtime/assert.h"
#include "runtime/error.h"

#include <stdalign.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 256, FOUND_BYTES = 64, NAMES_BYTES = 512 };

struct kind {
    const char *name; /* Name in the hash of a table: it must not change. */
    const char *expected;
    size_t size_bytes; /* Size of the C type; 0 if it depends on the table. */
};

static const struct kind kinds[] = {
    [TDM__FIELD_INT] = {"int", "an integer that fits int64_t", sizeof(int64_t)},
    [TDM__FIELD_INT32] = {"int32", "an integer that fits int32_t", sizeof(int32_t)},
    [TDM__FIELD_UINT] = {"uint", "an integer that fits uint64_t", sizeof(uint64_t)},
    [TDM__FIELD_UINT32] = {"uint32", "an integer that fits uint32_t", sizeof(uint32_t)},
    [TDM__FIELD_DOUBLE] = {"double", "a number", sizeof(double)},
    [TDM__FIELD_BOOL] = {"bool", "a bool", sizeof(bool)},
    [TDM__FIELD_STRING] = {"string", "a string", sizeof(const char *)},
    [TDM__FIELD_OPTIONAL_STRING] = {"string?", "a string or nil", sizeof(const char *)},
    [TDM__FIELD_BYTES] = {"bytes", "bytes", sizeof(struct tdm_bytes)},
    [TDM__FIELD_OPTIONAL_BYTES] = {"bytes?", "bytes or nil", sizeof(struct tdm_bytes)},
    [TDM__FIELD_ID] = {"id", "an id of 16 bytes", sizeof(struct tdm__id)},
    [TDM__FIELD_NDARRAY] = {"ndarray", "an ndarray", sizeof(const struct tdm_ndarray *)},
    [TDM__FIELD_VALUE] = {"value", "a value", sizeof(struct tdm__message_value)},
    [TDM__FIELD_MESSAGE] = {"message", "an array", 0},
    [TDM__FIELD_OPTIONAL] = {"message?", "an array or nil", 0},
    [TDM__FIELD_LIST] = {"list", "an array", sizeof(struct tdm__message_list)},
};

/* ---- encoding --------------------------------------------------------------------------- */

static void encode_message(const struct tdm__message *message, const char *structure,
                           tdm_writer *writer);

static void encode_value(const struct tdm__message_value *value, tdm_writer *writer)
{
    if (value->write != NULL) {
        value->write(writer, value->arg);
    } else if (value->packed.data != NULL) {
        tdm_write_packed(writer, value->packed);
    } else if (value->value != NULL) {
        tdm_write_value(writer, value->value);
    } else {
        tdm_write_nil(writer);
    }
}

/* Writes a field that is neither a message nor a list.  `place` is its address. */
static void encode_scalar(enum tdm__field_kind kind, const void *place, tdm_writer *writer)
{
    switch (kind) {
    case TDM__FIELD_INT:
        tdm_write_int(writer, *(const int64_t *)place);
        break;
    case TDM__FIELD_INT32:
        tdm_write_int(writer, *(const int32_t *)place);
        break;
    case TDM__FIELD_UINT:
        tdm_write_uint(writer, *(const uint64_t *)place);
        break;
    case TDM__FIELD_UINT32:
        tdm_write_uint(writer, *(const uint32_t *)place);
        break;
    case TDM__FIELD_DOUBLE:
        tdm_write_double(writer, *(const double *)place);
        break;
    case TDM__FIELD_BOOL:
        tdm_write_bool(writer, *(const bool *)place);
        break;
    case TDM__FIELD_STRING:
    case TDM__FIELD_OPTIONAL_STRING:
        tdm_write_string(writer, *(const char *const *)place);
        break;
    case TDM__FIELD_BYTES:
    case TDM__FIELD_OPTIONAL_BYTES: {
        const struct tdm_bytes *bytes = place;

        if (kind == TDM__FIELD_OPTIONAL_BYTES && bytes->data == NULL) {
            tdm_write_nil(writer);
        } else {
            tdm_write_bytes(writer, bytes->data, bytes->size_bytes);
        }
        break;
    }
    case TDM__FIELD_ID:
        tdm_write_bytes(writer, place, sizeof(struct tdm__id));
        break;
    case TDM__FIELD_NDARRAY:
        tdm_write_ndarray(writer, *(const struct tdm_ndarray *const *)place);
        break;
    case TDM__FIELD_VALUE:
        encode_value(place, writer);
        break;
    case TDM__FIELD_MESSAGE:
    case TDM__FIELD_OPTIONAL:
    case TDM__FIELD_LIST:
        TDM_ASSERT(false);
    }
}

static size_t item_size(const struct tdm__field *field)
{
    return field->item_kind == TDM__FIELD_MESSAGE ? field->nested()->size_bytes
                                                  : kinds[field->item_kind].size_bytes;
}

static void encode_item(const struct tdm__field *field, const void *item, tdm_writer *writer)
{
    if (field->item_kind == TDM__FIELD_MESSAGE) {
        encode_message(field->nested(), item, writer);
    } else {
        encode_scalar(field->item_kind, item, writer);
    }
}

static void encode_list(const struct tdm__field *field, const struct tdm__message_list *list,
                        tdm_writer *writer)
{
    alignas(max_align_t) char scratch[TDM__MESSAGE_ITEM_BYTES_MAX];
    size_t size_bytes = item_size(field);

    if (list->value != NULL) {
        tdm_write_value(writer, list->value);
        return;
    }
    tdm_write_array(writer, list->count);
    if (list->packed.data != NULL) {
        tdm_write_packed(writer, list->packed);
        return;
    }
    for (uint32_t i = 0; i < list->count; i++) {
        const void *item = (const char *)list->items + i * size_bytes;

        if (list->get != NULL) {
            TDM_ASSERT(size_bytes <= sizeof(scratch));
            memset(scratch, 0, size_bytes);
            list->get(list->arg, i, scratch);
            item = scratch;
        }
        encode_item(field, item, writer);
    }
}

static void encode_field(const struct tdm__field *field, const char *structure, tdm_writer *writer)
{
    const char *place = structure + field->offset;

    if (field->kind == TDM__FIELD_LIST) {
        encode_list(field, (const void *)place, writer);
    } else if (field->kind == TDM__FIELD_OPTIONAL &&
               !*(const bool *)(structure + field->flag_offset)) {
        tdm_write_nil(writer);
    } else if (field->nested != NULL) {
        encode_message(field->nested(), place, writer);
    } else {
        encode_scalar(field->kind, place, writer);
    }
}

static void encode_message(const struct tdm__message *message, const char *structure,
                           tdm_writer *writer)
{
    tdm_write_array(writer, message->fields_count);
    for (uint32_t i = 0; i < message->fields_count; i++) {
        encode_field(&message->fields[i], structure, writer);
    }
}

tdm_status tdm__message_encode(const struct tdm__message *message, const void *structure,
                               tdm_writer *writer)
{
    encode_message(message, structure, writer);
    return tdm_writer_status(writer);
}

/* ---- errors ----------------------------------------------------------------------------- */

/* Position in the message that is being decoded. */
struct place {
    const struct place *outer; /* Position of the message around this; NULL at the top. */
    const char *name;          /* Name of the message at the top, else of the field. */
    int64_t index;             /* Index of the item of a list; -1 outside lists. */
};

/* Prints "version_ask.members[3].actor" and returns the length. */
static size_t path_print(const struct place *place, char text[PATH_BYTES])
{
    size_t used = place->outer != NULL ? path_print(place->outer, text) : 0;
    int printed = snprintf(text + used, PATH_BYTES - used, "%s%s", place->outer != NULL ? "." : "",
                           place->name);

    used = printed < 0 || used + (size_t)printed >= PATH_BYTES ? PATH_BYTES - 1
                                                               : used + (size_t)printed;
    if (place->index >= 0) {
        printed = snprintf(text + used, PATH_BYTES - used, "[%lld]", (long long)place->index);
        used = printed < 0 || used + (size_t)printed >= PATH_BYTES ? PATH_BYTES - 1
                                                                   : used + (size_t)printed;
    }
    return used;
}

/* Describes a found value, with its number or its length where that may be what is wrong. */
static const char *found_text(const tdm_value *value, char text[FOUND_BYTES])
{
    if (tdm_value_kind_of(value) == TDM_INT) {
        (void)snprintf(text, FOUND_BYTES,
                       value->as.integer.negative ? "the integer %lld" : "the integer %llu",
                       (unsigned long long)value->as.integer.bits);
    } else if (tdm_value_kind_of(value) == TDM_BYTES) {
        (void)snprintf(text, FOUND_BYTES, "%u bytes", value->count);
    } else {
        (void)snprintf(text, FOUND_BYTES, "%s", tdm__value_kind_text(value));
    }
    return text;
}

static tdm_status fail_type(const struct place *place, enum tdm__field_kind kind,
                            const tdm_value *value)
{
    char path[PATH_BYTES];
    char found[FOUND_BYTES];

    (void)path_print(place, path);
    return tdm__fail(TDM_E_PROTOCOL, "message field %s: expected %s, found %s", path,
                     kinds[kind].expected, found_text(value, found));
}

static tdm_status fail_count(const struct place *place, const struct tdm__message *message,
                             const tdm_value *value)
{
    char path[PATH_BYTES];
    char names[NAMES_BYTES] = "";
    size_t used = 0;

    for (uint32_t i = 0; i < message->fields_count && used < sizeof(names); i++) {
        int printed = snprintf(names + used, sizeof(names) - used, "%s%s", i > 0 ? ", " : "",
                               message->fields[i].name);

        used += printed < 0 ? sizeof(names) : (size_t)printed;
    }
    (void)path_print(place, path);
    return tdm__fail(TDM_E_PROTOCOL, "message %s: expected %u fields (%s), found %u", path,
                     message->fields_count, names, tdm_value_count(value));
}

/* ---- decoding --------------------------------------------------------------------------- */

static tdm_status decode_message(const struct place *place, const struct tdm__message *message,
                                 const tdm_value *value, char *structure);

static bool scalar_fits(enum tdm__field_kind kind, const tdm_value *value)
{
    enum tdm_value_kind found = tdm_value_kind_of(value);

    switch (kind) {
    case TDM__FIELD_INT:
        return tdm__value_fits_int(value);
    case TDM__FIELD_INT32:
        return tdm__value_fits_int(value) && tdm_value_int(value, 0) >= INT32_MIN &&
               tdm_value_int(value, 0) <= INT32_MAX;
    case TDM__FIELD_UINT:
        return tdm__value_fits_uint(value);
    case TDM__FIELD_UINT32:
        return tdm__value_fits_uint(value) && tdm_value_uint(value, 0) <= UINT32_MAX;
    case TDM__FIELD_DOUBLE:
        return found == TDM_DOUBLE || found == TDM_INT;
    case TDM__FIELD_BOOL:
        return found == TDM_BOOL;
    case TDM__FIELD_STRING:
        return found == TDM_STRING;
    case TDM__FIELD_OPTIONAL_STRING:
        return found == TDM_STRING || found == TDM_NIL;
    case TDM__FIELD_BYTES:
        return found == TDM_BYTES;
    case TDM__FIELD_OPTIONAL_BYTES:
        return found == TDM_BYTES || found == TDM_NIL;
    case TDM__FIELD_ID:
        return found == TDM_BYTES && value->count == sizeof(struct tdm__id);
    case TDM__FIELD_NDARRAY:
        return found == TDM_NDARRAY;
    case TDM__FIELD_VALUE:
        return true;
    case TDM__FIELD_MESSAGE:
    case TDM__FIELD_OPTIONAL:
    case TDM__FIELD_LIST:
        break;
    }
    return false;
}

/* Stores a value that scalar_fits() has accepted. */
static void scalar_store(enum tdm__field_kind kind, const tdm_value *value, void *place_out)
{
    switch (kind) {
    case TDM__FIELD_INT:
        *(int64_t *)place_out = tdm_value_int(value, 0);
        break;
    case TDM__FIELD_INT32:
        *(int32_t *)place_out = (int32_t)tdm_value_int(value, 0);
        break;
    case TDM__FIELD_UINT:
        *(uint64_t *)place_out = tdm_value_uint(value, 0);
        break;
    case TDM__FIELD_UINT32:
        *(uint32_t *)place_out = (uint32_t)tdm_value_uint(value, 0);
        break;
    case TDM__FIELD_DOUBLE:
        *(double *)place_out = tdm_value_double(value, 0);
        break;
    case TDM__FIELD_BOOL:
        *(bool *)place_out = tdm_value_bool(value, 0) != 0;
        break;
    case TDM__FIELD_STRING:
    case TDM__FIELD_OPTIONAL_STRING:
        *(const char **)place_out = tdm_value_string(value, NULL);
        break;
    case TDM__FIELD_BYTES:
    case TDM__FIELD_OPTIONAL_BYTES:
        *(struct tdm_bytes *)place_out = tdm_value_bytes(value);
        break;
    case TDM__FIELD_ID:
        memcpy(place_out, value->as.data, sizeof(struct tdm__id));
        break;
    case TDM__FIELD_NDARRAY:
        *(const struct tdm_ndarray **)place_out = tdm_value_ndarray(value);
        break;
    case TDM__FIELD_VALUE:
        *(struct tdm__message_value *)place_out = (struct tdm__message_value){.value = value};
        break;
    case TDM__FIELD_MESSAGE:
    case TDM__FIELD_OPTIONAL:
    case TDM__FIELD_LIST:
        TDM_ASSERT(false);
    }
}

static tdm_status decode_scalar(const struct place *place, enum tdm__field_kind kind,
                                const tdm_value *value, void *place_out)
{
    if (!scalar_fits(kind, value)) {
        return fail_type(place, kind, value);
    }
    if (place_out != NULL) {
        scalar_store(kind, value, place_out);
    }
    return TDM_OK;
}

static tdm_status decode_item(const struct place *place, const struct tdm__field *field,
                              const tdm_value *value, void *item_out)
{
    return field->item_kind == TDM__FIELD_MESSAGE
               ? decode_message(place, field->nested(), value, item_out)
               : decode_scalar(place, field->item_kind, value, item_out);
}

static tdm_status decode_list(const struct place *outer, const struct tdm__field *field,
                              const tdm_value *value, struct tdm__message_list *list_out)
{
    struct place place = {outer, field->name, -1};

    if (tdm_value_kind_of(value) != TDM_ARRAY) {
        return fail_type(&place, TDM__FIELD_LIST, value);
    }
    for (uint32_t i = 0; i < value->count; i++) {
        place.index = i;
        TDM_TRY(decode_item(&place, field, tdm_value_at(value, i), NULL));
    }
    if (list_out != NULL) {
        *list_out =
            (struct tdm__message_list){.count = value->count, .value = value, .field = field};
    }
    return TDM_OK;
}

static tdm_status decode_field(const struct place *outer, const struct tdm__field *field,
                               const tdm_value *value, char *structure)
{
    struct place place = {outer, field->name, -1};
    char *target = structure != NULL ? structure + field->offset : NULL;

    if (field->kind == TDM__FIELD_LIST) {
        return decode_list(outer, field, value, (void *)target);
    }
    if (field->kind == TDM__FIELD_OPTIONAL) {
        bool is_present = tdm_value_kind_of(value) != TDM_NIL;

        if (structure != NULL) {
            *(bool *)(structure + field->flag_offset) = is_present;
        }
        if (!is_present) {
            return TDM_OK;
        }
    }
    return field->nested != NULL ? decode_message(&place, field->nested(), value, target)
                                 : decode_scalar(&place, field->kind, value, target);
}

static tdm_status decode_message(const struct place *place, const struct tdm__message *message,
                                 const tdm_value *value, char *structure)
{
    if (tdm_value_kind_of(value) != TDM_ARRAY) {
        return fail_type(place, TDM__FIELD_MESSAGE, value);
    }
    if (value->count != message->fields_count) {
        return fail_count(place, message, value);
    }
    for (uint32_t i = 0; i < message->fields_count; i++) {
        TDM_TRY(decode_field(place, &message->fields[i], &value->as.values[i], structure));
    }
    return TDM_OK;
}

tdm_status tdm__message_decode(const struct tdm__message *message, const tdm_value *value,
                               void *structure_out)
{
    struct place place = {NULL, message->name, -1};

    memset(structure_out, 0, message->size_bytes);
    return decode_message(&place, message, value, structure_out);
}

void tdm__message_list_read(const struct tdm__message_list *list, uint32_t index, void *item_out,
                            size_t item_bytes)
{
    struct place place = {NULL, "item", -1};

    TDM_ASSERT(index < list->count && list->field != NULL);
    TDM_ASSERT(item_bytes == item_size(list->field));
    memset(item_out, 0, item_bytes);
    TDM_ASSERT(decode_item(&place, list->field, tdm_value_at(list->value, index), item_out) ==
               TDM_OK);
}

/* ---- hashing ---------------------------------------------------------------------------- */

uint64_t tdm__message_hash_text(const char *text, uint64_t hash)
{
    size_t length = strlen(text) + 1;

    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ (uint8_t)text[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

uint64_t tdm__message_hash(const struct tdm__message *message, uint64_t hash)
{
    hash = tdm__message_hash_text(message->name, hash);
    for (uint32_t i = 0; i < message->fields_count; i++) {
        const struct tdm__field *field = &message->fields[i];

        hash = tdm__message_hash_text(field->name, hash);
        hash = tdm__message_hash_text(kinds[field->kind].name, hash);
        if (field->kind == TDM__FIELD_LIST) {
            hash = tdm__message_hash_text(kinds[field->item_kind].name, hash);
        }
        if (field->nested != NULL) {
            hash = tdm__message_hash_text(field->nested()->name, hash);
        }
    }
    return tdm__message_hash_text("", hash); /* The end of a message is part of the hash. */
}
