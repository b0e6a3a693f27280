/* format.c - packs and unpacks arrays of values by a format string. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/wire/placeholders.h"
#include "runtime/wire/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHAPE_BYTES = 64, GROUPS_MAX = 32 };

/* A va_list that can be handed down by pointer. */
struct arguments {
    va_list list;
};

/* ---- formats ---------------------------------------------------------------------------- */

/* The character after the item that starts at `format`: a letter, or a whole group. */
static const char *item_end(const char *format)
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

static bool group_ends(const char *format)
{
    return *format == '\0' || *format == ')' || *format == '}';
}

/* Items up to the end of the group that `format` is in. */
static uint32_t items_count(const char *format)
{
    uint32_t count = 0;

    while (!group_ends(format)) {
        format = item_end(format);
        count++;
    }
    return count;
}

static uint32_t letters_count(const char *format, const char *letters)
{
    uint32_t count = 0;

    for (const char *at = format; *at != '\0'; at++) {
        count += strchr(letters, *at) != NULL ? 1 : 0;
    }
    return count;
}

static tdm_status bad_format(const char *format, const char *at, const char *why)
{
    return tdm__fail(TDM_E_INVAL, "format \"%s\": %s at position %td", format, why,
                     at - format + 1);
}

static tdm_status check_map(const char *format, const char *inside)
{
    bool is_key = true;

    for (; !group_ends(inside); inside = item_end(inside)) {
        if (is_key && *inside != 's') {
            return bad_format(format, inside, "a key must be s");
        }
        is_key = !is_key;
    }
    return is_key ? TDM_OK : bad_format(format, inside, "a key without a value");
}

/* The groups that are open at a place of the format. */
struct groups {
    const char *starts[GROUPS_MAX];
    uint32_t count;
};

static tdm_status close_group(struct groups *groups, const char *format, const char *at)
{
    const char *start;

    if (groups->count == 0) {
        return bad_format(format, at, "a group closed that is not open");
    }
    start = groups->starts[--groups->count];
    if (*at != (*start == '(' ? ')' : '}')) {
        return bad_format(format, at, "a group closed by the other bracket");
    }
    return *start == '{' ? check_map(format, start + 1) : TDM_OK;
}

static tdm_status open_group(struct groups *groups, const char *format, const char *at)
{
    if (groups->count == GROUPS_MAX) {
        return bad_format(format, at, "groups nested too deep");
    }
    groups->starts[groups->count++] = at;
    return TDM_OK;
}

static const char *unknown_text(char letter)
{
    switch (letter) {
    case 'r':
        return "r is only allowed among the arguments of a call or a put, but stands";
    case 'R':
        return "R is only allowed in calls and puts, but stands";
    case 'h':
        return "h is only allowed in calls and puts, but stands";
    default:
        return "unknown letter";
    }
}

/* Letters known, groups closed, maps made of pairs. */
static tdm_status check_format(const char *format, const char *letters)
{
    struct groups groups = {.count = 0};

    for (const char *at = format; *at != '\0'; at++) {
        tdm_status status = TDM_OK;

        if (strchr(letters, *at) == NULL) {
            return bad_format(format, at, unknown_text(*at));
        }
        if (*at == '(' || *at == '{') {
            status = open_group(&groups, format, at);
        } else if (group_ends(at)) {
            status = close_group(&groups, format, at);
        }
        if (status != TDM_OK) {
            return status;
        }
    }
    return groups.count == 0
               ? TDM_OK
               : bad_format(format, groups.starts[groups.count - 1], "a group never closed");
}

/* ---- packing ---------------------------------------------------------------------------- */

static void pack_bytes(tdm_writer *writer, struct arguments *arguments)
{
    const void *data = va_arg(arguments->list, const void *);
    size_t size_bytes = va_arg(arguments->list, size_t);

    tdm_write_bytes(writer, data, size_bytes);
}

