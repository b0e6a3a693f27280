/* resources_wire_test.c - what is encoded decodes to the same, and malformed values are refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/resources.h"

#include "tests/support/test_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A writer with one value, and the document it parses to. */
struct packed {
    tdm_writer *writer;
    tdm_document *document;
};

static int open_packed(void **state)
{
    static struct packed packed;

    packed = (struct packed){0};
    *state = &packed;
    return tdm_writer_create(&packed.writer) == TDM_OK ? 0 : -1;
}

static int close_packed(void **state)
{
    struct packed *packed = *state;

    tdm_document_destroy(packed->document);
    tdm_writer_destroy(packed->writer);
    return 0;
}

/* Returns the value that was written so far, and empties the writer. */
static const tdm_value *parse(struct packed *packed)
{
    tdm_document_destroy(packed->document);
    packed->document = NULL;
    assert_int_equal(tdm_writer_status(packed->writer), TDM_OK);
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(packed->writer), &packed->document),
                     TDM_OK);
    tdm_writer_clear(packed->writer);
    return tdm_document_root(packed->document);
}

static struct tdm__node_resources sample_node(struct tdm__grant *grant_out)
{
    struct tdm__node_resources node = {
        .id.bytes = {1, 2, 3},
        .name = "gpu-03",
        .ticket = {.group.bytes = {4}, .owner_node.bytes = {5}, .number = 6}};
    struct tdm__resources totals = {.cpu = 80000, .gpu = 40000};
    struct tdm__resources wanted = {.cpu = 5000, .gpu = 20000};

    assert_int_equal(tdm__resources_add(&totals, "disk", 3), TDM_OK);
    assert_int_equal(tdm__resources_add(&totals, "arm", 1), TDM_OK);
    assert_int_equal(tdm__resources_add(&wanted, "arm", 0.5), TDM_OK);
    assert_int_equal(tdm__pool_init(&node.pool, &totals), TDM_OK);
    assert_true(tdm__pool_allocate(&node.pool, &wanted, grant_out));
    return node;
}

static void nodes_grants_and_requests_survive_the_wire(void **state)
{
    struct packed *packed = *state;
    struct tdm__grant grant;
    struct tdm__grant grant_back;
    struct tdm__node_resources node = sample_node(&grant);
    struct tdm__node_resources node_back;
    struct tdm__resources wanted = {.cpu = 1, .gpu = 4000, .custom = {{"disk", 7}}};
    struct tdm__resources wanted_back;

    tdm__grant_write(packed->writer, &grant);
    assert_int_equal(tdm__grant_read(parse(packed), &grant_back), TDM_OK);
    assert_memory_equal(&grant, &grant_back, sizeof(grant));
    tdm__node_resources_write(packed->writer, &node);
    assert_int_equal(tdm__node_resources_read(parse(packed), &node_back), TDM_OK);
    assert_memory_equal(&node, &node_back, sizeof(node));
    tdm__resources_write(packed->writer, &wanted);
    assert_int_equal(tdm__resources_read(parse(packed), &wanted_back), TDM_OK);
    assert_true(tdm__resources_equal(&wanted, &wanted_back));
}

static void refuses_grant(struct packed *packed, int64_t amount, uint64_t first, uint64_t second)
{
    struct tdm__grant grant;

    assert_int_equal(tdm_pack(packed->writer, "ii(uu)()", INT64_C(0), amount, first, second),
                     TDM_OK);
    assert_int_equal(tdm__grant_read(parse(packed), &grant), TDM_E_PROTOCOL);
}

static void grants_that_cannot_be_are_refused(void **state)
{
    struct packed *packed = *state;

    refuses_grant(packed, 10000, 1, 1);
    refuses_grant(packed, 10000, 2, 1);
    refuses_grant(packed, 10000, 1, TDM__NODE_GPUS_MAX);
    refuses_grant(packed, 5000, 0, 1);
    refuses_grant(packed, 0, 0, 1);
    refuses_grant(packed, -1, 0, 1);
}

static void requests_that_cannot_be_are_refused(void **state)
{
    struct packed *packed = *state;
    static const char *const names[][2] = {
        {"b", "a"}, {"a", "a"}, {"", "a"}, {"a", "a name that is far too long for us"}};
    struct tdm__resources wanted;

    for (int i = 0; i < 4; i++) {
        assert_int_equal(tdm_pack(packed->writer, "ii((si)(si))", INT64_C(1), INT64_C(1),
                                  names[i][0], INT64_C(1), names[i][1], INT64_C(1)),
                         TDM_OK);
        assert_int_equal(tdm__resources_read(parse(packed), &wanted), TDM_E_PROTOCOL);
    }
    assert_int_equal(tdm_pack(packed->writer, "ii()", INT64_C(1), INT64_C(15000)), TDM_OK);
    assert_int_equal(tdm__resources_read(parse(packed), &wanted), TDM_E_PROTOCOL);
    assert_int_equal(tdm_pack(packed->writer, "ii((s))", INT64_C(1), INT64_C(1), "a"), TDM_OK);
    assert_int_equal(tdm__resources_read(parse(packed), &wanted), TDM_E_PROTOCOL);
    assert_int_equal(tdm__resources_read(NULL, &wanted), TDM_E_PROTOCOL);
}

/* Each change of one byte is refused, or still keeps what the structures promise. */
static void damaged_nodes_never_hold_more_than_their_totals(void **state)
{
    enum { DAMAGES = 20000 };
    struct packed *packed = *state;
    struct test_random chance =
        test_random_init("damaged_nodes_never_hold_more_than_their_totals", 17);
    struct tdm__grant grant;
    struct tdm__node_resources node = sample_node(&grant);
    struct tdm_bytes bytes;
    uint8_t damaged[512];
    uint32_t refused = 0;

    tdm__node_resources_write(packed->writer, &node);
    bytes = tdm_writer_bytes(packed->writer);
    assert_in_range(bytes.size_bytes, 1, sizeof(damaged));
    for (int i = 0; i < DAMAGES; i++) {
        tdm_document *document = NULL;
        tdm_status status;

        memcpy(damaged, bytes.data, bytes.size_bytes);
        damaged[test_random_below(&chance, (uint32_t)bytes.size_bytes)] =
            (uint8_t)test_random_below(&chance, 256);
        status = tdm_document_parse((struct tdm_bytes){damaged, bytes.size_bytes}, &document);
        if (status == TDM_OK) {
            status = tdm__node_resources_read(tdm_document_root(document), &node);
        }
        tdm_document_destroy(document);
        refused += status != TDM_OK;
        assert_true(node.pool.gpus_count <= TDM__NODE_GPUS_MAX);
        /* CPUs that are taken back after they were lent may be negative. */
        assert_true(node.pool.cpu.free <= node.pool.cpu.total);
    }
    assert_in_range(refused, 1, DAMAGES - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nodes_grants_and_requests_survive_the_wire, open_packed,
                                        close_packed),
        cmocka_unit_test_setup_teardown(grants_that_cannot_be_are_refused, open_packed,
                                        close_packed),
        cmocka_unit_test_setup_teardown(requests_that_cannot_be_are_refused, open_packed,
                                        close_packed),
        cmocka_unit_test_setup_teardown(damaged_nodes_never_hold_more_than_their_totals,
                                        open_packed, close_packed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
