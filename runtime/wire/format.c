/* format.c - checks format strings, and unpacks arrays of values by them. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A format string has one letter per value; ( ) and { } enclose groups (include/tandem/value.h).
 * Each function first checks the whole format, then works on it from left to right, so a bad
 * format has no effect.
 *
 * Unpacking checks all values before it stores the first one, so a failure stores nothing.
 * Values are compared with the format by values_match(); only on a mismatch does
 * explain_mismatch() build an error text, because that costs more than unpacking a call.
 * Unpacking with hooks first opens the objects of all references and handles, and drops them if
 * one fails.
 *
 * There is no state between calls; any thread may call the functions. */
#include "runtime/wire/format.h"
#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/wire/placeholders.h"
#include "runtime/wire/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHAPE_BYTES = 64, /* Size in bytes of the text that describes an array in an error. */
    GROUPS_MAX = 32   /* Largest depth of nested groups in a format. */
};

/* A va_list in a structure, so that functions can pass it on by pointer. */
struct arguments {
    va_list list; /* Arguments of the caller that have not been used yet. */
};

/* ---- formats ---------------------------------------------------------------------------- */

const char *tdm__format_group_skip(const char *format)
{
    uint32_t open = 0;

    do {
        if (*format == '(' || *format == '{') {
            open++;
        } else if (*format == ')' || *format == '}') {
            open--;
        }
        format++;
    } while (open > 0);
    return format;
}

uint32_t tdm__format_items_count(const char *format)
{
    uint32_t count = 0;

    while (!tdm__format_group_ends(format)) {
        format = tdm__format_item_end(format);
        count++;
    }
    return count;
}

uint32_t tdm__format_letters_count(const char *format, const char *letters)
{
    uint32_t count = 0;

    for (const char *position = format; *position != '\0'; position++) {
        count += tdm__format_is_among(*position, letters) ? 1 : 0;
    }
    return count;
}

tdm_status tdm__format_fail(const char *format, const char *position, const char *why)
{
    return tdm__fail(TDM_E_INVAL, "format \"%s\": %s at position %td", format, why,
                     position - format + 1);
}

/* Checks that the map that starts at `inside` consists of pairs with a string first. */
static tdm_status check_map(const char *format, const char *inside)
{
    bool is_key = true;

    for (; !tdm__format_group_ends(inside); inside = tdm__format_item_end(inside)) {
        if (*inside == '*' || *inside == '&') {
            return tdm__format_fail(format, inside, "a list in a map");
        }
        if (is_key && *inside != 's') {
            return tdm__format_fail(format, inside, "a key must be s");
        }
        is_key = !is_key;
    }
    return is_key ? TDM_OK : tdm__format_fail(format, inside, "a key without a value");
}

/* Stack of the groups that are open at a position of the format. */
struct open_groups {
    /* Opening bracket of each group, as a position in the format. */
    const char *starts[GROUPS_MAX];
    uint32_t count; /* Number of groups that are open. */
};

/* Closes the innermost group by the bracket at `position`. */
static tdm_status close_group(struct open_groups *groups, const char *format, const char *position)
{
    const char *start;

    if (groups->count == 0) {
        return tdm__format_fail(format, position, "a closing bracket without an opening one");
    }
    start = groups->starts[--groups->count];
    if (*position != (*start == '(' ? ')' : '}')) {
        return tdm__format_fail(format, position, "a closing bracket of the other kind");
    }
    return *start == '{' ? check_map(format, start + 1) : TDM_OK;
}

/* Opens a group by the bracket at `position`. */
static tdm_status open_group(struct open_groups *groups, const char *format, const char *position)
{
    if (groups->count == GROUPS_MAX) {
        return tdm__format_fail(format, position, "groups nested too deep");
    }
    groups->starts[groups->count++] = position;
    return TDM_OK;
}

/* Returns the error text for a letter that is not allowed. */
static const char *unknown_letter_text(char letter)
{
    switch (letter) {
    case 'r':
        return "r is only allowed among the arguments of a call or a put, but stands";
    case 'R':
        return "R is only allowed in calls and puts, but stands";
    case 'h':
        return "h is only allowed in calls and puts, but stands";
    case '&':
        return "& is only allowed in calls and puts, but stands";
    default:
        return "unknown letter";
    }
}