static void pack_one(tdm_writer *writer, const char *item, struct arguments *arguments)
{
    switch (*item) {
    case 'i':
        tdm_write_int(writer, va_arg(arguments->list, int64_t));
        break;
    case 'u':
        tdm_write_uint(writer, va_arg(arguments->list, uint64_t));
        break;
    case 'f':
        tdm_write_double(writer, va_arg(arguments->list, double));
        break;
    case '?':
        tdm_write_bool(writer, va_arg(arguments->list, int));
        break;
    case 's':
        tdm_write_string(writer, va_arg(arguments->list, const char *));
        break;
    case 'b':
        pack_bytes(writer, arguments);
        break;
    case 'a':
        tdm_write_ndarray(writer, va_arg(arguments->list, const struct tdm_ndarray *));
        break;
    case 'v':
        tdm_write_value(writer, va_arg(arguments->list, const tdm_value *));
        break;
    case 'p':
        tdm_write_packed(writer, *va_arg(arguments->list, const struct tdm_bytes *));
        break;
    case '(':
        tdm_write_array(writer, items_count(item + 1));
        break;
    case '{':
        tdm_write_map(writer, items_count(item + 1) / 2);
        break;
    case 'n':
        tdm_write_nil(writer);
        break;
    default: /* the end of a group: its header has said all */
        break;
    }
}

tdm_status tdm_pack_va(tdm_writer *writer, const char *format, va_list args)
{
    TDM__REQUIRE(writer);
    TDM__REQUIRE(format);

    struct arguments arguments;

    TDM_TRY(check_format(format, "iuf?sbanvp(){}"));
    va_copy(arguments.list, args);
    tdm_write_array(writer, items_count(format));
    for (const char *at = format; *at != '\0'; at++) {
        pack_one(writer, at, &arguments);
    }
    va_end(arguments.list);
    return tdm_writer_status(writer);
}

tdm_status tdm_pack(tdm_writer *writer, const char *format, ...)
{
    TDM__REQUIRE(writer);
    TDM__REQUIRE(format);

    va_list args;
    tdm_status status;

    va_start(args, format);
    status = tdm_pack_va(writer, format, args);
    va_end(args);
    return status;
}

/* ---- packing with placeholders -----------------------------------------------------------------
 */

/* Every r must be an item of the whole, not of a group. */
static tdm_status check_refs(const char *format)
{
    uint32_t in_items = 0;

    for (const char *at = format; *at != '\0'; at = item_end(at)) {
        in_items += *at == 'r' ? 1 : 0;
    }
    return in_items == letters_count(format, "r")
               ? TDM_OK
               : tdm__fail(TDM_E_INVAL, "format \"%s\": r inside a group", format);
}

/* Room for the placeholders of `format`; the counts stay 0. */
static tdm_status placeholders_init(struct tdm__placeholders *placeholders, const char *format,
                                    tdm_writer *writer)
{
    uint32_t refs_count = letters_count(format, "r");
    uint32_t links_count = letters_count(format, "Rh");
    char *room;

    *placeholders = (struct tdm__placeholders){.count = 0};
    if (refs_count + links_count == 0) {
        return TDM_OK;
    }
    if (refs_count + links_count > TDM__PLACEHOLDERS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "a format of %u references and handles, the limit is %d",
                         refs_count + links_count, TDM__PLACEHOLDERS_MAX);
    }
    room = tdm__writer_attach(writer, refs_count * (sizeof(void *) + sizeof(size_t)) +
                                          links_count * sizeof(struct tdm__object_placeholder));
    if (room == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u references and handles", refs_count + links_count);
    }
    placeholders->refs = (void **)room;
    placeholders->offsets = (size_t *)(placeholders->refs + refs_count);
    placeholders->links = (struct tdm__object_placeholder *)(placeholders->offsets + refs_count);
    return TDM_OK;
}

static void placeholder_add(struct tdm__placeholders *placeholders, char letter, void *object,
                            size_t offset)
{
    if (letter == 'r') {
        placeholders->refs[placeholders->count] = object;
        placeholders->offsets[placeholders->count++] = offset;
    } else {
        placeholders->links[placeholders->links_count++] =
            (struct tdm__object_placeholder){object, offset, placeholders->count, letter};
    }
}

tdm_status tdm__pack_with_placeholders(tdm_writer *writer, const char *format, va_list args,
                                       struct tdm__placeholders *placeholders)
{
    struct arguments arguments;

