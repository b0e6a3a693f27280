/* config_tree.c - builds the tree of a configuration from YAML, and writes it as JSON. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The library libyaml delivers events. The functions read_* consume them and build nodes. Plain
 * scalars are typed by YAML 1.2's core schema. Anchors, aliases, tags, merge keys, duplicate keys
 * and a second document are errors, because they make a file mean something other than it shows.
 * Depth and key length are limited, so that a hostile file cannot exhaust the stack. The JSON
 * writer puts every value on its original line. Actors parse that JSON and report the same line
 * numbers as the driver. Everything runs on the caller's thread. */
#include "colocate/job/config_tree.h"

#include "runtime/assert.h"
#include "runtime/error.h"

#include <yaml.h>

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- nodes ------------------------------------------------------------------------------ */

struct tdm__config_node *tdm__config_node_add(struct tdm__config_node *parent,
                                              enum tdm__config_node_kind kind, const char *key,
                                              size_t key_bytes)
{
    struct tdm__config_node *node = calloc(1, sizeof(*node));

    if (node == NULL) {
        return NULL;
    }
    if (key != NULL) {
        node->key = strndup(key, key_bytes);
        if (node->key == NULL) {
            free(node);
            return NULL;
        }
    }
    if (parent->kind == TDM__CONFIG_NODE_NULL) {
        parent->kind = kind;
    }
    TDM_ASSERT(parent->kind == kind && (kind == TDM__CONFIG_NODE_MAP) == (key != NULL));
    if (parent->last_child == NULL) {
        parent->first_child = node;
    } else {
        parent->last_child->next = node;
    }
    parent->last_child = node;
    parent->children_count++;
    return node;
}

/* Frees what a node owns, but not the node. */
static void node_clear_value(struct tdm__config_node *node)
{
    struct tdm__config_node *child = node->first_child;

    while (child != NULL) {
        struct tdm__config_node *next = child->next;

        tdm__config_node_destroy(child);
        child = next;
    }
    free(node->key);
    free(node->text);
}

/* The recursion is at most TDM__CONFIG_NODE_DEPTH_MAX levels deep. */
void tdm__config_node_destroy(struct tdm__config_node *node)
{
    if (node != NULL) {
        node_clear_value(node);
        free(node);
    }
}

void tdm__config_node_replace(struct tdm__config_node *node, struct tdm__config_node *value)
{
    char *key = node->key;
    struct tdm__config_node *next = node->next;

    TDM_ASSERT(value->key == NULL && value->next == NULL);
    node->key = NULL;
    node_clear_value(node);
    *node = *value;
    node->key = key;
    node->next = next;
    free(value);
}

uint32_t tdm__config_node_depth(const struct tdm__config_node *node)
{
    uint32_t depth = 0;

    for (const struct tdm__config_node *child = node->first_child; child != NULL;
         child = child->next) {
        uint32_t child_depth = tdm__config_node_depth(child) + 1;

        depth = child_depth > depth ? child_depth : depth;
    }
    return depth;
}

/* ---- scalars ---------------------------------------------------------------------------- */

/* Returns whether the text is one of three words. */
static bool is_one_of(const char *text, const char *const words[3])
{
    return strcmp(text, words[0]) == 0 || strcmp(text, words[1]) == 0 ||
           strcmp(text, words[2]) == 0;
}

/* Returns the base of an integer in YAML's core schema: 8, 10 or 16; 0 if the text is not an
 * integer. */
static int integer_base(const char *text)
{
    const char *digits = text + (text[0] == '+' || text[0] == '-');

    if (strncmp(text, "0x", 2) == 0 && text[2] != '\0' &&
        strspn(text + 2, "0123456789abcdefABCDEF") == strlen(text + 2)) {
        return 16;
    }
    if (strncmp(text, "0o", 2) == 0 && text[2] != '\0' &&
        strspn(text + 2, "01234567") == strlen(text + 2)) {
        return 8;
    }
    return digits[0] != '\0' && strspn(digits, "0123456789") == strlen(digits) ? 10 : 0;
}

/* Returns whether the text is a number of YAML's core schema: [-+]? ( \. [0-9]+ | [0-9]+ ( \.
 * [0-9]* )? ) ( [eE] [-+]? [0-9]+ )? */
