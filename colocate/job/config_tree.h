/* config_tree.h - the nodes behind a config: made from YAML, written as JSON. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_CONFIG_TREE_H
#define TDM_COLOCATE_JOB_CONFIG_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tandem/error.h>

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
    TDM__CONFIG_NODE_DEPTH_MAX = 16,
    TDM__CONFIG_NODE_KEY_BYTES_MAX = 128, /* YAML reads a longer key only in its long form */
    TDM__CONFIG_NODE_LINE_OVERRIDE = 0    /* the line of what the command line set */
};

/* A value, its children in the order of the file. */
struct tdm__config_node {
    enum tdm__config_node_kind kind;
    uint32_t line; /* of the key where it has one */
    uint32_t children_count;
    bool boolean;
    int64_t integer;
    double number;
    char *key;                            /* owned; NULL in a list and at the root */
    char *text;                           /* owned; of a string */
    struct tdm__config_node *first_child; /* owned */
    struct tdm__config_node *last_child;
    struct tdm__config_node *next; /* owned by the parent */
};

/* Reads one document; every node's memory and the messages' lines come from `text`. */
tdm_status tdm__config_tree_parse(const char *text, size_t size_bytes, const char *name,
                                  struct tdm__config_node **root_out);
/* JSON in which every value stands on its own line number: parsed again, elsewhere, the tree
 * names the same lines.  free() the text. */
tdm_status tdm__config_tree_json(const struct tdm__config_node *root, char **text_out);

/* A new last child without a value; a `parent` without one becomes a `kind`.  NULL without
 * memory.  `key` may be NULL. */
struct tdm__config_node *tdm__config_node_add(struct tdm__config_node *parent,
                                              enum tdm__config_node_kind kind, const char *key,
                                              size_t key_bytes);
/* `node` keeps its key and gets the value of `value`, which is freed. */
void tdm__config_node_replace(struct tdm__config_node *node, struct tdm__config_node *value);
uint32_t tdm__config_node_depth(const struct tdm__config_node *node); /* levels below it */
void tdm__config_node_destroy(struct tdm__config_node *node);         /* NULL is allowed */

#endif
