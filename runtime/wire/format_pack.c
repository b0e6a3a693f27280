/* format_pack.c - packs arrays of values by a format string. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A format string has one letter per value; ( ) and { } enclose groups (include/tandem/value.h).
 * Each function first checks the whole format, then works on it from left to right, so a bad
 * format has no effect.
 *
 * Packing writes the values directly to a writer, and calls a function of the layer above for
 * references and handles.  Packing with placeholders notes the positions at which references,
 * handles and values must be inserted later, when the values of references are known.  The lists
 * of the letters * and & are read before anything is written, because the header of an array holds
 * its number of values.
 *
 * There is no state between calls; any thread may call the functions. */
#include "runtime/error.h"
#include "runtime/wire/format.h"
#include "runtime/wire/placeholders.h"
#include "runtime/wire/writer.h"

/* Largest number of the letters * and & in one format. */
enum { LISTS_MAX = 16 };

/* The arguments of a format that is being packed. */
struct arguments {
    va_list list; /* The arguments that have not been used yet. */
    /* Arguments of the letters * and &, in the order of the format; borrowed from the caller.  They
     * are read before all others, because the header of an array holds its number of values. */
    const struct tdm_items *lists[LISTS_MAX];
    uint32_t lists_count;      /* Number of entries in `lists`. */
    uint32_t lists_used_count; /* Number of lists that have been packed. */
};

/* ---- lists ------------------------------------------------------------------------------ */

/* Skips the argument of one letter of a format that packs. */
static void skip_argument(struct arguments *arguments, char letter)
{
    if (tdm__format_is_among(letter, "n(){}")) {
        return; /* These letters take no argument. */
    }
    if (letter == 'f') {
        (void)va_arg(arguments->list, double);
        return;
    }
    if (letter == 'i' || letter == 'u') {
        (void)va_arg(arguments->list, int64_t);
        return;
    }
    if (letter == '?') {
        (void)va_arg(arguments->list, int);
        return;
    }
    (void)va_arg(arguments->list, const void *); /* All other letters begin with a pointer. */
    if (letter == 'b') {
        (void)va_arg(arguments->list, size_t);
    }
}

/* Checks the items of the list of the letter at `position`, or of a list inside of it.  `depth` is
 * the number of groups and lists around the items. */
static tdm_status check_items(const char *format, const char *position, uint32_t depth,
                              const struct tdm_items *list)
{
    const char *letters = *position == '*' ? "bai(" : depth == 0 ? "bai(rRh" : "bai(Rh";

    if (list == NULL || (list->count > 0 && list->items == NULL)) {
        return tdm__format_fail(format, position, "a list that is NULL");
    }
    for (uint32_t i = 0; i < list->count; i++) {
        const struct tdm_item *item = &list->items[i];

        if (!tdm__format_is_among(item->letter, letters)) {
            return tdm__format_fail(format, position, "a list with an item of another letter");
        }
        if (item->letter == '(' && depth >= TDM_ITEMS_DEPTH_MAX) {
            return tdm__format_fail(format, position, "lists that are nested too deep");
        }
        if (item->letter == '(') {
            TDM_TRY(check_items(format, position, depth + 1, item->object));
        }
    }
    return TDM_OK;
}

/* Reads the arguments of the letters * and & into `arguments->lists`. */
static tdm_status arguments_read_lists(struct arguments *arguments, const char *format)
{
    uint32_t depth = 0;

    for (const char *position = format; *position != '\0'; position++) {
        depth += *position == '(' || *position == '{' ? 1 : 0;
        depth -= *position == ')' || *position == '}' ? 1 : 0;
        if (*position != '*' && *position != '&') {
            skip_argument(arguments, *position);
            continue;
        }
        if (arguments->lists_count == LISTS_MAX) {
            return tdm__format_fail(format, position, "too many lists");
        }
        arguments->lists[arguments->lists_count] =
            va_arg(arguments->list, const struct tdm_items *);
        TDM_TRY(check_items(format, position, depth, arguments->lists[arguments->lists_count]));
        arguments->lists_count++;
    }
    return TDM_OK;
}