static bool is_number(const char *text)
{
    const char *c = text + (text[0] == '+' || text[0] == '-');
    size_t whole = strspn(c, "0123456789");
    size_t fraction = 0;

    c += whole;
    if (*c == '.') {
        fraction = strspn(++c, "0123456789");
        c += fraction;
    }
    if (whole + fraction == 0) {
        return false;
    }
    if (*c == 'e' || *c == 'E') {
        c++;
        c += *c == '+' || *c == '-';
        if (*c == '\0') {
            return false;
        }
        c += strspn(c, "0123456789");
    }
    return *c == '\0';
}

/* Returns whether the text is one of YAML's words for infinity or NaN. */
static bool is_infinite_or_nan(const char *text)
{
    static const char *const infinite[3] = {".inf", ".Inf", ".INF"};
    static const char *const nan[3] = {".nan", ".NaN", ".NAN"};

    return is_one_of(text + (text[0] == '+' || text[0] == '-'), infinite) || is_one_of(text, nan);
}

/* ---- reading ---------------------------------------------------------------------------- */

/* A YAML parser with its current event. It lives on the stack of tdm__config_tree_parse(). */
struct reader {
    /* Owned parser of libyaml. */
    yaml_parser_t parser;
    /* Owned current event. */
    yaml_event_t event;
    /* Borrowed name of the file, for messages. */
    const char *name;
};

/* Returns the line of the current event, from 1. */
static uint32_t event_line(const struct reader *reader)
{
    return (uint32_t)reader->event.start_mark.line + 1;
}

/* Replaces the current event by the next one. Fails with the parser's message and line. */
static tdm_status parser_advance(struct reader *reader)
{
    const yaml_parser_t *parser = &reader->parser;
    size_t line;

    yaml_event_delete(&reader->event);
    memset(&reader->event, 0, sizeof(reader->event));
    if (yaml_parser_parse(&reader->parser, &reader->event) != 0) {
        return TDM_OK;
    }
    if (parser->error == YAML_MEMORY_ERROR) {
        return tdm__fail(TDM_E_NOMEM, "%s", reader->name);
    }
    line = parser->error == YAML_READER_ERROR ? parser->mark.line : parser->problem_mark.line;
    return tdm__fail(TDM_E_PROTOCOL, "%s:%zu: %s%s%s", reader->name, line + 1,
                     parser->context == NULL ? "" : parser->context,
                     parser->context == NULL ? "" : ": ",
                     parser->problem == NULL ? "not YAML" : parser->problem);
}

/* Fails with TDM_E_PROTOCOL and a message that names the line of the current event. */
__attribute__((format(printf, 2, 3))) static tdm_status fail_at_event(const struct reader *reader,
                                                                      const char *format, ...)
{
    char text[256];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return tdm__fail(TDM_E_PROTOCOL, "%s:%u: %s", reader->name, event_line(reader), text);
}

/* Stores a whole number of the given base in the node; fails if it does not fit into 64 bits. */
static tdm_status read_integer(const struct reader *reader, const char *text, int base,
                               struct tdm__config_node *node)
{
    errno = 0;
    node->integer = strtoll(base == 8 ? text + 2 : text, NULL, base);
    if (errno != 0) {
        return fail_at_event(reader, "%.40s does not fit into 64 bits", text);
    }
    node->kind = TDM__CONFIG_NODE_INT;
    return TDM_OK;
}

/* Stores a floating-point number in the node; fails if it is not finite. */
static tdm_status read_number(const struct reader *reader, const char *text,
                              struct tdm__config_node *node)
{
    node->number = strtod(text, NULL);
    if (!isfinite(node->number)) {
        return fail_at_event(reader, "%.40s is not a finite number", text);
    }
    node->kind = TDM__CONFIG_NODE_DOUBLE;
    return TDM_OK;
}

/* Types a scalar without quotes by YAML 1.2's core schema. A null leaves the node without a
 * value. */
static tdm_status read_plain(const struct reader *reader, const char *text,
                             struct tdm__config_node *node)
{
    static const char *const nothing[3] = {"null", "Null", "NULL"};
    static const char *const yes[3] = {"true", "True", "TRUE"};
    static const char *const no[3] = {"false", "False", "FALSE"};
    int base = integer_base(text);

    if (text[0] == '\0' || strcmp(text, "~") == 0 || is_one_of(text, nothing)) {
        return TDM_OK;
    }
    if (is_one_of(text, yes) || is_one_of(text, no)) {
        node->kind = TDM__CONFIG_NODE_BOOL;
        node->boolean = is_one_of(text, yes);
        return TDM_OK;
    }
    if (base != 0) {
        return read_integer(reader, text, base, node);
    }
    if (is_infinite_or_nan(text)) {
        return fail_at_event(reader, "%s: numbers must be finite", text);
    }
    if (is_number(text)) {
        return read_number(reader, text, node);
    }
    node->kind = TDM__CONFIG_NODE_STRING;
    return TDM_OK;
}

