/* content_cache_test.c - contents are checked, complete, private, fetched once, and removed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/content_cache.h"

#include "colocate/job/module_archive.h"
#include "runtime/directory.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { WRITERS = 8, BYTES = 300000, USE_MS = 20000 };

/* What a fetch gives, and how often it was called. */
struct source {
    struct tdm_bytes bytes; /* Bytes that every fetch gives. */
    uint32_t *calls_count;  /* Number of fetches, in memory that forked processes share. */
    unsigned delay_us;      /* Microseconds that a fetch takes. */
};

static char node[64];           /* Directory of the node. */
static char data[BYTES];        /* Contents of the tests. */
static uint32_t *fetches_count; /* Number of fetches. */
static uint32_t *users_count;   /* Number of processes that use the contents. */

static tdm_status fetch(void *arg, struct tdm_bytes *bytes_out)
{
    struct source *source = arg;

    (void)__atomic_fetch_add(source->calls_count, 1, __ATOMIC_SEQ_CST);
    (void)usleep(source->delay_us);
    *bytes_out = source->bytes;
    return TDM_OK;
}

static int create_node(void **state)
{
    (void)state;
    (void)snprintf(node, sizeof(node), "/tmp/tandem-cache-XXXXXX");
    fetches_count = mmap(NULL, 2 * sizeof(*fetches_count), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    users_count = fetches_count + 1;
    for (size_t i = 0; i < BYTES; i++) {
        data[i] = (char)(i * 7 % 253);
    }
    return mkdtemp(node) == NULL || fetches_count == MAP_FAILED ? -1 : 0;
}

static int remove_node(void **state)
{
    (void)state;
    tdm__directory_remove(node);
    return munmap(fetches_count, 2 * sizeof(*fetches_count));
}

/* Returns a source of the first `size_bytes` bytes of the data. */
static struct source source_of(size_t size_bytes)
{
    return (struct source){.bytes = {data, size_bytes}, .calls_count = fetches_count};
}

/* Returns the request for what the source gives. */
static struct tdm__cache_request request_for(struct source *source)
{
    struct tdm__cache_request request = {.node_directory = node,
                                         .path = "/home/user/library.so",
                                         .size_bytes = source->bytes.size_bytes,
                                         .fetch = fetch,
                                         .arg = source};

    assert_int_equal(tdm__content_hash_bytes(source->bytes, &request.hash), TDM_OK);
    return request;
}

/* Checks that a file has these bytes. */
static void require_bytes(const char *path, struct tdm_bytes bytes)
{
    size_t size_bytes;
    char *found;

    assert_int_equal(tdm__file_read(path, BYTES, &found, &size_bytes), TDM_OK);
    assert_int_equal(size_bytes, bytes.size_bytes);
    assert_memory_equal(found, bytes.data, size_bytes);
    free(found);
}

static void test_contents_are_fetched_once_and_kept_under_their_name(void **state)
{
    struct source source = source_of(BYTES);
    struct tdm__cache_request request = request_for(&source);
    struct tdm__cached_content first;
    struct tdm__cached_content second;

    (void)state;
    assert_int_equal(tdm__content_cache_get(&request, &first), TDM_OK);
    assert_int_equal(tdm__content_cache_get(&request, &second), TDM_OK);
    assert_int_equal(*fetches_count, 1);
    assert_string_equal(first.path, second.path);
    assert_string_equal(strrchr(first.path, '/'), "/library.so");
    require_bytes(first.path, source.bytes);
    tdm__cached_content_release(&first);
    tdm__cached_content_release(&second);
    tdm__cached_content_release(&second); /* Does nothing. */
}

static void test_wrong_bytes_are_refused_with_both_hashes_and_not_kept(void **state)
{
    struct source source = source_of(BYTES);
    struct source wrong = source_of(BYTES - 1);
    struct tdm__cache_request request = request_for(&source);
    struct tdm__cached_content content;
    char text[TDM__CONTENT_HASH_TEXT_BYTES];

    (void)state;
    request.arg = &wrong;
    assert_int_equal(tdm__content_cache_get(&request, &content), TDM_E_CHECKSUM);
    assert_non_null(strstr(tdm_error_detail(), "/home/user/library.so"));
    assert_non_null(strstr(tdm_error_detail(), tdm__content_hash_text(&request.hash, text)));
    assert_non_null(strstr(tdm_error_detail(), "299999 bytes"));
    assert_non_null(strstr(tdm_error_detail(), "300000 bytes"));
    request.arg = &source;
    assert_int_equal(tdm__content_cache_get(&request, &content), TDM_OK);
    require_bytes(content.path, source.bytes);
    tdm__cached_content_release(&content);
}

static void test_damaged_file_is_fetched_again(void **state)
{
    struct source source = source_of(BYTES);
    struct tdm__cache_request request = request_for(&source);
    struct tdm__cached_content content;
    int fd;

    (void)state;
    assert_int_equal(tdm__content_cache_get(&request, &content), TDM_OK);
    tdm__cached_content_release(&content);
    assert_int_equal(truncate(content.path, BYTES / 2), 0); /* A cut file. */
    assert_int_equal(tdm__content_cache_get(&request, &content), TDM_OK);
    require_bytes(content.path, source.bytes);
    tdm__cached_content_release(&content);
    fd = open(content.path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "?", 1, BYTES / 2), 1); /* A file with another byte. */
    assert_int_equal(close(fd), 0);
    assert_int_equal(tdm__content_cache_get(&request, &content), TDM_OK);
    require_bytes(content.path, source.bytes);
    tdm__cached_content_release(&content);
    assert_int_equal(unlink(content.path), 0);
    assert_int_equal(symlink("/etc/passwd", content.path), 0); /* A link instead of the file. */
    assert_int_equal(tdm__content_cache_get(&request, &content), TDM_OK);
    require_bytes(content.path, source.bytes);
    tdm__cached_content_release(&content);
    assert_int_equal(*fetches_count, 4);
}