tdm_status tdm__format_check(const char *format, const char *letters)
{
    struct open_groups groups;

    groups.count = 0; /* The array needs no value: this function runs for each call and put. */
    for (const char *position = format; *position != '\0'; position++) {
        tdm_status status = TDM_OK;

        if (!tdm__format_is_among(*position, letters)) {
            return tdm__format_fail(format, position, unknown_letter_text(*position));
        }
        if (*position == '(' || *position == '{') {
            status = open_group(&groups, format, position);
        } else if (tdm__format_group_ends(position)) {
            status = close_group(&groups, format, position);
        }
        if (status != TDM_OK) {
            return status;
        }
    }
    return groups.count == 0 ? TDM_OK
                             : tdm__format_fail(format, groups.starts[groups.count - 1],
                                                "an opening bracket without a closing one");
}

/* ---- unpacking -------------------------------------------------------------------------- */

/* Describes an array by the letters of its values, one level deep, such as "(is()b)".  Returns
 * `text`. */
static const char *shape_text(const tdm_value *array, char text[SHAPE_BYTES])
{
    static const char *const letters[] = {
        [TDM_NIL] = "n",     [TDM_BOOL] = "?",      [TDM_INT] = "i",    [TDM_DOUBLE] = "f",
        [TDM_STRING] = "s",  [TDM_BYTES] = "b",     [TDM_ARRAY] = "()", [TDM_MAP] = "{}",
        [TDM_NDARRAY] = "a", [TDM_REFERENCE] = "R", [TDM_HANDLE] = "h",
    };
    size_t used = 1;
    uint32_t count = tdm_value_count(array);

    text[0] = '(';
    for (uint32_t i = 0; i < count && used < SHAPE_BYTES - 8; i++) {
        const char *letter = letters[tdm_value_at(array, i)->kind];

        if (used >= SHAPE_BYTES - 12 && i + 1 < count) {
            letter = " ...";
            count = 0; /* The loop ends after this value. */
        }
        memcpy(text + used, letter, strlen(letter));
        used += strlen(letter);
    }
    text[used] = ')';
    text[used + 1] = '\0';
    return text;
}

/* Returns in words which value a letter of the format accepts, for errors. */
static const char *expected_text(char letter)
{
    switch (letter) {
    case 'i':
        return "an integer that fits int64_t";
    case 'u':
        return "an integer that fits uint64_t";
    case 'f':
        return "a number";
    case '?':
        return "a bool";
    case 's':
        return "a string";
    case 'b':
        return "bytes";
    case 'a':
        return "an ndarray";
    case 'R':
        return "a reference";
    case 'h':
        return "an actor's handle";
    case '(':
        return "an array";
    default:
        return "nil";
    }
}

/* Returns true if the letter accepts the value; groups only by their kind. */
static bool value_matches_letter(const tdm_value *value, char letter)
{
    enum tdm_value_kind kind = value->kind;

    switch (letter) {
    case 'i':
        return tdm__value_fits_int(value);
    case 'u':
        return tdm__value_fits_uint(value);
    case 'f':
        return kind == TDM_DOUBLE || kind == TDM_INT;
    case '?':
        return kind == TDM_BOOL;
    case 's':
        return kind == TDM_STRING || kind == TDM_NIL;
    case 'b':
        return kind == TDM_BYTES;
    case 'a':
        return kind == TDM_NDARRAY;
    case 'R':
        return kind == TDM_REFERENCE;
    case 'h':
        return kind == TDM_HANDLE;
    case '(':
        return kind == TDM_ARRAY;
    case 'n':
        return kind == TDM_NIL;
    default: /* v */
        return true;
    }
}

/* Records that the letter does not accept the value.  `where` is "argument 2: " or "".  Returns
 * TDM_E_TYPE. */
static tdm_status fail_mismatch(const char *where, char letter, const tdm_value *value)
{
    if (tdm_value_kind_of(value) == TDM_INT && (letter == 'i' || letter == 'u')) {
        char text[32];

        (void)snprintf(text, sizeof(text), letter == 'i' ? "%llu" : "%lld",
                       (unsigned long long)value->as.integer.bits);
        return tdm__fail(TDM_E_TYPE, "%swanted %s, got %s", where, expected_text(letter), text);
    }
    return tdm__fail(TDM_E_TYPE, "%swanted %s, got %s", where,
                     letter == 'i' || letter == 'u' ? "an integer" : expected_text(letter),
                     tdm__value_kind_text(value));
}

