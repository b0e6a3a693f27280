/* message.c - encodes and decodes C structures by tables of their fields. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of runtime/messages describe the fields; this file interprets them.  Decoding visits
 * the fields in one pass.  Each level of nesting has a `struct field_path` on the stack that
 * points to the level around it.  So an error can print the whole path of the field, such as
 * "version_request.members[3].actor".  Nothing is allocated: the text is made only when a check has
 * failed.
 *
 * The items of a list are checked with the message but are not stored, because their number is
 * not known. decode_message() therefore accepts a NULL structure, which means "check only", and
 * tdm__message_list_read() decodes one item later.  That cannot fail any more.
 *
 * The module keeps no state, so any thread may call it. */
#include "runtime/wire/message.h"

#include "runtime/assert.h"
#include "runtime/error.h"

#include <stdalign.h>
#include <stdio.h>
#include <string.h>

enum {
    PATH_BYTES = 256, /* Size in bytes of the text that names the path of a field in an error. */
    FOUND_BYTES = 64, /* Size in bytes of the text that describes a found value in an error. */
    /* Size in bytes of the text that lists the names of all fields in an error. */
    NAMES_BYTES = 512
};

/* What encoding and decoding must know about a kind of field. */
struct field_kind_info {
    const char *name; /* Name of the kind in the hash of a message's table; it must not change. */
    const char *expected; /* Description of a value that the kind accepts, for errors. */
    size_t size_bytes;    /* Size in bytes of the kind's C type; 0 if it depends on the table. */
};

/* What is known of each kind of field, indexed by enum tdm__field_kind. */
static const struct field_kind_info field_kinds[] = {
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

/* Writes a message as an array of its fields. Failures are left in the writer. */
static void encode_message(const struct tdm__message *message, const char *structure,
                           tdm_writer *writer);

/* Writes a field of the kind VALUE from whichever of its members is set; nil if none is. */
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

/* Writes a field that is neither a message nor a list.  `member` is the address of the field in the
 * C structure. */
static void encode_scalar(enum tdm__field_kind kind, const void *member, tdm_writer *writer)
{
    switch (kind) {
    case TDM__FIELD_INT:
        tdm_write_int(writer, *(const int64_t *)member);
        break;
    case TDM__FIELD_INT32:
        tdm_write_int(writer, *(const int32_t *)member);
        break;
    case TDM__FIELD_UINT:
        tdm_write_uint(writer, *(const uint64_t *)member);
        break;
    case TDM__FIELD_UINT32:
        tdm_write_uint(writer, *(const uint32_t *)member);
        break;
    case TDM__FIELD_DOUBLE:
        tdm_write_double(writer, *(const double *)member);
        break;
    case TDM__FIELD_BOOL:
        tdm_write_bool(writer, *(const bool *)member);
        break;
    case TDM__FIELD_STRING:
    case TDM__FIELD_OPTIONAL_STRING:
        tdm_write_string(writer, *(const char *const *)member);
        break;
    case TDM__FIELD_BYTES:
    case TDM__FIELD_OPTIONAL_BYTES: {
        const struct tdm_bytes *bytes = member;

        if (kind == TDM__FIELD_OPTIONAL_BYTES && bytes->data == NULL) {
            tdm_write_nil(writer);
        } else {
            tdm_write_bytes(writer, bytes->data, bytes->size_bytes);
        }
        break;
    }
    case TDM__FIELD_ID:
        tdm_write_bytes(writer, member, sizeof(struct tdm__id));
        break;
    case TDM__FIELD_NDARRAY:
        tdm_write_ndarray(writer, *(const struct tdm_ndarray *const *)member);
        break;
    case TDM__FIELD_VALUE:
        encode_value(member, writer);
        break;
    case TDM__FIELD_MESSAGE:
    case TDM__FIELD_OPTIONAL:
    case TDM__FIELD_LIST:
        TDM_ASSERT(false);
    }
}

/* Returns the size of the C type of the items of a list. */
static size_t list_item_size(const struct tdm__field *field)
{
    return field->item_kind == TDM__FIELD_MESSAGE ? field->nested()->size_bytes
                                                  : field_kinds[field->item_kind].size_bytes;
}

/* Writes one item of a list. */
static void encode_item(const struct tdm__field *field, const void *item, tdm_writer *writer)
{
    if (field->item_kind == TDM__FIELD_MESSAGE) {
        encode_message(field->nested(), item, writer);
    } else {
        encode_scalar(field->item_kind, item, writer);
    }
}

/* Writes a list from its parsed value, its packed items, its array, or its get() function. */
static void encode_list(const struct tdm__field *field, const struct tdm__message_list *list,
                        tdm_writer *writer)
{
    alignas(max_align_t) char scratch[TDM__MESSAGE_ITEM_BYTES_MAX];
    size_t size_bytes = list_item_size(field);

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
        if (list->get != NULL) {
            TDM_ASSERT(size_bytes <= sizeof(scratch));
            memset(scratch, 0, size_bytes);
            list->get(list->arg, i, scratch);
            encode_item(field, scratch, writer);
        } else {
            encode_item(field, (const char *)list->items + i * size_bytes, writer);
        }
    }
}