/* Fails if the scalar contains a NUL. */
static tdm_status check_scalar(const struct reader *reader)
{
    const char *text = (const char *)reader->event.data.scalar.value;

    if (strlen(text) != reader->event.data.scalar.length) {
        return fail_at_event(reader, "a NUL inside of a text");
    }
    return TDM_OK;
}

/* Stores the scalar of the current event in the node. */
static tdm_status read_scalar(const struct reader *reader, struct tdm__config_node *node)
{
    const char *text = (const char *)reader->event.data.scalar.value;

    TDM_TRY(check_scalar(reader));
    if (reader->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
        TDM_TRY(read_plain(reader, text, node));
    } else {
        node->kind = TDM__CONFIG_NODE_STRING;
    }
    if (node->kind == TDM__CONFIG_NODE_STRING) {
        node->text = strdup(text);
        if (node->text == NULL) {
            return tdm__fail(TDM_E_NOMEM, "%s", reader->name);
        }
    }
    return TDM_OK;
}

/* Fails if the current event has an anchor, an alias or a tag. They make a file mean more than
 * it shows, and settings need none. */
static tdm_status check_plainness(const struct reader *reader)
{
    const yaml_event_t *event = &reader->event;
    const yaml_char_t *anchor = NULL;
    const yaml_char_t *tag = NULL;

    if (event->type == YAML_SCALAR_EVENT) {
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
    } else if (event->type == YAML_MAPPING_START_EVENT) {
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
    } else if (event->type == YAML_ALIAS_EVENT) {
        anchor = event->data.alias.anchor;
    }
    if (anchor != NULL) {
        return fail_at_event(reader, "anchors and aliases are not understood: \"%.64s\"",
                             (const char *)anchor);
    }
    if (tag != NULL) {
        return fail_at_event(reader, "tags are not understood: \"%.64s\"", (const char *)tag);
    }
    return TDM_OK;
}

/* Adds a child for the key of the current event. The child gets the line of the key. */
static tdm_status read_key(struct reader *reader, struct tdm__config_node *map,
                           struct tdm__config_node **child_out)
{
    const char *key;

    TDM_TRY(check_plainness(reader));
    if (reader->event.type != YAML_SCALAR_EVENT) {
        return fail_at_event(reader, "a key must be a text");
    }
    TDM_TRY(check_scalar(reader));
    key = (const char *)reader->event.data.scalar.value;
    if (strlen(key) > TDM__CONFIG_NODE_KEY_BYTES_MAX) {
        return fail_at_event(reader, "a key of %zu bytes, the limit is %d", strlen(key),
                             TDM__CONFIG_NODE_KEY_BYTES_MAX);
    }
    if (strcmp(key, "<<") == 0 && reader->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
        return fail_at_event(reader, "merge keys (<<) are not understood");
    }
    *child_out = tdm__config_node_add(map, TDM__CONFIG_NODE_MAP, key, strlen(key));
    if (*child_out == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%s", reader->name);
    }
    (*child_out)->line = event_line(reader);
    return TDM_OK;
}

/* Orders nodes by key, then by line; for qsort(). */
static int compare_keys(const void *a, const void *b)
{
    const struct tdm__config_node *first = *(const struct tdm__config_node *const *)a;
    const struct tdm__config_node *second = *(const struct tdm__config_node *const *)b;
    int order = strcmp(first->key, second->key);

    if (order != 0) {
        return order;
    }
    return first->line < second->line ? -1 : first->line > second->line;
}

/* Fails if a key occurs twice in the map. It sorts the keys, because a hostile map may have
 * 100,000 of them. */
static tdm_status check_duplicates(const struct reader *reader, const struct tdm__config_node *map)
{
    const struct tdm__config_node **sorted;
    tdm_status status = TDM_OK;
    uint32_t count = 0;

    sorted = calloc(map->children_count + 1U, sizeof(const struct tdm__config_node *));
    if (sorted == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%s", reader->name);
    }
    for (const struct tdm__config_node *child = map->first_child; child != NULL;
         child = child->next) {
        sorted[count++] = child;
    }
    qsort((void *)sorted, count, sizeof(const struct tdm__config_node *), compare_keys);
    for (uint32_t i = 1; i < count && status == TDM_OK; i++) {
        if (strcmp(sorted[i - 1]->key, sorted[i]->key) == 0) {
            status = tdm__fail(TDM_E_PROTOCOL, "%s:%u: \"%s\" is already set on line %u",
                               reader->name, sorted[i]->line, sorted[i]->key, sorted[i - 1]->line);
        }
    }
    free((void *)sorted);
    return status;
}