/* Copies `args` and reads the lists among them.  The caller ends `arguments->list` with va_end() on
 * TDM_OK. */
static tdm_status arguments_init(struct arguments *arguments, const char *format, va_list args)
{
    tdm_status status = TDM_OK;

    arguments->lists_count = 0;
    arguments->lists_used_count = 0;
    if (tdm__format_has(format, "*&")) {
        va_copy(arguments->list, args);
        status = arguments_read_lists(arguments, format);
        va_end(arguments->list);
    }
    if (status == TDM_OK) {
        va_copy(arguments->list, args);
    }
    return status;
}

/* Returns the number of values up to the end of the group that `inside` is in; a list counts as its
 * items.  All lists in front of `inside` have been packed, and no others. */
static uint32_t values_count(const struct arguments *arguments, const char *inside)
{
    uint32_t list_index = arguments->lists_used_count;
    uint32_t count = 0;

    while (!tdm__format_group_ends(inside)) {
        const char *end = tdm__format_item_end(inside);

        count += *inside == '*' || *inside == '&' ? arguments->lists[list_index]->count : 1;
        for (; inside < end; inside++) {
            list_index += *inside == '*' || *inside == '&' ? 1 : 0;
        }
    }
    return count;
}

/* Returns the next list and moves behind it. */
static const struct tdm_items *arguments_take_list(struct arguments *arguments)
{
    (void)va_arg(arguments->list, const struct tdm_items *);
    return arguments->lists[arguments->lists_used_count++];
}

/* Returns how many items of the list, and of lists inside of it, have one of the letters. */
static uint32_t list_letters_count(const struct tdm_items *list, const char *letters)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < list->count; i++) {
        const struct tdm_item *item = &list->items[i];

        count += item->letter == '(' ? list_letters_count(item->object, letters)
                                     : (uint32_t)tdm__format_is_among(item->letter, letters);
    }
    return count;
}

/* Returns how many items of all lists have the letter r (`of_values`), or another one of a
 * reference or handle. */
static uint32_t listed_objects_count(const struct arguments *arguments, bool of_values)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < arguments->lists_count; i++) {
        count += list_letters_count(arguments->lists[i], of_values ? "r" : "Rh");
    }
    return count;
}

/* ---- packing ---------------------------------------------------------------------------- */

/* Packs the two arguments of the letter b. */
static void pack_bytes(tdm_writer *writer, struct arguments *arguments)
{
    const void *data = va_arg(arguments->list, const void *);
    size_t size_bytes = va_arg(arguments->list, size_t);

    tdm_write_bytes(writer, data, size_bytes);
}

/* Adds the placeholder of one letter r, R or h at `offset` of the packed bytes. */
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

/* Packs an item of a list that is neither a list nor a reference or handle. */
static void pack_plain_item(tdm_writer *writer, const struct tdm_item *item)
{
    if (item->letter == 'b') {
        tdm_write_bytes(writer, item->object, item->size_bytes);
    } else if (item->letter == 'a') {
        tdm_write_ndarray(writer, item->object);
    } else {
        tdm_write_int(writer, *(const int64_t *)item->object);
    }
}

/* Packs the items of a list.  `placeholders` is NULL for the letter *, whose lists have no
 * references and handles. */
static void pack_list(tdm_writer *writer, const struct tdm_items *list,
                      struct tdm__placeholders *placeholders)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const struct tdm_item *item = &list->items[i];
        const struct tdm_items *inside = item->object;

        if (item->letter == '(') {
            tdm_write_array(writer, inside->count);
            pack_list(writer, inside, placeholders);
        } else if (placeholders != NULL && tdm__format_is_among(item->letter, "rRh")) {
            placeholder_add(placeholders, item->letter, (void *)(uintptr_t)item->object,
                            tdm_writer_bytes(writer).size_bytes);
        } else {
            pack_plain_item(writer, item);
        }
    }
}