static void test_what_a_killed_writer_has_left_is_removed(void **state)
{
    struct source source = source_of(BYTES);
    struct tdm__cache_request request = request_for(&source);
    struct tdm__cached_content content;
    char left[TDM__PATH_BYTES + 16];

    (void)state;
    assert_int_equal(tdm__content_cache_get(&request, &content), TDM_OK);
    tdm__cached_content_release(&content);
    (void)snprintf(left, sizeof(left), "%s.abcdef", content.path);
    assert_int_equal(rename(content.path, left), 0);
    assert_int_equal(tdm__content_cache_get(&request, &content), TDM_OK);
    assert_int_equal(access(left, F_OK), -1);
    require_bytes(content.path, source.bytes);
    tdm__cached_content_release(&content);
}

/* Gets the contents and uses them until all writers have them. Returns the exit status of the
 * process: 0 if that is so within USE_MS. */
static int use_until_all_have_it(const struct tdm__cache_request *request)
{
    struct tdm__cached_content content;

    if (tdm__content_cache_get(request, &content) != TDM_OK ||
        !tdm__content_file_is(content.path, &request->hash, BYTES)) {
        return 1;
    }
    (void)__atomic_fetch_add(users_count, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < USE_MS && __atomic_load_n(users_count, __ATOMIC_SEQ_CST) < WRITERS; i++) {
        (void)usleep(1000);
    }
    return __atomic_load_n(users_count, __ATOMIC_SEQ_CST) < WRITERS ? 1 : 0;
}