    *placeholders = (struct tdm__placeholders){.count = 0};
    TDM_TRY(check_format(format, "iuf?sbanvp(){}rRh"));
    TDM_TRY(check_refs(format));
    TDM_TRY(placeholders_init(placeholders, format, writer));
    va_copy(arguments.list, args);
    tdm_write_array(writer, items_count(format));
    for (const char *at = format; *at != '\0'; at++) {
        if (strchr("rRh", *at) != NULL) {
            placeholder_add(placeholders, *at, va_arg(arguments.list, void *),
                            tdm_writer_bytes(writer).size_bytes);
        } else {
            pack_one(writer, at, &arguments);
        }
    }
    va_end(arguments.list);
    return tdm_writer_status(writer);
}

tdm_status tdm__fill_placeholders(tdm_writer *filled, struct tdm_bytes packed,
                                  const struct tdm__placeholders *placeholders,
                                  tdm__placeholder_fill_fn *fn, void *arg)
{
    const char *bytes = packed.data;
    size_t from = 0;
    uint32_t ref = 0;
    uint32_t link = 0;

    while (ref < placeholders->count || link < placeholders->links_count) {
        bool is_ref =
            link == placeholders->links_count || ref < placeholders->links[link].refs_before;
        size_t to = is_ref ? placeholders->offsets[ref] : placeholders->links[link].offset;

        tdm_write_packed(filled, (struct tdm_bytes){bytes + from, to - from});
        from = to;
        if (is_ref) {
            TDM_TRY(fn(arg, filled, 'r', placeholders->refs[ref++]));
        } else {
            TDM_TRY(fn(arg, filled, placeholders->links[link].letter,
                       placeholders->links[link].object));
            link++;
        }
    }
    tdm_write_packed(filled, (struct tdm_bytes){bytes + from, packed.size_bytes - from});
    return tdm_writer_status(filled);
}

/* ---- unpacking -------------------------------------------------------------------------- */

/* The letters of an array, one level deep: "(is(…)b)". */
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
            count = 0; /* the last */
        }
        memcpy(text + used, letter, strlen(letter));
        used += strlen(letter);
    }
    text[used] = ')';
    text[used + 1] = '\0';
    return text;
}

static const char *wanted_text(char letter)
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

static bool matches(const tdm_value *value, char letter)
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

static tdm_status mismatch(const char *where, char letter, const tdm_value *value)
{
    if (tdm_value_kind_of(value) == TDM_INT && (letter == 'i' || letter == 'u')) {
        char text[32];

        (void)snprintf(text, sizeof(text), letter == 'i' ? "%llu" : "%lld",
                       (unsigned long long)value->as.integer.bits);
        return tdm__fail(TDM_E_TYPE, "%swanted %s, got %s", where, wanted_text(letter), text);
    }
    return tdm__fail(TDM_E_TYPE, "%swanted %s, got %s", where,
                     letter == 'i' || letter == 'u' ? "an integer" : wanted_text(letter),
                     tdm__value_kind_text(value));
}

/* Checks `array` against the group that starts at `format`; `where` is "argument 2: " or "". */
static tdm_status check_count(const tdm_value *array, const char *format, const char *where)
{
    const char *end = format;
    char shape[SHAPE_BYTES];

    if (tdm_value_kind_of(array) != TDM_ARRAY) {
        return mismatch(where, '(', array);
    }
    if (array->count == items_count(format)) {
        return TDM_OK;
    }
    while (!group_ends(end)) {
        end = item_end(end);
    }
    return tdm__fail(TDM_E_TYPE, "%swanted (%.*s), got %u values %s", where, (int)(end - format),
                     format, array->count, shape_text(array, shape));
}

/* Whether `array` is what the group says that starts at `format`. */
static bool values_match(const tdm_value *array, const char *format)
{
    if (tdm_value_kind_of(array) != TDM_ARRAY || array->count != items_count(format)) {
        return false;
    }
    for (uint32_t index = 0; !group_ends(format); format = item_end(format), index++) {
        const tdm_value *value = tdm_value_at(array, index);

        if (!matches(value, *format) || (*format == '(' && !values_match(value, format + 1))) {
            return false;
        }
    }
    return true;
}

/* Says what values_match() did not like.  Apart from it because each place's text costs more
 * than all else of a call's unpacking. */
