/* rank_announcement_test.c - attached bytes travel beside the description, unread and bounded. */
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

/* Any bytes: a byte that ends texts, one that begins a pickle, and one that is no UTF-8. */
static const char opaque[] = {'\x80', '\x05', '\0', '\xff', 'x'};

/* Packs an announcement with these attached bytes. */
static tdm_writer *pack(struct tdm_bytes attached)
{
    const struct tdm__rank_announcement announcement = {
        .bucket = 2, .buckets_count = 5, .tensor_handles = {"where", 5}, .attached = attached};
    tdm_writer *writer;

    TRY(tdm_writer_create(&writer));
    TRY(tdm__rank_announcement_pack(&announcement, writer));
    return writer;
}

static void bytes_arrive_as_they_were_attached(void **state)
{
    tdm_writer *writer = pack((struct tdm_bytes){opaque, sizeof(opaque)});
    struct tdm__rank_announcement found;
    tdm_document *document;

    (void)state;
    TRY(tdm__rank_announcement_parse(tdm_writer_bytes(writer), &found, &document));
    assert_int_equal(found.bucket, 2);
    assert_int_equal(found.buckets_count, 5);
    assert_int_equal(found.tensor_handles.size_bytes, 5);
    assert_memory_equal(found.tensor_handles.data, "where", 5);
    assert_int_equal(found.attached.size_bytes, sizeof(opaque));
    assert_memory_equal(found.attached.data, opaque, sizeof(opaque));
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
}

static void an_announcement_may_have_no_attached_bytes(void **state)
{
    tdm_writer *writer = pack((struct tdm_bytes){.size_bytes = 0});
    struct tdm__rank_announcement found;
    tdm_document *document;

    (void)state;
    TRY(tdm__rank_announcement_parse(tdm_writer_bytes(writer), &found, &document));
    assert_int_equal(found.tensor_handles.size_bytes, 5);
    assert_int_equal(found.attached.size_bytes, 0);
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
}

static void a_changed_byte_is_noticed(void **state)
{
    tdm_writer *writer = pack((struct tdm_bytes){opaque, sizeof(opaque)});
    struct tdm_bytes packed = tdm_writer_bytes(writer);
    char *changed = malloc(packed.size_bytes);
    struct tdm__rank_announcement found;
    tdm_document *document;

    (void)state;
    memcpy(changed, packed.data, packed.size_bytes);
    changed[packed.size_bytes - 1] ^= 1; /* The attached bytes are the last field. */
    assert_int_equal(tdm__rank_announcement_parse((struct tdm_bytes){changed, packed.size_bytes},
                                                  &found, &document),
                     TDM_E_CHECKSUM);
    assert_non_null(strstr(tdm_error_detail(), "the 5 attached bytes"));
    assert_int_equal(tdm__rank_announcement_parse(
                         (struct tdm_bytes){changed, packed.size_bytes - 1}, &found, &document),
                     TDM_E_PROTOCOL);
    free(changed);
    tdm_writer_destroy(writer);
}

static void more_bytes_than_the_bound_are_refused_with_both_numbers(void **state)
{
    char *vast = calloc(1, TDM_ATTACHED_BYTES_MAX + 1);
    const struct tdm__rank_announcement announcement = {
        .buckets_count = 1, .attached = {vast, TDM_ATTACHED_BYTES_MAX + 1}};
    tdm_writer *writer;

    (void)state;
    TRY(tdm_writer_create(&writer));
    assert_int_equal(tdm__rank_announcement_pack(&announcement, writer), TDM_E_LIMIT);
    assert_non_null(strstr(tdm_error_detail(), "4194305 bytes"));
    assert_non_null(strstr(tdm_error_detail(), "at most 4194304"));
    assert_int_equal(tdm_writer_bytes(writer).size_bytes, 0);
    tdm_writer_destroy(writer);
    tdm_writer_destroy(pack((struct tdm_bytes){vast, TDM_ATTACHED_BYTES_MAX}));
    free(vast);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_arrive_as_they_were_attached),
        cmocka_unit_test(an_announcement_may_have_no_attached_bytes),
        cmocka_unit_test(a_changed_byte_is_noticed),
        cmocka_unit_test(more_bytes_than_the_bound_are_refused_with_both_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