/* Writes one field of the message whose C structure is `structure`. */
static void encode_field(const struct tdm__field *field, const char *structure, tdm_writer *writer)
{
    const char *member = structure + field->offset;

    if (field->kind == TDM__FIELD_LIST) {
        encode_list(field, (const void *)member, writer);
    } else if (field->kind == TDM__FIELD_OPTIONAL &&
               !*(const bool *)(structure + field->flag_offset)) {
        tdm_write_nil(writer);
    } else if (field->nested != NULL) {
        encode_message(field->nested(), member, writer);
    } else {
        encode_scalar(field->kind, member, writer);
    }
}

/* Writes a message as an array of its fields.  Failures are left in the writer. */
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

/* Position of a field in the message that is being decoded, for errors.  One per level of
 * nesting, on the stack. */
struct field_path {
    /* Position of the message that contains the field; NULL at the top. */
    const struct field_path *outer;
    const char *name; /* Name of the field; at the top, name of the message. */
    int64_t index;    /* Index of the item if the field is a list; else -1. */
};

/* Prints a path such as "version_request.members[3].actor" and returns its length. */
static size_t field_path_print(const struct field_path *path_end, char text[PATH_BYTES])
{
    size_t used = path_end->outer != NULL ? field_path_print(path_end->outer, text) : 0;
    int printed = snprintf(text + used, PATH_BYTES - used, "%s%s",
                           path_end->outer != NULL ? "." : "", path_end->name);

    used = printed < 0 || used + (size_t)printed >= PATH_BYTES ? PATH_BYTES - 1
                                                               : used + (size_t)printed;
    if (path_end->index >= 0) {
        printed = snprintf(text + used, PATH_BYTES - used, "[%lld]", (long long)path_end->index);
        used = printed < 0 || used + (size_t)printed >= PATH_BYTES ? PATH_BYTES - 1
                                                                   : used + (size_t)printed;
    }
    return used;
}

/* Describes a found value, with its number or its length where that may be what is wrong. */
static const char *found_value_text(const tdm_value *value, char text[FOUND_BYTES])
{
    if (tdm_value_kind_of(value) == TDM_INT) {
        (void)snprintf(text, FOUND_BYTES,
                       value->as.integer.negative ? "the integer %lld" : "the integer %llu",
                       (unsigned long long)value->as.integer.bits);
    } else if (tdm_value_kind_of(value) == TDM_BYTES) {
        (void)snprintf(text, FOUND_BYTES, "%zu bytes", value->as.size_bytes);
    } else {
        (void)snprintf(text, FOUND_BYTES, "%s", tdm__value_kind_text(value));
    }
    return text;
}

/* Records that the field has a value of the wrong type.  Returns TDM_E_PROTOCOL. */
static tdm_status fail_type(const struct field_path *path_end, enum tdm__field_kind kind,
                            const tdm_value *value)
{
    char path[PATH_BYTES];
    char found[FOUND_BYTES];

    (void)field_path_print(path_end, path);
    return tdm__fail(TDM_E_PROTOCOL, "message field %s: expected %s, found %s", path,
                     field_kinds[kind].expected, found_value_text(value, found));
}

/* Records that the message has the wrong number of fields.  Returns TDM_E_PROTOCOL. */
static tdm_status fail_count(const struct field_path *path_end, const struct tdm__message *message,
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
    (void)field_path_print(path_end, path);
    return tdm__fail(TDM_E_PROTOCOL, "message %s: expected %u fields (%s), found %u", path,
                     message->fields_count, names, tdm_value_count(value));
}

/* ---- decoding --------------------------------------------------------------------------- */

/* Reads the fields of a message from a value. */
static tdm_status decode_message(const struct field_path *path_end,
                                 const struct tdm__message *message, const tdm_value *value,
                                 char *structure);

/* Returns true if the value is acceptable for a field of this kind, which is neither a message
 * nor a list. */
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
        return found == TDM_BYTES && value->as.size_bytes == sizeof(struct tdm__id);
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
static void scalar_store(enum tdm__field_kind kind, const tdm_value *value, void *target_out)
{
    switch (kind) {
    case TDM__FIELD_INT:
        *(int64_t *)target_out = tdm_value_int(value, 0);
        break;
    case TDM__FIELD_INT32:
        *(int32_t *)target_out = (int32_t)tdm_value_int(value, 0);
        break;
    case TDM__FIELD_UINT:
        *(uint64_t *)target_out = tdm_value_uint(value, 0);
        break;
    case TDM__FIELD_UINT32:
        *(uint32_t *)target_out = (uint32_t)tdm_value_uint(value, 0);
        break;
    case TDM__FIELD_DOUBLE:
        *(double *)target_out = tdm_value_double(value, 0);
        break;
    case TDM__FIELD_BOOL:
        *(bool *)target_out = tdm_value_bool(value, 0) != 0;
        break;
    case TDM__FIELD_STRING:
    case TDM__FIELD_OPTIONAL_STRING:
        *(const char **)target_out = tdm_value_string(value, NULL);
        break;
    case TDM__FIELD_BYTES:
    case TDM__FIELD_OPTIONAL_BYTES:
        *(struct tdm_bytes *)target_out = tdm_value_bytes(value);
        break;
    case TDM__FIELD_ID:
        memcpy(target_out, value->as.data, sizeof(struct tdm__id));
        break;
    case TDM__FIELD_NDARRAY:
        *(const struct tdm_ndarray **)target_out = tdm_value_ndarray(value);
        break;
    case TDM__FIELD_VALUE:
        *(struct tdm__message_value *)target_out = (struct tdm__message_value){.value = value};
        break;
    case TDM__FIELD_MESSAGE:
    case TDM__FIELD_OPTIONAL:
    case TDM__FIELD_LIST:
        TDM_ASSERT(false);
    }
}