static tdm_status explain_mismatch(const tdm_value *array, const char *format, const char *where)
{
    TDM_TRY(check_count(array, format, where));
    for (uint32_t index = 0; !group_ends(format); format = item_end(format), index++) {
        const tdm_value *value = tdm_value_at(array, index);
        tdm_status status = TDM_OK;
        char inner[SHAPE_BYTES];

        (void)snprintf(inner, sizeof(inner), "%sargument %u: ", where, index + 1);
        if (!matches(value, *format)) {
            status = mismatch(inner, *format, value);
        } else if (*format == '(') {
            status = explain_mismatch(value, format + 1, inner);
        }
        if (status != TDM_OK) {
            return status;
        }
    }
    return TDM_OK;
}

static tdm_status check_values(const tdm_value *array, const char *format)
{
    return values_match(array, format) ? TDM_OK : explain_mismatch(array, format, "");
}

static void fill_bytes(const tdm_value *value, struct arguments *arguments)
{
    const void **data_out = va_arg(arguments->list, const void **);
    size_t *size_out = va_arg(arguments->list, size_t *);

    *data_out = value->as.data;
    *size_out = value->count;
}

static void fill_one(const tdm_value *value, char letter, struct arguments *arguments)
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

/* `*opened` is the next of the objects made of references and handles. */
static void fill_values(const tdm_value *array, const char *format, struct arguments *arguments,
                        void *const **opened)
{
    for (uint32_t index = 0; !group_ends(format); format = item_end(format), index++) {
        const tdm_value *value = tdm_value_at(array, index);

        if (*format == '(') {
            fill_values(value, format + 1, arguments, opened);
        } else if (*format == 'R' || *format == 'h') {
            TDM_ASSERT(*opened != NULL); /* the format was counted */
            *va_arg(arguments->list, void **) = *(*opened)++;
        } else {
            fill_one(value, *format, arguments);
        }
    }
}

static void unpack(const tdm_value *array, const char *format, va_list args, void *const *opened)
{
    struct arguments arguments;

    va_copy(arguments.list, args);
    fill_values(array, format, &arguments, &opened);
    va_end(arguments.list);
}

tdm_status tdm_unpack_va(const tdm_value *array, const char *format, va_list args)
{
    TDM__REQUIRE(format);

    TDM_TRY(check_format(format, "iuf?sbanv()"));
    TDM_TRY(check_values(array, format));
    unpack(array, format, args, NULL);
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

/* What the references and handles of a format were opened as. */
struct opened {
    const struct tdm__unpack_hooks *hooks;
    void **objects; /* owned, and so are the objects until they are filled */
    char *letters;  /* in the same memory */
    uint32_t count;
};

static tdm_status open_values(struct opened *opened, const tdm_value *array, const char *format)
{
    for (uint32_t index = 0; !group_ends(format); format = item_end(format), index++) {
        const tdm_value *value = tdm_value_at(array, index);

        if (*format == '(') {
            TDM_TRY(open_values(opened, value, format + 1));
        } else if (*format == 'R' || *format == 'h') {
            TDM_TRY(opened->hooks->open(opened->hooks->arg, *format, tdm__value_ext(value),
                                        &opened->objects[opened->count]));
            opened->letters[opened->count++] = *format;
        }
    }
    return TDM_OK;
}

static void drop_opened(struct opened *opened)
{
    while (opened->count > 0) {
        opened->count--;
        opened->hooks->drop(opened->hooks->arg, opened->letters[opened->count],
                            opened->objects[opened->count]);
    }
}

static tdm_status unpack_opening(const tdm_value *array, const char *format, va_list args,
                                 struct opened *opened)
{
    tdm_status status = open_values(opened, array, format);

    if (status == TDM_OK) {
        unpack(array, format, args, opened->objects);
    } else {
        drop_opened(opened);
    }
    return status;
}

tdm_status tdm__unpack_with_hooks(const tdm_value *array, const char *format, va_list args,
                                  const struct tdm__unpack_hooks *hooks)
{
    uint32_t count = letters_count(format, "Rh");
    struct opened opened = {.hooks = hooks};
    tdm_status status;

    TDM_TRY(check_format(format, "iuf?sbanv()Rh"));
    TDM_TRY(check_values(array, format));
    if (count == 0) {
        unpack(array, format, args, NULL);
        return TDM_OK;
    }
    opened.objects = malloc(count * (sizeof(void *) + 1));
    if (opened.objects == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u references and handles", count);
    }
    opened.letters = (char *)(opened.objects + count);
    status = unpack_opening(array, format, args, &opened);
    free(opened.objects);
    return status;
}
