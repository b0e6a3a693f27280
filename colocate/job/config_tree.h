/* config_tree.h - the tree behind a configuration: parsed from YAML, written as JSON. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_CONFIG_TREE_H
#define TDM_COLOCATE_JOB_CONFIG_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tandem/error.h>

/* The type of the value of a node, as YAML's core schema resolves it. */
enum tdm__config_node_kind {
    TDM__CONFIG_NODE_NULL,
    TDM__CONFIG_NODE_BOOL,
    TDM__CONFIG_NODE_INT,
    TDM__CONFIG_NODE_DOUBLE,
    TDM__CONFIG_NODE_STRING,
    TDM__CONFIG_NODE_LIST,
    TDM__CONFIG_NODE_MAP
};

enum {
    /* Greatest number of nested lists and maps. */
    TDM__CONFIG_NODE_DEPTH_MAX = 16,
    /* Longest key in bytes; libyaml reads a longer key only in its explicit form. */
    TDM__CONFIG_NODE_KEY_BYTES_MAX = 128,
    /* Value of `line` in nodes that the command line set. */
    TDM__CONFIG_NODE_LINE_OVERRIDE = 0
};

/* One value of the configuration. Its children are a linked list in the order of the file. A
 * tree belongs to one tdm_config and is used by one thread at a time. */
struct tdm__config_node {
    /* Type of the value; it decides which of the value fields below is set. */
    enum tdm__config_node_kind kind;
    /* Line of the file, from 1, on which the key stands, or the value if there is no key. */
    uint32_t line;
    /* Number of children of a list or map. */
    uint32_t children_count;
    /* The value of a node of kind BOOL. */
    bool boolean;
    /* The value of a node of kind INT. */
    int64_t integer;
    /* The value of a node of kind DOUBLE. */
    double number;
    /* Owned key in the parent map; NULL in a list and at the root. */
    char *key;
    /* Owned value of a node of kind STRING; NULL otherwise. */
    char *text;
    /* Owned first element of a list or map; NULL if it is empty. */
    struct tdm__config_node *first_child;
    /* Borrowed last element, for appending; NULL if it does not exist. */
    struct tdm__config_node *last_child;
    /* Next child of the same parent, which owns it; NULL in the last child. */
    struct tdm__config_node *next;
};

/* Parses one YAML document into a new tree. `name` stands before the line number in error
 * messages. The tree does not refer to `text`. Free it with tdm__config_node_destroy(). */
tdm_status tdm__config_tree_parse(const char *text, size_t size_bytes, const char *name,
                                  struct tdm__config_node **root_out);
/* Writes the tree as JSON in which every value stands on its original line. A process that
 * parses the JSON therefore reports the same line numbers. The caller frees the text with
 * free(). */
tdm_status tdm__config_tree_json(const struct tdm__config_node *root, char **text_out);

/* Appends a new child without a value to `parent` and returns it; NULL if memory is exhausted. A
 * `parent` without a value becomes a node of `kind`. `key` has `key_bytes` bytes; it is NULL for
 * an element of a list. */
struct tdm__config_node *tdm__config_node_add(struct tdm__config_node *parent,
                                              enum tdm__config_node_kind kind, const char *key,
                                              size_t key_bytes);
/* Moves the contents of `value` into `node`, which keeps its key and position, and frees
 * `value`. */
void tdm__config_node_replace(struct tdm__config_node *node, struct tdm__config_node *value);
/* Returns the number of levels below the node. */
uint32_t tdm__config_node_depth(const struct tdm__config_node *node);
/* Frees the node and everything below it. NULL is allowed. */
void tdm__config_node_destroy(struct tdm__config_node *node); /* NULL is allowed */

#endif
