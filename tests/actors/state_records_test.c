/* state_records_test.c - records of unusual actors, nodes and groups: unplaced, incomplete,
 * unreadable. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/state_record.h"
#include "actors/daemon/state_records.h"
#include "tests/support/node_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

/* ---- what was written ------------------------------------------------------------------- */

static tdm_writer *writer;
static tdm_document *document;

static int open_all(void **state)
{
    TRY(tdm_writer_create(&writer));
    document = NULL;
    return node_fixture_open(state);
}

static int close_all(void **state)
{
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
    return node_fixture_close(state);
}

static const tdm_value *written(void)
{
    tdm_document_destroy(document);
    TRY(tdm_writer_status(writer));
    TRY(tdm_document_parse(tdm_writer_bytes(writer), &document));
    tdm_writer_clear(writer);
    return tdm_document_root(document);
}

static const tdm_value *row_of(const struct actor_entry *entry, const char *text)
{
    tdm__state_write_actor(writer, entry, text);
    return written();
}

static void expect_text(const tdm_value *row, const char *key, const char *text)
{
    assert_string_equal(tdm_value_string(tdm_value_find(row, key), "?"), text);
}

/* (name, total, free) */
static void expect_amount(const tdm_value *row, uint32_t index, const char *name, double total,
                          double free)
{
    const tdm_value *amount = tdm_value_at(tdm_value_find(row, "amounts"), index);

    assert_string_equal(tdm_value_string(tdm_value_at(amount, 0), "?"), name);
    assert_true(tdm_value_double(tdm_value_at(amount, 1), -1) == total);
    assert_true(tdm_value_double(tdm_value_at(amount, 2), -1) == free);
}

/* ---- actors ----------------------------------------------------------------------------- */

static void one_without_a_place_is_nowhere(void **state)
{
    struct actor_entry *entry = node_fixture_add(*state, ACTOR_WAITING);
    const tdm_value *row;

    memset(&entry->record, 0, sizeof(entry->record));
    (void)snprintf(entry->waits_for, sizeof(entry->waits_for), "it waits: no GPU is free");
    row = row_of(entry, NULL);
    expect_text(row, "state", "PENDING");
    expect_text(row, "node_id", "");
    expect_text(row, "node_name", "");
    expect_text(row, "group", "");
    expect_text(row, "death_cause", "it waits: no GPU is free");
    assert_int_equal(tdm_value_count(tdm_value_find(row, "amounts")), 0);
    assert_int_equal(tdm_value_count(tdm_value_find(row, "gpus")), 0);
}

static void a_grant_is_told_in_wholes_and_parts(void **state)
{
    struct actor_entry *entry = node_fixture_add(*state, ACTOR_ALIVE);
    struct tdm__grant *grant = &entry->record.grant;
    const tdm_value *row;

    grant->cpu = TDM__RESOURCE_ONE / 4;
    grant->gpus_count = 3;
    grant->gpu_amount = TDM__RESOURCE_ONE / 2;
    grant->gpu_indices[2] = 7;
    (void)snprintf(grant->custom[0].name, sizeof(grant->custom[0].name), "licence");
    grant->custom[0].amount = 2 * TDM__RESOURCE_ONE;
    row = row_of(entry, NULL);
    assert_int_equal(tdm_value_count(tdm_value_find(row, "amounts")), 3);
    expect_amount(row, 0, "CPU", 0.25, 0);
    expect_amount(row, 1, "GPU", 1.5, 0);
    expect_amount(row, 2, "licence", 2, 0);
    assert_int_equal(tdm_value_int(tdm_value_at(tdm_value_find(row, "gpus"), 2), 0), 7);
    entry->lifecycle.state = ACTOR_WAITING;
}