/* A rank uses the files of its job as long as it lives, so no other rank may wait for its end. */
static void test_writers_at_once_fetch_once_and_all_use_complete_contents(void **state)
{
    struct source source = source_of(BYTES);
    struct tdm__cache_request request = request_for(&source);
    pid_t writers[WRITERS];

    (void)state;
    source.delay_us = 50000;
    for (int i = 0; i < WRITERS; i++) {
        writers[i] = fork();
        assert_true(writers[i] >= 0);
        if (writers[i] == 0) {
            (void)alarm(2 * USE_MS / 1000);
            _exit(use_until_all_have_it(&request));
        }
    }
    for (int i = 0; i < WRITERS; i++) {
        int wait_status;

        assert_int_equal(waitpid(writers[i], &wait_status, 0), writers[i]);
        assert_int_equal(wait_status, 0);
    }
    assert_int_equal(*fetches_count, 1);
}

static void test_damaged_contents_are_replaced_while_a_process_uses_them(void **state)
{
    struct source source = source_of(BYTES);
    struct tdm__cache_request request = request_for(&source);
    struct tdm__cached_content used;
    struct tdm__cached_content content;

    (void)state;
    assert_int_equal(tdm__content_cache_get(&request, &used), TDM_OK);
    assert_int_equal(truncate(used.path, BYTES / 2), 0);
    assert_int_equal(tdm__content_cache_get(&request, &content), TDM_OK);
    require_bytes(content.path, source.bytes);
    assert_int_equal(*fetches_count, 2);
    tdm__cached_content_release(&content);
    tdm__cached_content_release(&used);
}

static void test_same_contents_under_another_name_stay_while_a_process_uses_them(void **state)
{
    struct source source = source_of(BYTES);
    struct tdm__cache_request request = request_for(&source);
    struct tdm__cached_content used;
    struct tdm__cached_content content;

    (void)state;
    assert_int_equal(tdm__content_cache_get(&request, &used), TDM_OK);
    request.path = "/home/user/another.so";
    assert_int_equal(tdm__content_cache_get(&request, &content), TDM_OK);
    assert_string_not_equal(content.path, used.path);
    require_bytes(content.path, source.bytes);
    require_bytes(used.path, source.bytes);
    tdm__cached_content_release(&content);
    tdm__cached_content_release(&used);
}

static void test_nobody_else_can_reach_the_cache(void **state)
{
    struct source source = source_of(BYTES);
    struct tdm__cache_request request = request_for(&source);
    struct tdm__cached_content content;
    struct stat about;
    char cache[96];
    mode_t mask = umask(0); /* The modes do not depend on it. */

    (void)state;
    assert_int_equal(tdm__content_cache_get(&request, &content), TDM_OK);
    tdm__cached_content_release(&content);
    (void)umask(mask);
    (void)snprintf(cache, sizeof(cache), "%s/content", node);
    assert_int_equal(stat(cache, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0700);
    *strrchr(content.path, '/') = '\0';
    assert_int_equal(stat(content.path, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0700);
}

static void test_cache_that_others_may_write_is_refused(void **state)
{
    struct source source = source_of(BYTES);
    struct tdm__cache_request request = request_for(&source);
    struct tdm__cached_content content;
    char cache[96];

    (void)state;
    (void)snprintf(cache, sizeof(cache), "%s/content", node);
    assert_int_equal(mkdir(cache, 0700), 0);
    assert_int_equal(chmod(cache, 0777), 0);
    assert_int_equal(tdm__content_cache_get(&request, &content), TDM_E_AUTH);
    assert_non_null(strstr(tdm_error_detail(), cache));
    assert_int_equal(rmdir(cache), 0);
    assert_int_equal(symlink("/tmp", cache), 0);
    assert_int_equal(tdm__content_cache_get(&request, &content), TDM_E_AUTH);
    assert_int_equal(*fetches_count, 0);
}

static void test_unusual_paths_give_usable_names(void **state)
{
    static const char *const paths[] = {"lock",     "writer",        "/",    "",
                                        "/home/..", "/home/.hidden", "plain"};
    struct source source = source_of(BYTES);
    struct tdm__cache_request request = request_for(&source);
    struct tdm__cached_content content;

    (void)state;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        request.path = paths[i];
        assert_int_equal(tdm__content_cache_get(&request, &content), TDM_OK);
        assert_string_equal(strrchr(content.path, '/'), i < 6 ? "/file" : "/plain");
        require_bytes(content.path, source.bytes);
        tdm__cached_content_release(&content);
    }
}

static void test_old_contents_are_removed_unless_a_process_uses_them(void **state)
{
    enum { COUNT = TDM__CONTENT_CACHE_KEPT + 4 };
    struct tdm__cached_content contents[COUNT];
    uint32_t left = 0;

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++) {
        struct source source = source_of(i + 1);
        struct tdm__cache_request request = request_for(&source);

        assert_int_equal(tdm__content_cache_get(&request, &contents[i]), TDM_OK);
        if (i != 0) {
            tdm__cached_content_release(&contents[i]);
        }
        (void)usleep(20000); /* So that the times of use differ. */
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        left += access(contents[i].path, F_OK) == 0 ? 1 : 0;
    }
    assert_int_equal(access(contents[0].path, F_OK), 0); /* Oldest, but used. */
    assert_int_equal(access(contents[1].path, F_OK), -1);
    assert_int_equal(access(contents[COUNT - 1].path, F_OK), 0);
    assert_true(left >= TDM__CONTENT_CACHE_KEPT && left < COUNT);
    tdm__cached_content_release(&contents[0]);
}

