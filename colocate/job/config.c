/* config.c - looks up and overrides settings of a configuration, and says on which line each one
 * is. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration owns a tree of nodes (config_tree.h). Paths such as "rollout.temperature" name
 * a node; elements of lists are named by their index. Every node remembers its line, so that
 * errors point to the file, or to the command line for overrides.
 * Look-ups return the default if the path is missing or null, and TDM_E_TYPE if the value has
 * another type. A configuration is not locked: one thread uses it at a time. */
#include <tandem/config.h>

#include "colocate/job/config_tree.h"
#include "runtime/error.h"
#include "runtime/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A parsed configuration. The caller that created it owns it. */
struct tdm_config {
    /* Owned root of the tree. */
    struct tdm__config_node *root;
    /* Owned name of the file, for messages. */
    char *name;
    /* Owned buffer of WHERE_BYTES with the last result of tdm_config_where(). */
    char *where;
};

/* Largest file, and the size of the buffer for a location, in bytes. */
enum { FILE_BYTES_MAX = 1 << 20, WHERE_BYTES = 512 };

/* ---- making ----------------------------------------------------------------------------- */

tdm_status tdm_config_parse(const char *text, size_t size_bytes, const char *name,
                            tdm_config **config_out)
{
    TDM__REQUIRE(config_out);
    *config_out = NULL;
    TDM__REQUIRE(text);
    TDM__REQUIRE(name);

    struct tdm__config_node *root = NULL;
    tdm_config *config;

    if (size_bytes > FILE_BYTES_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "%s: %zu bytes, the limit is %d", name, size_bytes,
                         FILE_BYTES_MAX);
    }
    TDM_TRY(tdm__config_tree_parse(text, size_bytes, name, &root));
    config = calloc(1, sizeof(*config));
    if (config == NULL) {
        tdm__config_node_destroy(root);
        return tdm__fail(TDM_E_NOMEM, "%s", name);
    }
    config->root = root;
    config->name = strdup(name);
    config->where = calloc(1, WHERE_BYTES);
    if (config->name == NULL || config->where == NULL) {
        tdm_config_destroy(config);
        return tdm__fail(TDM_E_NOMEM, "%s", name);
    }
    *config_out = config;
    return TDM_OK;
}

tdm_status tdm_config_read(const char *path, tdm_config **config_out)
{
    TDM__REQUIRE(config_out);
    *config_out = NULL;
    TDM__REQUIRE(path);

    size_t size_bytes = 0;
    tdm_status status;
    char *text = NULL;

    status = tdm__file_read(path, FILE_BYTES_MAX, &text, &size_bytes);
    if (status == TDM_E_LIMIT) { /* A file of this size is not a job file. */
        return TDM_E_PROTOCOL;
    }
    TDM_TRY(status);
    status = tdm_config_parse(text, size_bytes, path, config_out);
    free(text);
    return status;
}

void tdm_config_destroy(tdm_config *config)
{
    if (config == NULL) {
        return;
    }
    tdm__config_node_destroy(config->root);
    free(config->name);
    free(config->where);
    free(config);
}

/* ---- finding ---------------------------------------------------------------------------- */

/* Returns the child that the first part of `path` names: by index in a list, by key in a map.
 * Keys may contain dots. `*rest_out` is the rest of the path, NULL at its end. Returns NULL if
 * there is no such child. */
static struct tdm__config_node *find_child(const struct tdm__config_node *parent, const char *path,
                                           const char **rest_out)
{
    uint32_t index = 0;

    for (struct tdm__config_node *child = parent->first_child; child != NULL; child = child->next) {
        char digits[16];
        const char *head = child->key;
        size_t head_bytes;

        if (parent->kind == TDM__CONFIG_NODE_LIST) {
            (void)snprintf(digits, sizeof(digits), "%u", index++);
            head = digits;
        }
        head_bytes = strlen(head);
        if (strncmp(path, head, head_bytes) == 0 &&
            (path[head_bytes] == '.' || path[head_bytes] == '\0')) {
            *rest_out = path[head_bytes] == '.' ? path + head_bytes + 1 : NULL;
            return child;
        }
    }
    return NULL;
}

/* Returns the deepest existing node on the way to `path`. `*rest_out` is the part of the path
 * that does not exist, NULL if the whole path exists. */
static struct tdm__config_node *find_deepest(const tdm_config *config, const char *path,
                                             const char **rest_out)
{
    struct tdm__config_node *node = config->root;
    const char *rest = path[0] == '\0' ? NULL : path;

    while (rest != NULL) {
        struct tdm__config_node *child = find_child(node, rest, &rest);

        if (child == NULL) {
            break;
        }
        node = child;
    }
    *rest_out = rest;
    return node;
}