/* Reads the value that begins with the current event. On return the current event is the value's
 * last one. `depth` is the number of lists and maps around it. */
static tdm_status read_value(struct reader *reader, struct tdm__config_node *node, uint32_t depth);

/* Reads the elements of a list up to its end event. */
static tdm_status read_list(struct reader *reader, struct tdm__config_node *list, uint32_t depth)
{
    list->kind = TDM__CONFIG_NODE_LIST;
    TDM_TRY(parser_advance(reader));
    while (reader->event.type != YAML_SEQUENCE_END_EVENT) {
        struct tdm__config_node *child = tdm__config_node_add(list, TDM__CONFIG_NODE_LIST, NULL, 0);

        if (child == NULL) {
            return tdm__fail(TDM_E_NOMEM, "%s", reader->name);
        }
        child->line = event_line(reader);
        TDM_TRY(read_value(reader, child, depth));
        TDM_TRY(parser_advance(reader));
    }
    return TDM_OK;
}

/* Reads the keys and values of a map up to its end event. */
static tdm_status read_map(struct reader *reader, struct tdm__config_node *map, uint32_t depth)
{
    map->kind = TDM__CONFIG_NODE_MAP;
    TDM_TRY(parser_advance(reader));
    while (reader->event.type != YAML_MAPPING_END_EVENT) {
        struct tdm__config_node *child = NULL;

        TDM_TRY(read_key(reader, map, &child));
        TDM_TRY(parser_advance(reader));
        TDM_TRY(read_value(reader, child, depth));
        TDM_TRY(parser_advance(reader));
    }
    return check_duplicates(reader, map);
}

static tdm_status read_value(struct reader *reader, struct tdm__config_node *node, uint32_t depth)
{
    TDM_TRY(check_plainness(reader));
    if (reader->event.type == YAML_SCALAR_EVENT) {
        return read_scalar(reader, node);
    }
    if (depth == TDM__CONFIG_NODE_DEPTH_MAX) {
        return fail_at_event(reader, "nests over %d levels", TDM__CONFIG_NODE_DEPTH_MAX);
    }
    if (reader->event.type == YAML_SEQUENCE_START_EVENT) {
        return read_list(reader, node, depth + 1);
    }
    TDM_ASSERT(reader->event.type == YAML_MAPPING_START_EVENT);
    return read_map(reader, node, depth + 1);
}

/* Reads the one document of the stream into the root. */
static tdm_status read_stream(struct reader *reader, struct tdm__config_node *root)
{
    TDM_TRY(parser_advance(reader)); /* Skips the start of the stream. */
    TDM_TRY(parser_advance(reader));
    if (reader->event.type == YAML_STREAM_END_EVENT) {
        return TDM_OK; /* The file is empty. */
    }
    TDM_TRY(parser_advance(reader)); /* Skips the start of the document. */
    root->line = event_line(reader);
    TDM_TRY(read_value(reader, root, 0));
    TDM_TRY(parser_advance(reader)); /* Skips the end of the document. */
    TDM_TRY(parser_advance(reader));
    if (reader->event.type != YAML_STREAM_END_EVENT) {
        return fail_at_event(reader, "a second document begins");
    }
    return TDM_OK;
}

tdm_status tdm__config_tree_parse(const char *text, size_t size_bytes, const char *name,
                                  struct tdm__config_node **root_out)
{
    struct reader reader = {.name = name};
    struct tdm__config_node *root = calloc(1, sizeof(*root));
    tdm_status status;

    if (root == NULL || yaml_parser_initialize(&reader.parser) == 0) {
        free(root);
        return tdm__fail(TDM_E_NOMEM, "%s", name);
    }
    root->line = 1;
    yaml_parser_set_encoding(&reader.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, size_bytes);
    status = read_stream(&reader, root);
    yaml_event_delete(&reader.event);
    yaml_parser_delete(&reader.parser);
    if (status != TDM_OK) {
        tdm__config_node_destroy(root);
        return status;
    }
    *root_out = root;
    return TDM_OK;
}

