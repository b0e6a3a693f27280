/* started_node_test.c - addresses as users write them lead to the node that was started here. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/process/started_node.h"

#include "runtime/directory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char parent[] = "/tmp/tds-XXXXXX";
static char directory[TDM__ADDRESS_BYTES];
static char own_address[TDM__ADDRESS_BYTES + 32];

static int set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(parent));
    assert_int_equal(setenv("TMPDIR", parent, 1), 0);
    assert_int_equal(tdm__started_node_directory(directory, sizeof(directory)), TDM_OK);
    (void)snprintf(own_address, sizeof(own_address), "unix:%s/tandemd.sock", directory);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tdm__directory_remove(parent);
    return 0;
}

/* Returns the address to which `text` is translated, in a static buffer; "" after a failure. */
static const char *resolved(const char *text)
{
    static char address[TDM__ADDRESS_BYTES];

    return tdm__node_address_resolve(text, address, sizeof(address)) == TDM_OK ? address : "";
}

static void without_a_node_only_auto_fails(void **state)
{
    char address[TDM__ADDRESS_BYTES];

    (void)state;
    assert_int_equal(tdm__node_address_resolve("auto", address, sizeof(address)), TDM_E_NOT_FOUND);
    assert_non_null(strstr(tdm_error_detail(), "tandem start"));
    assert_string_equal(resolved("127.0.0.1:6379"), "tcp:127.0.0.1:6379");
    assert_string_equal(resolved("unix:/x/y.sock"), "unix:/x/y.sock");
    assert_string_equal(resolved("tcp:far:4711"), "tcp:far:4711");
    assert_string_equal(resolved("nonsense"), "nonsense");
    assert_int_equal(tdm__node_address_resolve("far:4711", address, 8), TDM_E_LIMIT);
}

static void node_has_the_addresses_of_its_cluster(void **state)
{
    struct tdm__started_node node;
    int lock;

    (void)state;
    assert_int_equal(tdm__directory_create_at(directory), TDM_OK);
    assert_int_equal(tdm__started_node_write(directory, true, "10.1.2.3:6379"), TDM_OK);
    assert_int_equal(tdm__started_node_find(&node), TDM_E_NOT_FOUND); /* No process has the lock. */
    assert_int_equal(tdm__directory_lock(directory, &lock), TDM_OK);
    assert_int_equal(tdm__started_node_find(&node), TDM_OK);
    assert_true(node.is_head);
    assert_string_equal(node.cluster_address, "10.1.2.3:6379");
    assert_string_equal(node.address, own_address);
    assert_string_equal(resolved("auto"), own_address);
    assert_string_equal(resolved("10.1.2.3:6379"), own_address);
    assert_string_equal(resolved("127.0.0.1:6379"), own_address);
    assert_string_equal(resolved("localhost:6379"), own_address);
    assert_string_equal(resolved("127.0.0.1:6380"), "tcp:127.0.0.1:6380");
    assert_string_equal(resolved("10.1.2.4:6379"), "tcp:10.1.2.4:6379");

    /* A loopback address means the head only. */
    assert_int_equal(tdm__started_node_write(directory, false, "10.1.2.3:6379"), TDM_OK);
    assert_string_equal(resolved("10.1.2.3:6379"), own_address);
    assert_string_equal(resolved("127.0.0.1:6379"), "tcp:127.0.0.1:6379");
    (void)close(lock);
    assert_int_equal(tdm__started_node_find(&node), TDM_E_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_node_only_auto_fails),
        cmocka_unit_test(node_has_the_addresses_of_its_cluster),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