/* Packs the value of one letter; for a bracket, the header of the group. */
static void pack_item(tdm_writer *writer, const char *item, struct arguments *arguments)
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
        tdm_write_array(writer, values_count(arguments, item + 1));
        break;
    case '*':
        pack_list(writer, arguments_take_list(arguments), NULL);
        break;
    case '{':
        tdm_write_map(writer, tdm__format_items_count(item + 1) / 2);
        break;
    case 'n':
        tdm_write_nil(writer);
        break;
    default: /* The end of a group writes nothing. */
        break;
    }
}

tdm_status tdm_pack_va(tdm_writer *writer, const char *format, va_list args)
{
    TDM__REQUIRE(writer);
    TDM__REQUIRE(format);

    struct arguments arguments;

    TDM_TRY(tdm__format_check(format, "iuf?sbanvp(){}*"));
    TDM_TRY(arguments_init(&arguments, format, args));
    tdm_write_array(writer, values_count(&arguments, format));
    for (const char *position = format; *position != '\0'; position++) {
        pack_item(writer, position, &arguments);
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

/* ---- packing with references and handles ------------------------------------------------ */

/* Packs the items of a list of the letter &, whose references and handles `write` writes. */
static tdm_status pack_list_with_objects(tdm_writer *writer, const struct tdm_items *list,
                                         tdm__object_write_fn *write, void *arg)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const struct tdm_item *item = &list->items[i];
        const struct tdm_items *inside = item->object;

        if (item->letter == '(') {
            tdm_write_array(writer, inside->count);
            TDM_TRY(pack_list_with_objects(writer, inside, write, arg));
        } else if (tdm__format_is_among(item->letter, "Rh")) {
            TDM_TRY(write(arg, writer, item->letter, (void *)(uintptr_t)item->object));
        } else {
            pack_plain_item(writer, item);
        }
    }
    return TDM_OK;
}

/* Packs the values of a format that has no letter r. */
static tdm_status pack_values_and_objects(tdm_writer *writer, const char *format,
                                          struct arguments *arguments, tdm__object_write_fn *write,
                                          void *arg)
{
    tdm_write_array(writer, values_count(arguments, format));
    for (const char *position = format; *position != '\0'; position++) {
        if (*position == '&') {
            TDM_TRY(pack_list_with_objects(writer, arguments_take_list(arguments), write, arg));
        } else if (*position == 'R' || *position == 'h') {
            TDM_TRY(write(arg, writer, *position, va_arg(arguments->list, void *)));
        } else {
            pack_item(writer, position, arguments);
        }
    }
    return tdm_writer_status(writer);
}

tdm_status tdm__pack_with_objects(tdm_writer *writer, const char *format, va_list args,
                                  tdm__object_write_fn *write, void *arg)
{
    struct arguments arguments;
    tdm_status status;

    TDM_TRY(tdm__format_check(format, "iuf?sbanvp(){}rRh*&"));
    TDM_TRY(arguments_init(&arguments, format, args));
    status = tdm__format_has(format, "r") || listed_objects_count(&arguments, true) > 0
                 ? tdm__fail(TDM_E_INVAL, "the letter r is for the arguments of calls")
                 : pack_values_and_objects(writer, format, &arguments, write, arg);
    va_end(arguments.list);
    return status;
}

bool tdm__format_awaits_values(const char *format, va_list args)
{
    struct arguments arguments;
    bool awaits;

    if (tdm__format_has(format, "r") || !tdm__format_has(format, "&")) {
        return tdm__format_has(format, "r");
    }
    if (tdm__format_check(format, "iuf?sbanvp(){}Rh*&") != TDM_OK ||
        arguments_init(&arguments, format, args) != TDM_OK) {
        return false; /* Packing reports what is wrong. */
    }
    awaits = listed_objects_count(&arguments, true) > 0;
    va_end(arguments.list);
    return awaits;
}