static void test_archive_is_kept_unpacked_and_checked_each_time(void **state)
{
    char folder[96];
    char path[TDM__PATH_BYTES + 32];
    struct source source = {.calls_count = fetches_count};
    struct tdm__cached_content content;
    struct tdm__cache_request request;
    struct tdm__module_files files = {.folder = folder};
    tdm_writer *archive;
    FILE *file;

    (void)state;
    (void)snprintf(folder, sizeof(folder), "%s/from", node);
    assert_int_equal(mkdir(folder, 0700), 0);
    (void)snprintf(path, sizeof(path), "%s/job.py", folder);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs("value = 1\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(tdm__module_archive_pack(&files, BYTES, &archive), TDM_OK);
    source.bytes = tdm_writer_bytes(archive);
    request = request_for(&source);
    request.is_archive = true;
    assert_int_equal(tdm__content_cache_get(&request, &content), TDM_OK);
    tdm__cached_content_release(&content);
    (void)snprintf(path, sizeof(path), "%s/__pycache__", content.path);
    assert_int_equal(mkdir(path, 0700), 0); /* Python compiles what it imports. */
    assert_int_equal(tdm__content_cache_get(&request, &content), TDM_OK);
    tdm__cached_content_release(&content);
    assert_int_equal(*fetches_count, 1);
    (void)snprintf(path, sizeof(path), "%s/job.py", content.path);
    assert_int_equal(truncate(path, 3), 0);
    assert_int_equal(tdm__content_cache_get(&request, &content), TDM_OK);
    assert_int_equal(*fetches_count, 2);
    require_bytes(path, (struct tdm_bytes){"value = 1\n", 10});
    tdm__cached_content_release(&content);
    tdm_writer_destroy(archive);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, create_node, remove_node)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(test_contents_are_fetched_once_and_kept_under_their_name),
        EACH(test_wrong_bytes_are_refused_with_both_hashes_and_not_kept),
        EACH(test_damaged_file_is_fetched_again),
        EACH(test_what_a_killed_writer_has_left_is_removed),
        EACH(test_writers_at_once_fetch_once_and_all_use_complete_contents),
        EACH(test_damaged_contents_are_replaced_while_a_process_uses_them),
        EACH(test_same_contents_under_another_name_stay_while_a_process_uses_them),
        EACH(test_nobody_else_can_reach_the_cache),
        EACH(test_cache_that_others_may_write_is_refused),
        EACH(test_unusual_paths_give_usable_names),
        EACH(test_old_contents_are_removed_unless_a_process_uses_them),
        EACH(test_archive_is_kept_unpacked_and_checked_each_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