/* ---- writing ---------------------------------------------------------------------------- */

/* State of the JSON output. */
struct writer {
    /* Owned memory stream. */
    FILE *stream;
    /* Line that the output has reached, from 1. */
    uint32_t line;
};

/* Decodes one character of the UTF-8 text, which the parser has validated, and advances the
 * pointer. The text ends with NUL. */
static uint32_t next_character(const unsigned char **text)
{
    const unsigned char *c = *text;
    uint32_t bytes = c[0] < 0x80 ? 1 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : 4;
    uint32_t value = bytes == 1 ? c[0] : c[0] & (0xffU >> (bytes + 1));

    for (uint32_t i = 1; i < bytes; i++) {
        value = value << 6 | (c[i] & 0x3fU);
    }
    *text += bytes;
    return value;
}

/* Writes a JSON string that YAML parsers read identically. All characters of the basic plane
 * beyond ASCII are escaped, because YAML folds or rejects some of them. Those above it are
 * written as they are. */
static void write_text(const struct writer *writer, const char *text)
{
    const unsigned char *next = (const unsigned char *)text;

    (void)fputc('"', writer->stream);
    while (*next != '\0') {
        const unsigned char *begin = next;
        uint32_t character = next_character(&next);

        if (character == '"' || character == '\\') {
            (void)fprintf(writer->stream, "\\%c", (int)character);
        } else if (character < 0x20 || (character > 0x7e && character < 0x10000)) {
            (void)fprintf(writer->stream, "\\u%04x", character);
        } else {
            (void)fwrite(begin, 1, (size_t)(next - begin), writer->stream);
        }
    }
    (void)fputc('"', writer->stream);
}

/* Writes a number with 17 digits, so that it parses to the same double. ".0" is appended if it
 * would otherwise parse as an integer. */
static void write_number(const struct writer *writer, double number)
{
    char text[40];

    (void)snprintf(text, sizeof(text), "%.17g", number);
    (void)fprintf(writer->stream, "%s%s", text, strpbrk(text, ".e") == NULL ? ".0" : "");
}

/* Writes the value of a node. */
static void write_node(struct writer *writer, const struct tdm__config_node *node);

/* Writes the elements of a list or map, each on its original line. */
static void write_children(struct writer *writer, const struct tdm__config_node *node)
{
    bool is_map = node->kind == TDM__CONFIG_NODE_MAP;

    (void)fputc(is_map ? '{' : '[', writer->stream);
    for (const struct tdm__config_node *child = node->first_child; child != NULL;
         child = child->next) {
        for (; writer->line < child->line; writer->line++) {
            (void)fputc('\n', writer->stream);
        }
        if (is_map) {
            write_text(writer, child->key);
            (void)fputs(": ", writer->stream);
        }
        write_node(writer, child);
        if (child->next != NULL) {
            (void)fputs(", ", writer->stream);
        }
    }
    (void)fputc(is_map ? '}' : ']', writer->stream);
}

static void write_node(struct writer *writer, const struct tdm__config_node *node)
{
    switch (node->kind) {
    case TDM__CONFIG_NODE_NULL:
        (void)fputs("null", writer->stream);
        break;
    case TDM__CONFIG_NODE_BOOL:
        (void)fputs(node->boolean ? "true" : "false", writer->stream);
        break;
    case TDM__CONFIG_NODE_INT:
        (void)fprintf(writer->stream, "%lld", (long long)node->integer);
        break;
    case TDM__CONFIG_NODE_DOUBLE:
        write_number(writer, node->number);
        break;
    case TDM__CONFIG_NODE_STRING:
        write_text(writer, node->text);
        break;
    case TDM__CONFIG_NODE_LIST:
    case TDM__CONFIG_NODE_MAP:
        write_children(writer, node);
        break;
    }
}

tdm_status tdm__config_tree_json(const struct tdm__config_node *root, char **text_out)
{
    struct writer writer = {.line = 1};
    size_t size_bytes = 0;
    char *text = NULL;

    writer.stream = open_memstream(&text, &size_bytes);
    if (writer.stream == NULL) {
        return tdm__fail(TDM_E_NOMEM, "JSON of the settings");
    }
    write_node(&writer, root);
    if (fclose(writer.stream) != 0) {
        free(text);
        return tdm__fail(TDM_E_NOMEM, "JSON of the settings");
    }
    *text_out = text;
    return TDM_OK;
}
