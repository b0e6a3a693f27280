/* segment_test.c - segments are written once, read by many, reused while warm, and checked by
 * readers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/segment.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { SIZE_BYTES = 300000, CAPACITY_BYTES = 5 * TDM__SEGMENT_ALIGN_BYTES };

static struct tdm__segment *segment_create(struct tdm__segments *segments, size_t size_bytes)
{
    struct tdm__segment *segment;

    assert_int_equal(tdm__segments_create(segments, size_bytes, &segment), TDM_OK);
    return segment;
}

static void reader_sees_what_the_writer_wrote(void **state)
{
    struct tdm__segments segments;
    struct tdm__segment_views views;
    struct tdm__segment *segment;
    struct tdm__segment_view *view;

    (void)state;
    tdm__segments_init(&segments);
    tdm__segment_views_init(&views, 0);
    segment = segment_create(&segments, SIZE_BYTES);
    assert_int_equal(segment->capacity_bytes, CAPACITY_BYTES);
    memset(segment->address, 7, SIZE_BYTES);
    assert_int_equal(
        tdm__segment_views_open(&views, &segment->id, dup(segment->fd), CAPACITY_BYTES, &view),
        TDM_OK);
    assert_memory_equal(view->address, segment->address, SIZE_BYTES);
    tdm__segment_views_release(&views, view);
    assert_true(TAILQ_EMPTY(&views.all));
    tdm__segment_views_fini(&views);
    tdm__segments_fini(&segments);
}

/* Returns true if every page of the first `size_bytes` is in memory. */
static bool pages_are_resident(const struct tdm__segment *segment, size_t size_bytes)
{
    unsigned char pages[CAPACITY_BYTES / 4096];

    assert_int_equal(mincore(segment->address, CAPACITY_BYTES, pages), 0);
    for (size_t i = 0; i < size_bytes / 4096; i++) {
        if ((pages[i] & 1) == 0) {
            return false;
        }
    }
    return true;
}

static void the_pages_of_a_fresh_one_are_made_at_once(void **state)
{
    struct tdm__segments segments;
    struct tdm__segment *segment;

    (void)state;
    tdm__segments_init(&segments);
    segment = segment_create(&segments, SIZE_BYTES);
    assert_false(pages_are_resident(segment, SIZE_BYTES));
    tdm__segment_populate(segment, SIZE_BYTES);
    if (!pages_are_resident(segment, SIZE_BYTES)) {
        print_message("this kernel has no MADV_POPULATE_WRITE\n");
    }
    memset(segment->address, 7, SIZE_BYTES);
    tdm__segments_recycle(&segments, segment);
    assert_ptr_equal(tdm__segments_reuse(&segments, SIZE_BYTES), segment);
    assert_false(segment->fresh);
    tdm__segment_populate(segment, SIZE_BYTES);
    assert_int_equal(*(const char *)segment->address, 7);
    tdm__segments_fini(&segments);
}

static void only_the_creator_can_write(void **state)
{
    struct tdm__segments segments;
    struct tdm__segment *segment;

    (void)state;
    tdm__segments_init(&segments);
    segment = segment_create(&segments, SIZE_BYTES);
    assert_ptr_equal(mmap(NULL, CAPACITY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd, 0),
                     MAP_FAILED);
    assert_int_equal(write(segment->fd, "x", 1), -1);
    assert_int_not_equal(ftruncate(segment->fd, 0), 0);
    ((char *)segment->address)[0] = 'x'; /* The creator can still write. */
    tdm__segments_fini(&segments);
}

static void idle_segments_are_used_again_if_they_fit(void **state)
{
    struct tdm__segments segments;
    struct tdm__segment *small;
    struct tdm__segment *large;

    (void)state;
    tdm__segments_init(&segments);
    small = segment_create(&segments, 1);
    large = segment_create(&segments, SIZE_BYTES);
    assert_null(tdm__segments_reuse(&segments, 1));
    tdm__segments_recycle(&segments, small);
    tdm__segments_recycle(&segments, large);
    assert_int_equal(segments.idle_bytes, CAPACITY_BYTES + TDM__SEGMENT_ALIGN_BYTES);
    assert_null(tdm__segments_reuse(&segments, CAPACITY_BYTES + 1));
    assert_ptr_equal(tdm__segments_reuse(&segments, SIZE_BYTES / 2), large);
    assert_ptr_equal(tdm__segments_reuse(&segments, 1), small);
    assert_int_equal(segments.idle_bytes, 0);
    tdm__segments_fini(&segments);
}

static void trimming_frees_the_coldest_first(void **state)
{
    struct tdm__segments segments;
    struct tdm__segment *all[3];

    (void)state;
    tdm__segments_init(&segments);
    for (int i = 0; i < 3; i++) {
        all[i] = segment_create(&segments, 1);
    }
    for (int i = 0; i < 3; i++) {
        tdm__segments_recycle(&segments, all[i]);
    }
    assert_int_equal(tdm__segments_trim(&segments, 1), TDM__SEGMENT_ALIGN_BYTES);
    assert_ptr_equal(tdm__segments_reuse(&segments, 1), all[2]);
    assert_ptr_equal(tdm__segments_reuse(&segments, 1), all[1]);
    assert_null(tdm__segments_reuse(&segments, 1));
    assert_int_equal(tdm__segments_trim(&segments, UINT64_MAX), 0);
    tdm__segments_fini(&segments);
}

