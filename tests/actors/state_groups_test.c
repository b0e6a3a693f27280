/* state_groups_test.c - the list of groups says why one waits, and has each group once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/state_record.h"
#include "actors/daemon/placement_group_table.h"
#include "actors/daemon/state_groups.h"
#include "actors/daemon/state_records.h"
#include "runtime/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

/* ---- groups that wait at a node ---------------------------------------------------------- */

static struct tdm__node node;

static struct group_entry *add_group(const char *name, uint32_t bundles_count)
{
    struct group_entry *group;
    struct tdm__id id;

    TRY(tdm__id_generate(&id));
    group = tdm__group_entry_add(&node, &id);
    group->bundles = calloc(bundles_count, sizeof(*group->bundles));
    group->request.bundles = group->bundles;
    group->request.bundles_count = bundles_count;
    group->request.strategy = TDM_SPREAD;
    (void)snprintf(group->request.name, sizeof(group->request.name), "%s", name);
    for (uint32_t i = 0; i < bundles_count; i++) {
        TRY(tdm__resources_add(&group->bundles[i], "GPU", 2));
    }
    return group;
}

/* Makes the group one that has waited for `waited_ms`. */
static void let_wait(struct group_entry *group, int64_t waited_ms, const char *reason)
{
    group->waiting_since_ms = tdm__clock_ms() - waited_ms;
    tdm__group_entry_set_wait_reason(group, reason);
}

static void only_groups_that_wait_are_listed_with_reason_time_and_ticket(void **state)
{
    struct group_entry *waiting;
    struct group_entry *removed;
    struct group_entry *held;
    tdm_document *document;
    tdm_writer *writer;
    const tdm_value *rows;
    const tdm_value *row;

    (void)state;
    TRY(tdm__placement_group_table_create(&node));
    (void)add_group("new", 1); /* The store has not yet said that it must wait. */
    waiting = add_group("waiting", 2);
    let_wait(waiting, 5000, "3 of 4 GPUs are free");
    waiting->ticket_number = 17;
    removed = add_group("removed", 1);
    let_wait(removed, 10, "no longer");
    removed->is_unwanted = true;
    held = add_group("held", 1);
    let_wait(held, 10, "at first");
    tdm__group_entry_set_held(held);

    TRY(tdm_writer_create(&writer));
    tdm__state_write_waiting_groups(writer, &node);
    TRY(tdm_document_parse(tdm_writer_bytes(writer), &document));
    rows = tdm_value_at(tdm_document_root(document), 0);
    assert_int_equal(tdm_value_count(rows), 1);
    row = tdm_value_at(rows, 0);
    assert_string_equal(tdm__state_record_text(row, "name"), "waiting");
    assert_string_equal(tdm__state_record_text(row, "state"), "PENDING");
    assert_string_equal(tdm__state_record_text(row, "strategy"), "SPREAD");
    assert_string_equal(tdm__state_record_text(row, "waits_for"), "3 of 4 GPUs are free");
    assert_in_range(tdm__state_record_int(row, "waited_ms"), 5000, 60000);
    assert_int_equal(tdm__state_record_int(row, "ticket"), 17);
    assert_int_equal(tdm_value_count(tdm_value_find(row, "bundles")), 2);
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
    while (!TAILQ_EMPTY(&node.placement_groups->all)) {
        tdm__group_entry_remove(TAILQ_FIRST(&node.placement_groups->all));
    }
    tdm__placement_group_table_destroy(&node);
}

/* ---- merged with those of the store ------------------------------------------------------ */

/* A daemon's record of a group that waits. */
static const tdm_value *waiting_record(const struct tdm__placement_group_record *group,
                                       tdm_document **document_out)
{
    const struct tdm__group_wait wait = {.cause = "nothing is free", .waited_ms = 1};
    tdm_writer *writer;

    TRY(tdm_writer_create(&writer));
    tdm__state_write_group(writer, group, &wait);
    TRY(tdm_document_parse(tdm_writer_bytes(writer), document_out));
    tdm_writer_destroy(writer);
    return tdm_document_root(*document_out);
}

/* Returns the record of a group as the store has it. The caller frees its bytes. */
static struct tdm__store_record stored_record(const struct tdm__placement_group_record *group,
                                              char key[TDM__STORE_KEY_BYTES])
{
    void *bytes;
    size_t size;

    TRY(tdm__placement_group_record_pack(group, &bytes, &size));
    return (struct tdm__store_record){.key = tdm__store_key("group", &group->id, key),
                                      .bytes = {bytes, size}};
}

enum { PLACED, PENDING, CLOSED, UNSTORED, KINDS };

static void each_group_is_listed_once_and_placed_ones_as_placed(void **state)
{
    static const char *const names[KINDS] = {"placed", "pending", "closed", "unstored"};
    static const bool is_accepted[KINDS] = {false, true, false, true};
    struct tdm__bundle_record bundle = {.pool = {.gpus_count = 0}};
    struct tdm__placement_group_record groups[KINDS] = {0};
    struct tdm__store_record records[KINDS - 1];
    char keys[KINDS][TDM__STORE_KEY_BYTES];
    struct tdm__stored_groups *stored;
    tdm_document *document;
    tdm_writer *writer;

    (void)state;
    for (int i = 0; i < KINDS; i++) {
        TRY(tdm__id_generate(&groups[i].id));
        groups[i].bundles = &bundle;
        groups[i].bundles_count = 1;
        groups[i].strategy = TDM_PACK;
        (void)snprintf(groups[i].name, sizeof(groups[i].name), "%s", names[i]);
        groups[i].placed = i == PLACED || i == CLOSED;
        groups[i].closed = i == CLOSED;
        if (i != UNSTORED) {
            records[i] = stored_record(&groups[i], keys[i]);
        }
    }
    TRY(tdm__stored_groups_create(records, KINDS - 1, &stored));
    for (int i = 0; i < KINDS; i++) {
        const tdm_value *waiting = waiting_record(&groups[i], &document);

        assert_int_equal(tdm__stored_groups_accept(stored, waiting), is_accepted[i]);
        tdm_document_destroy(document);
    }
    TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, 2); /* The pending one was replaced. */
    assert_int_equal(tdm__stored_groups_write(stored, writer), 2);
    TRY(tdm_document_parse(tdm_writer_bytes(writer), &document));
    for (uint32_t i = 0; i < 2; i++) {
        const tdm_value *row = tdm_value_at(tdm_document_root(document), i);

        assert_string_not_equal(tdm__state_record_text(row, "state"), "PENDING");
        assert_string_equal(tdm__state_record_text(row, "waits_for"), "");
    }
    tdm_document_destroy(document);
    tdm__stored_groups_destroy(stored);
    tdm__stored_groups_destroy(NULL);
    tdm_writer_destroy(writer);
    for (int i = 0; i < UNSTORED; i++) {
        free((void *)(uintptr_t)records[i].bytes.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_groups_that_wait_are_listed_with_reason_time_and_ticket),
        cmocka_unit_test(each_group_is_listed_once_and_placed_ones_as_placed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