/* ---- packing with placeholders ---------------------------------------------------------- */

/* Checks that each r is an item of the whole format and not inside of a group. */
static tdm_status check_refs(const char *format)
{
    uint32_t in_items = 0;

    for (const char *position = format; *position != '\0';
         position = tdm__format_item_end(position)) {
        in_items += *position == 'r' ? 1 : 0;
    }
    return in_items == tdm__format_letters_count(format, "r")
               ? TDM_OK
               : tdm__fail(TDM_E_INVAL, "format \"%s\": r inside a group", format);
}

/* Allocates the arrays for the placeholders of `format`.  The memory belongs to the writer; the
 * counts stay 0. */
static tdm_status placeholders_init(struct tdm__placeholders *placeholders, const char *format,
                                    const struct arguments *arguments, tdm_writer *writer)
{
    uint32_t refs_count =
        tdm__format_letters_count(format, "r") + listed_objects_count(arguments, true);
    uint32_t links_count =
        tdm__format_letters_count(format, "Rh") + listed_objects_count(arguments, false);
    char *memory;

    *placeholders = (struct tdm__placeholders){.count = 0};
    if (refs_count + links_count == 0) {
        return TDM_OK;
    }
    if (refs_count + links_count > TDM__PLACEHOLDERS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "a format of %u references and handles, the limit is %d",
                         refs_count + links_count, TDM__PLACEHOLDERS_MAX);
    }
    memory = tdm__writer_attach(writer, refs_count * (sizeof(void *) + sizeof(size_t)) +
                                            links_count * sizeof(struct tdm__object_placeholder));
    if (memory == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%u references and handles", refs_count + links_count);
    }
    placeholders->refs = (void **)memory;
    placeholders->offsets = (size_t *)(placeholders->refs + refs_count);
    placeholders->links = (struct tdm__object_placeholder *)(placeholders->offsets + refs_count);
    return TDM_OK;
}

tdm_status tdm__pack_with_placeholders(tdm_writer *writer, const char *format, va_list args,
                                       struct tdm__placeholders *placeholders)
{
    struct arguments arguments;
    tdm_status status;

    *placeholders = (struct tdm__placeholders){.count = 0};
    TDM_TRY(tdm__format_check(format, "iuf?sbanvp(){}rRh*&"));
    TDM_TRY(check_refs(format));
    TDM_TRY(arguments_init(&arguments, format, args));
    status = placeholders_init(placeholders, format, &arguments, writer);
    if (status != TDM_OK) {
        va_end(arguments.list);
        return status;
    }
    tdm_write_array(writer, values_count(&arguments, format));
    for (const char *position = format; *position != '\0'; position++) {
        size_t offset = tdm_writer_bytes(writer).size_bytes;

        if (*position == '&') {
            pack_list(writer, arguments_take_list(&arguments), placeholders);
        } else if (tdm__format_is_among(*position, "rRh")) {
            placeholder_add(placeholders, *position, va_arg(arguments.list, void *), offset);
        } else {
            pack_item(writer, position, &arguments);
        }
    }
    va_end(arguments.list);
    return tdm_writer_status(writer);
}

tdm_status tdm__fill_placeholders(tdm_writer *filled, struct tdm_bytes packed,
                                  const struct tdm__placeholders *placeholders,
                                  tdm__object_write_fn *write, void *arg)
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
            TDM_TRY(write(arg, filled, 'r', placeholders->refs[ref++]));
        } else {
            TDM_TRY(write(arg, filled, placeholders->links[link].letter,
                          placeholders->links[link].object));
            link++;
        }
    }
    tdm_write_packed(filled, (struct tdm_bytes){bytes + from, packed.size_bytes - from});
    return tdm_writer_status(filled);
}