/* Checks a value that is neither a message nor a list, and stores it unless `target_out` is NULL.
 */
static tdm_status decode_scalar(const struct field_path *path_end, enum tdm__field_kind kind,
                                const tdm_value *value, void *target_out)
{
    if (!scalar_fits(kind, value)) {
        return fail_type(path_end, kind, value);
    }
    if (target_out != NULL) {
        scalar_store(kind, value, target_out);
    }
    return TDM_OK;
}

/* Checks one item of a list, and stores it unless `item_out` is NULL. */
static tdm_status decode_item(const struct field_path *path_end, const struct tdm__field *field,
                              const tdm_value *value, void *item_out)
{
    return field->item_kind == TDM__FIELD_MESSAGE
               ? decode_message(path_end, field->nested(), value, item_out)
               : decode_scalar(path_end, field->item_kind, value, item_out);
}

/* Checks a list with all its items.  Stores a reference to the parsed array unless `list_out` is
 * NULL.  `outer` is the path of the message around it. */
static tdm_status decode_list(const struct field_path *outer, const struct tdm__field *field,
                              const tdm_value *value, struct tdm__message_list *list_out)
{
    struct field_path path_end = {outer, field->name, -1};

    if (tdm_value_kind_of(value) != TDM_ARRAY) {
        return fail_type(&path_end, TDM__FIELD_LIST, value);
    }
    for (uint32_t i = 0; i < value->count; i++) {
        path_end.index = i;
        TDM_TRY(decode_item(&path_end, field, tdm_value_at(value, i), NULL));
    }
    if (list_out != NULL) {
        *list_out =
            (struct tdm__message_list){.count = value->count, .value = value, .field = field};
    }
    return TDM_OK;
}

/* Checks one field, and stores it unless `structure` is NULL.  `outer` is the path of the
 * message. */
static tdm_status decode_field(const struct field_path *outer, const struct tdm__field *field,
                               const tdm_value *value, char *structure)
{
    struct field_path path_end = {outer, field->name, -1};
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
    return field->nested != NULL ? decode_message(&path_end, field->nested(), value, target)
                                 : decode_scalar(&path_end, field->kind, value, target);
}

/* Checks a message with all its fields, and fills `structure` unless it is NULL. */
static tdm_status decode_message(const struct field_path *path_end,
                                 const struct tdm__message *message, const tdm_value *value,
                                 char *structure)
{
    if (tdm_value_kind_of(value) != TDM_ARRAY) {
        return fail_type(path_end, TDM__FIELD_MESSAGE, value);
    }
    if (value->count != message->fields_count) {
        return fail_count(path_end, message, value);
    }
    for (uint32_t i = 0; i < message->fields_count; i++) {
        TDM_TRY(decode_field(path_end, &message->fields[i], &value->as.values[i], structure));
    }
    return TDM_OK;
}

tdm_status tdm__message_decode(const struct tdm__message *message, const tdm_value *value,
                               void *structure_out)
{
    struct field_path path_end = {NULL, message->name, -1};

    memset(structure_out, 0, message->size_bytes);
    return decode_message(&path_end, message, value, structure_out);
}

void tdm__message_list_read(const struct tdm__message_list *list, uint32_t index, void *item_out,
                            size_t item_bytes)
{
    struct field_path path_end = {NULL, "item", -1};

    TDM_ASSERT(index < list->count && list->field != NULL);
    TDM_ASSERT(item_bytes == list_item_size(list->field));
    memset(item_out, 0, item_bytes);
    TDM_ASSERT(decode_item(&path_end, list->field, tdm_value_at(list->value, index), item_out) ==
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
        hash = tdm__message_hash_text(field_kinds[field->kind].name, hash);
        if (field->kind == TDM__FIELD_LIST) {
            hash = tdm__message_hash_text(field_kinds[field->item_kind].name, hash);
        }
        if (field->nested != NULL) {
            hash = tdm__message_hash_text(field->nested()->name, hash);
        }
    }
    return tdm__message_hash_text("", hash); /* The hash also covers where the message ends. */
}