/* Returns the node at `path`; NULL if it does not exist or has no value. */
static const struct tdm__config_node *find(const tdm_config *config, const char *path)
{
    const char *rest;
    const struct tdm__config_node *node = find_deepest(config, path, &rest);

    return rest != NULL || node->kind == TDM__CONFIG_NODE_NULL ? NULL : node;
}

/* Formats the location of a node, as "file:line" or "command line". Returns `text`. */
static const char *where(const tdm_config *config, const struct tdm__config_node *node,
                         char text[WHERE_BYTES])
{
    if (node->line == TDM__CONFIG_NODE_LINE_OVERRIDE) {
        (void)snprintf(text, WHERE_BYTES, "command line");
    } else {
        (void)snprintf(text, WHERE_BYTES, "%.480s:%u", config->name, node->line);
    }
    return text;
}

/* Formats the value of a node for an error message. Returns `text` or a constant. */
static const char *describe(const struct tdm__config_node *node, char text[64])
{
    switch (node->kind) {
    case TDM__CONFIG_NODE_NULL:
        return "nothing";
    case TDM__CONFIG_NODE_BOOL:
        return node->boolean ? "true" : "false";
    case TDM__CONFIG_NODE_INT:
        (void)snprintf(text, 64, "%lld", (long long)node->integer);
        return text;
    case TDM__CONFIG_NODE_DOUBLE:
        (void)snprintf(text, 64, "%g", node->number);
        return text;
    case TDM__CONFIG_NODE_STRING:
        (void)snprintf(text, 64, "\"%.40s\"", node->text);
        return text;
    case TDM__CONFIG_NODE_LIST:
        return "a list";
    case TDM__CONFIG_NODE_MAP:
        return "a map";
    }
    return "?";
}

/* Reports that the value at `path` has the wrong type. */
static tdm_status fail_type(const tdm_config *config, const struct tdm__config_node *node,
                            const char *path, const char *wanted)
{
    char place[WHERE_BYTES];
    char value[64];

    return tdm__fail(TDM_E_TYPE, "%s: %s must be %s, got %s", where(config, node, place), path,
                     wanted, describe(node, value));
}

/* ---- looking up ------------------------------------------------------------------------- */

tdm_status tdm_config_int(const tdm_config *config, const char *path, int64_t otherwise,
                          int64_t *value_out)
{
    TDM__REQUIRE(config);
    TDM__REQUIRE(path);
    TDM__REQUIRE(value_out);

    const struct tdm__config_node *node = find(config, path);

    if (node != NULL && node->kind != TDM__CONFIG_NODE_INT) {
        return fail_type(config, node, path, "a whole number");
    }
    *value_out = node == NULL ? otherwise : node->integer;
    return TDM_OK;
}

tdm_status tdm_config_double(const tdm_config *config, const char *path, double otherwise,
                             double *value_out)
{
    TDM__REQUIRE(config);
    TDM__REQUIRE(path);
    TDM__REQUIRE(value_out);

    const struct tdm__config_node *node = find(config, path);

    if (node == NULL) {
        *value_out = otherwise;
    } else if (node->kind == TDM__CONFIG_NODE_INT) {
        *value_out = (double)node->integer;
    } else if (node->kind == TDM__CONFIG_NODE_DOUBLE) {
        *value_out = node->number;
    } else {
        return fail_type(config, node, path, "a number");
    }
    return TDM_OK;
}

tdm_status tdm_config_bool(const tdm_config *config, const char *path, int otherwise,
                           int *value_out)
{
    TDM__REQUIRE(config);
    TDM__REQUIRE(path);
    TDM__REQUIRE(value_out);

    const struct tdm__config_node *node = find(config, path);

    if (node != NULL && node->kind != TDM__CONFIG_NODE_BOOL) {
        return fail_type(config, node, path, "true or false");
    }
    *value_out = node == NULL ? otherwise : node->boolean;
    return TDM_OK;
}

tdm_status tdm_config_string(const tdm_config *config, const char *path, const char *otherwise,
                             const char **value_out)
{
    TDM__REQUIRE(config);
    TDM__REQUIRE(path);
    TDM__REQUIRE(value_out);

    const struct tdm__config_node *node = find(config, path);

    if (node != NULL && node->kind != TDM__CONFIG_NODE_STRING) {
        return fail_type(config, node, path, "text");
    }
    *value_out = node == NULL ? otherwise : node->text;
    return TDM_OK;
}

int tdm_config_has(const tdm_config *config, const char *path)
{
    TDM__REQUIRE_OR(config, 0);
    TDM__REQUIRE_OR(path, 0);

    return find(config, path) != NULL;
}