/* Checks that `array` is an array with as many values as the group that starts at `format` has
 * items.  `where` is "argument 2: " or "". */
static tdm_status check_count(const tdm_value *array, const char *format, const char *where)
{
    const char *end = format;
    char shape[SHAPE_BYTES];

    if (tdm_value_kind_of(array) != TDM_ARRAY) {
        return fail_mismatch(where, '(', array);
    }
    if (array->count == tdm__format_items_count(format)) {
        return TDM_OK;
    }
    while (!tdm__format_group_ends(end)) {
        end = tdm__format_item_end(end);
    }
    return tdm__fail(TDM_E_TYPE, "%swanted (%.*s), got %u values %s", where, (int)(end - format),
                     format, array->count, shape_text(array, shape));
}

/* Returns true if `array` has exactly the values that the group that starts at `format`
 * describes. */
static bool values_match(const tdm_value *array, const char *format)
{
    if (tdm_value_kind_of(array) != TDM_ARRAY || array->count != tdm__format_items_count(format)) {
        return false;
    }
    for (uint32_t index = 0; !tdm__format_group_ends(format);
         format = tdm__format_item_end(format), index++) {
        const tdm_value *value = tdm_value_at(array, index);

        if (!value_matches_letter(value, *format) ||
            (*format == '(' && !values_match(value, format + 1))) {
            return false;
        }
    }
    return true;
}

/* Records as an error the first difference that values_match() has found.  It is a function of
 * its own because building the text for each argument costs more than all of unpacking. */
static tdm_status explain_mismatch(const tdm_value *array, const char *format, const char *where)
{
    TDM_TRY(check_count(array, format, where));
    for (uint32_t index = 0; !tdm__format_group_ends(format);
         format = tdm__format_item_end(format), index++) {
        const tdm_value *value = tdm_value_at(array, index);
        tdm_status status = TDM_OK;
        char inner[SHAPE_BYTES];

        (void)snprintf(inner, sizeof(inner), "%sargument %u: ", where, index + 1);
        if (!value_matches_letter(value, *format)) {
            status = fail_mismatch(inner, *format, value);
        } else if (*format == '(') {
            status = explain_mismatch(value, format + 1, inner);
        }
        if (status != TDM_OK) {
            return status;
        }
    }
    return TDM_OK;
}

/* Checks the array against the format.  Returns TDM_E_TYPE with a text on a mismatch. */
static tdm_status check_values(const tdm_value *array, const char *format)
{
    return values_match(array, format) ? TDM_OK : explain_mismatch(array, format, "");
}

/* Stores the two results, pointer and size, of the letter b. */
static void fill_bytes(const tdm_value *value, struct arguments *arguments)
{
    const void **data_out = va_arg(arguments->list, const void **);
    size_t *size_out = va_arg(arguments->list, size_t *);

    *data_out = value->as.data;
    *size_out = value->as.size_bytes;
}

/* Stores the result of one letter that is not a group, a reference or a handle. */
static void fill_item(const tdm_value *value, char letter, struct arguments *arguments)
{
    switch (letter) {
    case 'i':
        *va_arg(arguments->list, int64_t *) = tdm_value_int(value, 0);
        break;
    case 'u':
        *va_arg(arguments->list, uint64_t *) = tdm_value_uint(value, 0);
        break;
    case 'f':
        *va_arg(arguments->list, double *) = tdm_value_double(value, 0);
        break;
    case '?':
        *va_arg(arguments->list, int *) = tdm_value_bool(value, 0);
        break;
    case 's':
        *va_arg(arguments->list, const char **) = tdm_value_string(value, NULL);
        break;
    case 'b':
        fill_bytes(value, arguments);
        break;
    case 'a':
        *va_arg(arguments->list, struct tdm_ndarray *) = *value->as.ndarray;
        break;
    case 'v':
        *va_arg(arguments->list, const tdm_value **) = value;
        break;
    default: /* n */
        break;
    }
}

/* Stores the values of a group in the caller's pointers.  `*opened_objects` points to the next
 * object of a reference or handle and is advanced. */
static void fill_values(const tdm_value *array, const char *format, struct arguments *arguments,
                        void *const **opened_objects)
{
    for (uint32_t index = 0; !tdm__format_group_ends(format);
         format = tdm__format_item_end(format), index++) {
        const tdm_value *value = tdm_value_at(array, index);

        if (*format == '(') {
            fill_values(value, format + 1, arguments, opened_objects);
        } else if (*format == 'R' || *format == 'h') {
            /* The objects were counted by the same format. */
            TDM_ASSERT(*opened_objects != NULL);
            *va_arg(arguments->list, void **) = *(*opened_objects)++;
        } else {
            fill_item(value, *format, arguments);
        }
    }
}

