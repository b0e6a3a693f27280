/* config_tree_test.c - nodes keep their order, keys and lines through every change. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/config_tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct tdm__config_node *parse(const char *text)
{
    struct tdm__config_node *root = NULL;

    assert_int_equal(tdm__config_tree_parse(text, strlen(text), "x", &root), TDM_OK);
    return root;
}

static void children_stand_in_the_order_of_the_file(void **state)
{
    struct tdm__config_node *root = parse("b: 1\na: [x]\n");

    (void)state;
    assert_int_equal(root->kind, TDM__CONFIG_NODE_MAP);
    assert_int_equal(root->children_count, 2);
    assert_string_equal(root->first_child->key, "b");
    assert_string_equal(root->last_child->key, "a");
    assert_int_equal(root->last_child->line, 2);
    assert_int_equal(tdm__config_node_depth(root), 2);
    tdm__config_node_destroy(root);
    tdm__config_node_destroy(NULL);
}

static void replaced_node_keeps_its_key_and_place(void **state)
{
    struct tdm__config_node *root = parse("a: {deep: {er: 1}}\nb: 2\n");

    (void)state;
    tdm__config_node_replace(root->first_child, parse("text"));
    assert_string_equal(root->first_child->key, "a");
    assert_string_equal(root->first_child->text, "text");
    assert_string_equal(root->first_child->next->key, "b");
    assert_int_equal(tdm__config_node_depth(root), 1);
    tdm__config_node_destroy(root);
}

static void node_without_value_becomes_what_is_put_in(void **state)
{
    struct tdm__config_node *root = parse("");
    struct tdm__config_node *child =
        tdm__config_node_add(root, TDM__CONFIG_NODE_MAP, "key.rest", 3);

    (void)state;
    assert_non_null(child);
    assert_int_equal(root->kind, TDM__CONFIG_NODE_MAP);
    assert_string_equal(child->key, "key");
    assert_int_equal(child->kind, TDM__CONFIG_NODE_NULL);
    tdm__config_node_destroy(root);
}

static void json_puts_every_value_on_its_line(void **state)
{
    struct tdm__config_node *root = parse("a: 1\n\nb: [2,\n  x]\n");
    char *text = NULL;

    (void)state;
    assert_int_equal(tdm__config_tree_json(root, &text), TDM_OK);
    assert_string_equal(text, "{\"a\": 1, \n\n\"b\": [2, \n\"x\"]}");
    free(text);
    tdm__config_node_destroy(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(children_stand_in_the_order_of_the_file),
        cmocka_unit_test(replaced_node_keeps_its_key_and_place),
        cmocka_unit_test(node_without_value_becomes_what_is_put_in),
        cmocka_unit_test(json_puts_every_value_on_its_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