uint32_t tdm_config_count(const tdm_config *config, const char *path)
{
    TDM__REQUIRE_OR(config, 0);
    TDM__REQUIRE_OR(path, 0);

    const struct tdm__config_node *node = find(config, path);

    return node == NULL ? 0 : node->children_count;
}

const char *tdm_config_key(const tdm_config *config, const char *path, uint32_t index)
{
    TDM__REQUIRE_OR(config, NULL);
    TDM__REQUIRE_OR(path, NULL);

    const struct tdm__config_node *node = find(config, path);
    const struct tdm__config_node *child;

    if (node == NULL || node->kind != TDM__CONFIG_NODE_MAP) {
        return NULL;
    }
    child = node->first_child;
    while (child != NULL && index-- > 0) {
        child = child->next;
    }
    return child == NULL ? NULL : child->key;
}

const char *tdm_config_where(const tdm_config *config, const char *path)
{
    TDM__REQUIRE_OR(config, "");
    TDM__REQUIRE_OR(path, "");

    const char *rest;

    return where(config, find_deepest(config, path, &rest), config->where);
}

tdm_status tdm_config_json(const tdm_config *config, char **text_out)
{
    TDM__REQUIRE(text_out);
    *text_out = NULL;
    TDM__REQUIRE(config);

    return tdm__config_tree_json(config->root, text_out);
}

/* ---- overriding ------------------------------------------------------------------------- */

/* Marks a node and all below it as set by the command line. */
static void mark_overridden(struct tdm__config_node *node)
{
    node->line = TDM__CONFIG_NODE_LINE_OVERRIDE;
    for (struct tdm__config_node *child = node->first_child; child != NULL; child = child->next) {
        mark_overridden(child);
    }
}

/* Checks that an override does not nest too deeply and does not replace a value that is not a
 * map by a map. */
static tdm_status check_assignment(const tdm_config *config, const char *path,
                                   const struct tdm__config_node *value)
{
    char place[WHERE_BYTES];
    uint32_t depth = tdm__config_node_depth(value) + 1;
    const struct tdm__config_node *node;
    const char *rest;

    for (const char *c = path; *c != '\0'; c++) {
        depth += *c == '.';
        if (*c == '.' && (c == path || c[1] == '.' || c[1] == '\0')) {
            return tdm__fail(TDM_E_INVAL, "\"%s\": a name between its dots is empty", path);
        }
    }
    if (depth > TDM__CONFIG_NODE_DEPTH_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "command line: %s nests over %d levels", path,
                         TDM__CONFIG_NODE_DEPTH_MAX);
    }
    node = find_deepest(config, path, &rest);
    if (rest != NULL && node->kind != TDM__CONFIG_NODE_MAP && node->kind != TDM__CONFIG_NODE_NULL) {
        return tdm__fail(TDM_E_TYPE, "command line: %s cannot be set: %s is not a map", path,
                         where(config, node, place));
    }
    return TDM_OK;
}

/* Puts `value` at `path`, creating the maps on the way. The tree takes ownership of `value` only
 * on TDM_OK. */
static tdm_status assign_override(tdm_config *config, const char *path,
                                  struct tdm__config_node *value)
{
    struct tdm__config_node *node;
    const char *rest;

    TDM_TRY(check_assignment(config, path, value));
    node = find_deepest(config, path, &rest);
    while (rest != NULL) {
        size_t key_bytes = strcspn(rest, ".");

        node = tdm__config_node_add(node, TDM__CONFIG_NODE_MAP, rest, key_bytes);
        if (node == NULL) {
            return tdm__fail(TDM_E_NOMEM, "command line: %s", path);
        }
        rest = rest[key_bytes] == '.' ? rest + key_bytes + 1 : NULL;
    }
    tdm__config_node_replace(node, value);
    mark_overridden(node);
    return TDM_OK;
}

tdm_status tdm_config_override(tdm_config *config, const char *assignment)
{
    TDM__REQUIRE(config);
    TDM__REQUIRE(assignment);

    const char *equals = strchr(assignment, '=');
    struct tdm__config_node *value = NULL;
    tdm_status status;
    char *path;

    if (equals == NULL || equals == assignment) {
        return tdm__fail(TDM_E_INVAL, "\"%s\" must have the form key=value", assignment);
    }
    TDM_TRY(tdm__config_tree_parse(equals + 1, strlen(equals + 1), "command line", &value));
    path = strndup(assignment, (size_t)(equals - assignment));
    status = path == NULL ? tdm__fail(TDM_E_NOMEM, "command line")
                          : assign_override(config, path, value);
    if (status != TDM_OK) {
        tdm__config_node_destroy(value);
    }
    free(path);
    return status;
}