static void views_are_kept_within_their_bound(void **state)
{
    struct tdm__segments segments;
    struct tdm__segment_views views;
    struct tdm__segment *segment[2];
    struct tdm__segment_view *view[2];

    (void)state;
    tdm__segments_init(&segments);
    tdm__segment_views_init(&views, TDM__SEGMENT_ALIGN_BYTES);
    for (int i = 0; i < 2; i++) {
        segment[i] = segment_create(&segments, 1);
        assert_int_equal(tdm__segment_views_open(&views, &segment[i]->id, dup(segment[i]->fd),
                                                 TDM__SEGMENT_ALIGN_BYTES, &view[i]),
                         TDM_OK);
        view[i]->exporter = &segments;
    }
    tdm__segment_views_release(&views, view[0]);
    assert_ptr_equal(tdm__segment_views_find(&views, &segment[0]->id), view[0]);
    tdm__segment_views_release(&views, view[0]);
    tdm__segment_views_release(&views, view[1]); /* The other mapping must be unmapped. */
    assert_null(tdm__segment_views_find(&views, &segment[0]->id));
    assert_int_equal(tdm__segment_views_trim(&views), TDM__SEGMENT_ALIGN_BYTES);
    assert_true(TAILQ_EMPTY(&views.all));
    tdm__segment_views_fini(&views);
    tdm__segments_fini(&segments);
}

static void views_are_unmapped_when_the_exporter_closes(void **state)
{
    struct tdm__segments segments;
    struct tdm__segment_views views;
    struct tdm__segment *segment[3];
    struct tdm__segment_view *view[3];
    int exporters[2];

    (void)state;
    tdm__segments_init(&segments);
    tdm__segment_views_init(&views, UINT64_MAX);
    for (int i = 0; i < 3; i++) {
        segment[i] = segment_create(&segments, 1);
        assert_int_equal(tdm__segment_views_open(&views, &segment[i]->id, dup(segment[i]->fd),
                                                 TDM__SEGMENT_ALIGN_BYTES, &view[i]),
                         TDM_OK);
        view[i]->exporter = &exporters[i == 2];
    }
    tdm__segment_views_release(&views, view[0]);
    tdm__segment_views_release(&views, view[2]);
    tdm__segment_views_forget(&views, &exporters[0]);
    assert_null(tdm__segment_views_find(&views, &segment[0]->id));
    assert_memory_equal(view[1]->address, segment[1]->address, TDM__SEGMENT_ALIGN_BYTES);
    tdm__segment_views_release(&views, view[1]); /* The last reader releases it. */
    assert_null(tdm__segment_views_find(&views, &segment[1]->id));
    assert_int_equal(tdm__segment_views_trim(&views), TDM__SEGMENT_ALIGN_BYTES);
    assert_true(TAILQ_EMPTY(&views.all));
    tdm__segments_fini(&segments);
}

static void expect_refusal(int fd, size_t capacity_bytes, const char *why)
{
    struct tdm__segment_views views;
    struct tdm__segment_view *view;
    struct tdm__id id = {{1}};

    tdm__segment_views_init(&views, 0);
    assert_true(fd >= 0);
    assert_int_equal(tdm__segment_views_open(&views, &id, fd, capacity_bytes, &view),
                     TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), why));
    tdm__segment_views_fini(&views);
}

static void descriptor_of_no_segment_is_refused(void **state)
{
    struct tdm__segments segments;
    const struct tdm__segment *segment;
    int unsealed = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    (void)state;
    tdm__segments_init(&segments);
    segment = segment_create(&segments, 1);
    assert_int_equal(ftruncate(unsealed, TDM__SEGMENT_ALIGN_BYTES), 0);
    expect_refusal(unsealed, TDM__SEGMENT_ALIGN_BYTES, "not sealed");
    expect_refusal(open("/dev/null", O_RDWR | O_CLOEXEC), 1, "not sealed");
    expect_refusal(dup(segment->fd), 2 * TDM__SEGMENT_ALIGN_BYTES, "said to have 131072");
    expect_refusal(dup(segment->fd), 0, "said to have 0");
    tdm__segments_fini(&segments);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reader_sees_what_the_writer_wrote),
        cmocka_unit_test(the_pages_of_a_fresh_one_are_made_at_once),
        cmocka_unit_test(only_the_creator_can_write),
        cmocka_unit_test(idle_segments_are_used_again_if_they_fit),
        cmocka_unit_test(trimming_frees_the_coldest_first),
        cmocka_unit_test(views_are_kept_within_their_bound),
        cmocka_unit_test(views_are_unmapped_when_the_exporter_closes),
        cmocka_unit_test(descriptor_of_no_segment_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