/* Stores all results in the pointers of `args`.  `opened_objects` holds the objects of the
 * references and handles; NULL if the format has no such letters. */
static void unpack_values(const tdm_value *array, const char *format, va_list args,
                          void *const *opened_objects)
{
    struct arguments arguments;

    va_copy(arguments.list, args);
    fill_values(array, format, &arguments, &opened_objects);
    va_end(arguments.list);
}

tdm_status tdm_unpack_va(const tdm_value *array, const char *format, va_list args)
{
    TDM__REQUIRE(format);

    TDM_TRY(tdm__format_check(format, "iuf?sbanv()"));
    TDM_TRY(check_values(array, format));
    unpack_values(array, format, args, NULL);
    return TDM_OK;
}

tdm_status tdm_unpack(const tdm_value *array, const char *format, ...)
{
    TDM__REQUIRE(format);

    va_list args;
    tdm_status status;

    va_start(args, format);
    status = tdm_unpack_va(array, format, args);
    va_end(args);
    return status;
}

/* ---- unpacking with hooks --------------------------------------------------------------- */

/* The objects that the hooks have opened for the references and handles of one format. */
struct opened_objects {
    /* The caller's functions that open and drop the objects; borrowed. */
    const struct tdm__unpack_hooks *hooks;
    /* Array of the objects, owned.  The objects are owned, too, until they are stored. */
    void **objects;
    char *letters;  /* Letter of each object, R or h; in the memory of `objects`. */
    uint32_t count; /* Number of objects that are open. */
};

/* Opens the objects of all references and handles of a group.  On failure, the objects opened so
 * far remain in `opened_objects`. */
static tdm_status opened_objects_open(struct opened_objects *opened_objects, const tdm_value *array,
                                      const char *format)
{
    for (uint32_t index = 0; !tdm__format_group_ends(format);
         format = tdm__format_item_end(format), index++) {
        const tdm_value *value = tdm_value_at(array, index);

        if (*format == '(') {
            TDM_TRY(opened_objects_open(opened_objects, value, format + 1));
        } else if (*format == 'R' || *format == 'h') {
            TDM_TRY(opened_objects->hooks->open(opened_objects->hooks->arg, *format,
                                                tdm__value_ext(value),
                                                &opened_objects->objects[opened_objects->count]));
            opened_objects->letters[opened_objects->count++] = *format;
        }
    }
    return TDM_OK;
}

/* Drops all opened objects, the last one first. */
static void opened_objects_drop(struct opened_objects *opened_objects)
{
    while (opened_objects->count > 0) {
        opened_objects->count--;
        opened_objects->hooks->drop(opened_objects->hooks->arg,
                                    opened_objects->letters[opened_objects->count],
                                    opened_objects->objects[opened_objects->count]);
    }
}

/* Opens the objects and stores all results; on failure drops the objects. */
static tdm_status unpack_with_objects(const tdm_value *array, const char *format, va_list args,
                                      struct opened_objects *opened_objects)
{
    tdm_status status = opened_objects_open(opened_objects, array, format);

    if (status == TDM_OK) {
        unpack_values(array, format, args, opened_objects->objects);
    } else {
        opened_objects_drop(opened_objects);
    }
    return status;
}

tdm_status tdm__unpack_with_hooks(const tdm_value *array, const char *format, va_list args,
                                  const struct tdm__unpack_hooks *hooks)
{
    uint32_t count = tdm__format_letters_count(format, "Rh");
    struct opened_objects opened_objects = {.hooks = hooks};
    tdm_status status;

    TDM_TRY(tdm__format_check(format, "iuf?sbanv()Rh"));
    TDM_TRY(check_values(array, format));
    if (count == 0) {
        unpack_values(array, format, args, NULL);
        return TDM_OK;
    }
    opened_objects.objects = malloc(count * (sizeof(void *) + 1));
    if (opened_objects.objects == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u references and handles", count);
    }
    opened_objects.letters = (char *)(opened_objects.objects + count);
    status = unpack_with_objects(array, format, args, &opened_objects);
    free(opened_objects.objects);
    return status;
}