/* What it waited for, once, is no cause of its death. */
static void a_death_has_its_own_words(void **state)
{
    struct actor_entry *entry = node_fixture_add(*state, ACTOR_WAITING);
    const tdm_value *row;

    (void)snprintf(entry->waits_for, sizeof(entry->waits_for), "it waits");
    entry->pid = 4711;
    entry->lifecycle.incarnation = 3;
    row = row_of(entry, "signal 9");
    expect_text(row, "state", "DEAD");
    expect_text(row, "death_cause", "signal 9");
    assert_int_equal(tdm__state_record_int(row, "pid"), 4711);
    assert_int_equal(tdm__state_record_int(row, "restarts"), 3);
    expect_text(row_of(entry, ""), "state", "DEAD");
}

/* ---- records of the store --------------------------------------------------------------- */

/* All that the store has of nodes, with or without one more record, to `write`. */
struct reading {
    struct node_fixture *scene;
    const struct tdm__store_record *more;
    const char *without; /* Kind of records that are left out; NULL for none. */
    bool done;
};

static void on_read(void *arg, tdm_status status, const struct tdm__store_record *records,
                    uint32_t records_count)
{
    struct reading *reading = arg;
    struct tdm__store_record all[16];
    uint32_t count = 0;

    TRY(status);
    assert_true(records_count < 16);
    for (uint32_t i = 0; i < records_count; i++) {
        if (reading->without == NULL ||
            strncmp(records[i].key, reading->without, strlen(reading->without)) != 0) {
            all[count++] = records[i];
        }
    }
    if (reading->more != NULL) {
        all[count++] = *reading->more;
    }
    tdm__state_write_nodes(writer, all, count);
    reading->done = true;
}

static bool is_read(void *arg)
{
    return ((const struct reading *)arg)->done;
}

static const tdm_value *nodes(struct node_fixture *scene, const struct tdm__store_record *more,
                              const char *without)
{
    static const char *const patterns[] = {"node/*", "free/*"};
    struct reading reading = {.scene = scene, .more = more, .without = without};

    scene->world.store->ops->read(scene->world.store, patterns, 2, INT64_MAX, on_read, &reading);
    node_fixture_run(scene, is_read, &reading);
    return written();
}

static void a_node_is_told_of_with_what_it_has_free_or_not_at_all(void **state)
{
    struct node_fixture *scene = *state;
    const struct tdm__store_record odd = {.key = "node/odd", .bytes = {"\x07", 1}};
    const struct tdm__store_record other = {.key = "actor/odd", .bytes = {"\x07", 1}};
    const tdm_value *rows = nodes(scene, &odd, NULL);

    assert_int_equal(tdm_value_count(rows), 1);
    expect_text(tdm_value_at(rows, 0), "name", "this");
    expect_amount(tdm_value_at(rows, 0), 0, "CPU", 8, 8);
    expect_amount(tdm_value_at(rows, 0), 1, "GPU", 2, 2);
    assert_int_equal(tdm_value_count(nodes(scene, &other, NULL)), 1);
    assert_int_equal(tdm_value_count(nodes(scene, NULL, "free/")), 0);
    assert_int_equal(tdm_value_count(nodes(scene, NULL, "node/")), 0);
}

static void a_group_that_cannot_be_read_is_left_out(void **state)
{
    const struct tdm__store_record records[] = {{.key = "group/odd", .bytes = {"\x07", 1}},
                                                {.key = "group/cut", .bytes = {"\x92", 1}},
                                                {.key = "node/odd", .bytes = {"\x07", 1}}};

    (void)state;
    tdm__state_write_groups(writer, records, 3);
    assert_int_equal(tdm_value_kind_of(written()), TDM_ARRAY);
    tdm__state_write_groups(writer, records, 0);
    assert_int_equal(tdm_value_count(written()), 0);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, open_all, close_all)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_without_a_place_is_nowhere),
        TEST(a_grant_is_told_in_wholes_and_parts),
        TEST(a_death_has_its_own_words),
        TEST(a_node_is_told_of_with_what_it_has_free_or_not_at_all),
        TEST(a_group_that_cannot_be_read_is_left_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
