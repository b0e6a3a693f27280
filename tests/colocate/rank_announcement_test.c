/* rank_announcement_test.c - an announcement is bounded, and no bit of it changes unnoticed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/rank_announcement.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/error.h>
#include <tandem/job.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { WRITER = 2, ENGINE_RANK = 5 };

/* Each of three trainer ranks serves two of six engine ranks. */
static const struct tdm__gather_groups groups = {1, 3, 6, 1};

/* Any bytes: a byte that ends texts, one that begins a pickle, and one that is no UTF-8. */
static const char opaque[] = {'\x80', '\x05', '\0', '\xff', 'x'};

/* Returns a sealed announcement with these attached bytes. */
static struct tdm__rank_announcement_message sealed(struct tdm_bytes attached)
{
    struct tdm__rank_announcement_message announcement = {.writer = WRITER,
                                                          .engine_rank = ENGINE_RANK,
                                                          .tensor_handles = {"where", 5},
                                                          .attached = attached};

    TRY(tdm__rank_announcement_seal(&announcement));
    return announcement;
}

/* Decodes and checks a packed announcement as an engine rank does. */
static tdm_status read_packed(struct tdm_bytes packed,
                              struct tdm__rank_announcement_message *announcement_out,
                              tdm_document **document_out)
{
    TDM_TRY(tdm_document_parse(packed, document_out));
    TDM_TRY(tdm__rank_announcement_decode(tdm_document_root(*document_out), announcement_out));
    return tdm__rank_announcement_check(announcement_out, ENGINE_RANK, &groups);
}

static void bytes_arrive_as_they_were_attached(void **state)
{
    struct tdm__rank_announcement_message sent = sealed((struct tdm_bytes){opaque, sizeof(opaque)});
    struct tdm__rank_announcement_message found;
    tdm_document *document = NULL;
    tdm_writer *writer;

    (void)state;
    TRY(tdm_writer_create(&writer));
    TRY(tdm__rank_announcement_encode(&sent, writer));
    TRY(read_packed(tdm_writer_bytes(writer), &found, &document));
    assert_int_equal(found.writer, WRITER);
    assert_int_equal(found.engine_rank, ENGINE_RANK);
    assert_int_equal(found.tensor_handles.size_bytes, 5);
    assert_memory_equal(found.tensor_handles.data, "where", 5);
    assert_int_equal(found.attached.size_bytes, sizeof(opaque));
    assert_memory_equal(found.attached.data, opaque, sizeof(opaque));
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
}

static void every_changed_bit_is_noticed(void **state)
{
    struct tdm__rank_announcement_message sent = sealed((struct tdm_bytes){opaque, sizeof(opaque)});
    struct tdm_bytes packed;
    tdm_writer *writer;
    char *changed;

    (void)state;
    TRY(tdm_writer_create(&writer));
    TRY(tdm__rank_announcement_encode(&sent, writer));
    packed = tdm_writer_bytes(writer);
    changed = malloc(packed.size_bytes);
    assert_non_null(changed);
    for (size_t bit = 0; bit < packed.size_bytes * 8; bit++) {
        struct tdm__rank_announcement_message found;
        tdm_document *document = NULL;
        tdm_status status;

        memcpy(changed, packed.data, packed.size_bytes);
        changed[bit / 8] = (char)(changed[bit / 8] ^ (1 << bit % 8));
        status = read_packed((struct tdm_bytes){changed, packed.size_bytes}, &found, &document);
        if (status != TDM_E_CHECKSUM && status != TDM_E_PROTOCOL) {
            fail_msg("bit %zu of byte %zu: status %d", bit % 8, bit / 8, (int)status);
        }
        tdm_document_destroy(document);
    }
    free(changed);
    tdm_writer_destroy(writer);
}

static void announcement_for_another_rank_or_of_nothing_is_refused(void **state)
{
    struct tdm__rank_announcement_message announcement = sealed((struct tdm_bytes){.data = NULL});

    (void)state;
    TRY(tdm__rank_announcement_check(&announcement, ENGINE_RANK, &groups));
    assert_int_equal(tdm__rank_announcement_check(&announcement, ENGINE_RANK + 1, &groups),
                     TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "for engine rank 5 came to 6"));
    announcement.tensor_handles.size_bytes = 0;
    TRY(tdm__rank_announcement_seal(&announcement));
    assert_int_equal(tdm__rank_announcement_check(&announcement, ENGINE_RANK, &groups),
                     TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "an announcement is empty"));
}

static void only_the_rank_that_serves_the_image_attaches(void **state)
{
    struct tdm__rank_announcement_message announcement =
        sealed((struct tdm_bytes){opaque, sizeof(opaque)});

    (void)state;
    announcement.writer = WRITER + 1;
    TRY(tdm__rank_announcement_seal(&announcement));
    assert_int_equal(tdm__rank_announcement_check(&announcement, ENGINE_RANK, &groups),
                     TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "trainer rank 3 attaches bytes for engine rank 5, "
                                               "only trainer rank 2 may"));
}

static void more_bytes_than_the_bound_are_refused_with_both_numbers(void **state)
{
    char *vast = calloc(1, TDM_ATTACHED_BYTES_MAX + 1);
    struct tdm__rank_announcement_message announcement = {
        .attached = {vast, TDM_ATTACHED_BYTES_MAX + 1}};

    (void)state;
    assert_non_null(vast);
    assert_int_equal(tdm__rank_announcement_seal(&announcement), TDM_E_LIMIT);
    assert_non_null(strstr(tdm_error_detail(), "4194305 bytes"));
    assert_non_null(strstr(tdm_error_detail(), "at most 4194304"));
    assert_int_equal(tdm__rank_announcement_check(&announcement, 0, &groups), TDM_E_LIMIT);
    (void)sealed((struct tdm_bytes){vast, TDM_ATTACHED_BYTES_MAX});
    free(vast);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_arrive_as_they_were_attached),
        cmocka_unit_test(every_changed_bit_is_noticed),
        cmocka_unit_test(announcement_for_another_rank_or_of_nothing_is_refused),
        cmocka_unit_test(only_the_rank_that_serves_the_image_attaches),
        cmocka_unit_test(more_bytes_than_the_bound_are_refused_with_both_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
