/* module_archive_test.c - archives of random folders, of links, and hostile archives. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/module_archive.h"

#include "runtime/directory.h"
#include "runtime/file.h"
#include "runtime/messages/messages.h"
#include "tests/support/test_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { ROUNDS = 60, BYTES_MAX = 1 << 20 };

/* A folder for each test, with the folders "from" and, after unpacking, "to" in it. */
static char top[64];
static char from[96];
static char to[96];

static int create_folders(void **state)
{
    (void)state;
    (void)snprintf(top, sizeof(top), "/tmp/tandem-archive-XXXXXX");
    if (mkdtemp(top) == NULL) {
        return -1;
    }
    (void)snprintf(from, sizeof(from), "%s/from", top);
    (void)snprintf(to, sizeof(to), "%s/to", top);
    return mkdir(from, 0755);
}

static int remove_folders(void **state)
{
    (void)state;
    tdm__directory_remove(top);
    return 0;
}

/* Writes a file below `from`. */
static void write_file(const char *name, const void *bytes, size_t size_bytes, mode_t mode)
{
    char path[512];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", from, name);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size_bytes, file), size_bytes);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, mode), 0);
}

/* Creates a folder below `from`. */
static void create_folder(const char *name)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/%s", from, name);
    assert_int_equal(mkdir(path, 0755), 0);
}

/* Packs names below a folder; none for everything. */
static tdm_status pack(const char *folder, const char *const *names, uint32_t names_count,
                       tdm_writer **archive_out)
{
    const struct tdm__module_files files = {folder, names, names_count};

    return tdm__module_archive_pack(&files, BYTES_MAX, archive_out);
}

/* Checks that two archives have the same bytes. */
static void require_same(const tdm_writer *a, const tdm_writer *b)
{
    struct tdm_bytes left = tdm_writer_bytes(a);
    struct tdm_bytes right = tdm_writer_bytes(b);

    assert_int_equal(left.size_bytes, right.size_bytes);
    assert_memory_equal(left.data, right.data, left.size_bytes);
}

/* ---- random folders ---------------------------------------------------------------------- */

/* Creates a random tree below `from`, with names that begin with `prefix`. */
static void create_random_tree(struct test_random *chance, const char *prefix, int depth)
{
    uint32_t count = test_random_below(chance, 5);

    for (uint32_t i = 0; i < count; i++) {
        static const char *const kinds[] = {"m%u.py", "d%u", "é%u", "a b%u"};
        char part[32];
        char name[256];

        /* Names in no order of creation. The format is one of the constants above. */
        (void)snprintf(part, sizeof(part), kinds[test_random_below(chance, 4)], (7 - i) * 3 % 5);
        (void)snprintf(name, sizeof(name), "%s%s", prefix, part);
        if (depth > 0 && test_random_below(chance, 3) == 0) {
            char below[300];

            (void)snprintf(below, sizeof(below), "%s/%s", from, name);
            if (mkdir(below, 0755) == 0) {
                (void)snprintf(below, sizeof(below), "%s/", name);
                create_random_tree(chance, below, depth - 1);
            }
        } else {
            char bytes[3000];
            size_t size_bytes = test_random_below(chance, sizeof(bytes));
            char path[300];
            struct stat about;

            for (size_t n = 0; n < size_bytes; n++) {
                bytes[n] = (char)test_random_next(chance);
            }
            (void)snprintf(path, sizeof(path), "%s/%s", from, name);
            if (stat(path, &about) != 0) {
                write_file(name, bytes, size_bytes, test_random_below(chance, 2) ? 0755 : 0644);
            }
        }
    }
}

static void test_unpacked_archive_packs_to_the_same_bytes(void **state)
{
    uint64_t seed = test_random_first_seed("module_archive");

    (void)state;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct test_random chance = {seed + i};
        tdm_writer *archive = NULL;
        tdm_writer *again = NULL;
        struct stat about;

        tdm__directory_remove(from);
        tdm__directory_remove(to);
        assert_int_equal(mkdir(from, 0755), 0);
        create_random_tree(&chance, "", 4);
        assert_int_equal(pack(from, NULL, 0, &archive), TDM_OK);
        assert_int_equal(tdm__module_archive_unpack(tdm_writer_bytes(archive), to), TDM_OK);
        assert_int_equal(stat(to, &about), 0);
        assert_int_equal(about.st_mode & 07777, 0700);
        assert_int_equal(pack(to, NULL, 0, &again), TDM_OK);
        require_same(archive, again);
        tdm_writer_destroy(archive);
        tdm_writer_destroy(again);
    }
}

/* ---- what is packed ---------------------------------------------------------------------- */

static void test_archive_depends_on_contents_and_not_on_times(void **state)
{
    tdm_writer *first = NULL;
    tdm_writer *second = NULL;
    char path[128];

    (void)state;
    write_file("a.py", "one", 3, 0644);
    write_file("b.py", "two", 3, 0644);
    assert_int_equal(pack(from, NULL, 0, &first), TDM_OK);
    (void)snprintf(path, sizeof(path), "%s/a.py", from);
    assert_int_equal(unlink(path), 0);
    write_file("a.py", "one", 3, 0600); /* After b.py, with other times and another mode. */
    assert_int_equal(pack(from, NULL, 0, &second), TDM_OK);
    require_same(first, second);
    tdm_writer_destroy(second);
    write_file("a.py", "onE", 3, 0600);
    assert_int_equal(pack(from, NULL, 0, &second), TDM_OK);
    assert_memory_not_equal(tdm_writer_bytes(first).data, tdm_writer_bytes(second).data,
                            tdm_writer_bytes(first).size_bytes);
    tdm_writer_destroy(first);
    tdm_writer_destroy(second);
}

/* Returns whether a file exists below `to`. */
static bool is_unpacked(const char *name)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/%s", to, name);
    return access(path, F_OK) == 0;
}

static void test_only_what_is_named_is_packed(void **state)
{
    static const char *const names[] = {"job.py", "package", "data/letters.txt", "job.py"};
    tdm_writer *archive = NULL;

    (void)state;
    create_folder("package");
    create_folder("package/__pycache__");
    create_folder("package/.git");
    create_folder("data");
    write_file("job.py", "1", 1, 0644);
    write_file("secret.py", "2", 1, 0644);
    write_file("package/__init__.py", "", 0, 0644);
    write_file("package/__pycache__/x.pyc", "3", 1, 0644);
    write_file("package/.git/config", "4", 1, 0644);
    write_file("package/.hidden", "5", 1, 0644);
    write_file("data/letters.txt", "6", 1, 0644);
    write_file("data/large.bin", "7", 1, 0644);
    assert_int_equal(pack(from, names, 4, &archive), TDM_OK);
    assert_int_equal(tdm__module_archive_unpack(tdm_writer_bytes(archive), to), TDM_OK);
    tdm_writer_destroy(archive);
    assert_true(is_unpacked("job.py") && is_unpacked("package/__init__.py") &&
                is_unpacked("data/letters.txt"));
    assert_false(is_unpacked("secret.py") || is_unpacked("package/__pycache__") ||
                 is_unpacked("package/.git") || is_unpacked("package/.hidden") ||
                 is_unpacked("data/large.bin"));
}

static void test_names_that_lead_out_of_the_folder_are_refused(void **state)
{
    static const char *const bad[] = {"../other", "/etc/passwd", "a/../../b", ".",           "",
                                      "a//b",     ".hidden",     "a/.b",      "__pycache__", "a/",
                                      "a\nb",     "\xff"};
    tdm_writer *archive;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(pack(from, &bad[i], 1, &archive), TDM_E_INVAL);
        assert_non_null(strstr(tdm_error_detail(), bad[i]));
    }
}

static void test_missing_and_unreadable_names_are_errors_with_their_paths(void **state)
{
    static const char *const name = "missing.py";
    tdm_writer *archive;

    (void)state;
    assert_int_equal(pack(from, &name, 1, &archive), TDM_E_IO);
    assert_non_null(strstr(tdm_error_detail(), "missing.py"));
    assert_int_equal(pack("/no/such/folder", NULL, 0, &archive), TDM_E_IO);
    assert_non_null(strstr(tdm_error_detail(), "/no/such/folder"));
}

static void test_too_many_bytes_are_refused_with_both_numbers(void **state)
{
    const struct tdm__module_files files = {.folder = from};
    tdm_writer *archive;

    (void)state;
    write_file("a.py", "12345", 5, 0644);
    write_file("b.py", "123456", 6, 0644);
    assert_int_equal(tdm__module_archive_pack(&files, 11, &archive), TDM_OK);
    tdm_writer_destroy(archive);
    assert_int_equal(tdm__module_archive_pack(&files, 10, &archive), TDM_E_LIMIT);
    assert_non_null(strstr(tdm_error_detail(), "6 bytes after 5 bytes"));
    assert_non_null(strstr(tdm_error_detail(), "is 10"));
}

/* ---- links ------------------------------------------------------------------------------- */

/* Creates a link below `from`. */
static void create_link(const char *target, const char *name)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/%s", from, name);
    assert_int_equal(symlink(target, path), 0);
}

static void test_link_to_a_file_inside_is_packed_as_the_file(void **state)
{
    tdm_writer *archive = NULL;
    struct stat about;
    char path[128];

    (void)state;
    write_file("a.py", "one", 3, 0644);
    create_link("a.py", "b.py");
    assert_int_equal(pack(from, NULL, 0, &archive), TDM_OK);
    assert_int_equal(tdm__module_archive_unpack(tdm_writer_bytes(archive), to), TDM_OK);
    tdm_writer_destroy(archive);
    (void)snprintf(path, sizeof(path), "%s/b.py", to);
    assert_int_equal(lstat(path, &about), 0);
    assert_true(S_ISREG(about.st_mode) && about.st_size == 3);
}

static void test_links_out_of_the_folder_to_folders_and_to_nothing_are_refused(void **state)
{
    static const char *const targets[] = {"/etc/passwd", "../outside", "../from-here", "folder",
                                          "nothing"};
    tdm_writer *archive;
    char path[128];
    FILE *file;

    (void)state;
    for (size_t i = 1; i <= 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", from, targets[i]);
        file = fopen(path, "w");
        assert_non_null(file);
        assert_int_equal(fclose(file), 0);
    }
    create_folder("folder");
    (void)snprintf(path, sizeof(path), "%s/link", from);
    for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
        tdm_status status;

        create_link(targets[i], "link");
        status = pack(from, NULL, 0, &archive);
        assert_true(status == TDM_E_INVAL || status == TDM_E_IO);
        assert_non_null(strstr(tdm_error_detail(), "/from/link"));
        assert_int_equal(unlink(path), 0);
    }
}

static void test_what_is_neither_file_nor_folder_is_refused(void **state)
{
    tdm_writer *archive;
    char path[128];

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/pipe", from);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(pack(from, NULL, 0, &archive), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "/from/pipe"));
}

/* ---- hostile archives -------------------------------------------------------------------- */

/* Unpacks an archive that is made of these entries. */
static tdm_status unpack_entries(const struct tdm__archive_entry_message *entries, uint32_t count)
{
    const struct tdm__module_archive_message message = {
        .entries = {.count = count, .items = entries}};
    tdm_writer *writer;
    tdm_status status;

    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    assert_int_equal(tdm__module_archive_encode(&message, writer), TDM_OK);
    status = tdm__module_archive_unpack(tdm_writer_bytes(writer), to);
    tdm_writer_destroy(writer);
    return status;
}

static void test_archive_with_a_path_out_of_its_folder_is_refused(void **state)
{
    static const char *const bad[] = {"../x", "/x",    "a/../../x", "..",        ".",    "",
                                      "a//b", "a/./b", "a/",        ".ssh/keys", "a/..", "a\x01z"};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const struct tdm__archive_entry_message entry = {.path = bad[i], .contents = {"x", 1}};
        char outside[128];

        assert_int_equal(unpack_entries(&entry, 1), TDM_E_PROTOCOL);
        (void)snprintf(outside, sizeof(outside), "%s/x", top);
        assert_int_equal(access(outside, F_OK), -1);
        tdm__directory_remove(to);
    }
}

static void test_archive_with_repeated_or_unordered_paths_is_refused(void **state)
{
    const struct tdm__archive_entry_message twice[] = {{.path = "a", .contents = {"1", 1}},
                                                       {.path = "a", .contents = {"2", 1}}};
    const struct tdm__archive_entry_message unordered[] = {{.path = "b", .contents = {"1", 1}},
                                                           {.path = "a", .contents = {"2", 1}}};
    const struct tdm__archive_entry_message below_a_file[] = {
        {.path = "a", .contents = {"1", 1}}, {.path = "a/b", .contents = {"2", 1}}};

    (void)state;
    assert_int_equal(unpack_entries(twice, 2), TDM_E_PROTOCOL);
    tdm__directory_remove(to);
    assert_int_equal(unpack_entries(unordered, 2), TDM_E_PROTOCOL);
    tdm__directory_remove(to);
    assert_int_equal(unpack_entries(below_a_file, 2), TDM_E_IO);
}

static void test_archive_is_not_unpacked_into_an_existing_folder(void **state)
{
    const struct tdm__archive_entry_message entry = {.path = "a", .contents = {"1", 1}};

    (void)state;
    assert_int_equal(symlink(from, to), 0); /* A link that another process could have planted. */
    assert_int_equal(unpack_entries(&entry, 1), TDM_E_IO);
    assert_int_equal(unlink(to), 0);
}

static void test_every_cut_and_many_damaged_archives_are_refused_or_stay_inside(void **state)
{
    struct test_random chance = test_random_init("module_archive_damage", 7);
    tdm_writer *archive = NULL;
    char *bytes;
    size_t size_bytes;

    (void)state;
    create_folder("package");
    write_file("a.py", "one", 3, 0644);
    write_file("package/b.py", "two", 3, 0755);
    assert_int_equal(pack(from, NULL, 0, &archive), TDM_OK);
    size_bytes = tdm_writer_bytes(archive).size_bytes;
    bytes = malloc(size_bytes);
    assert_non_null(bytes);
    for (size_t i = 0; i < size_bytes; i++) {
        const struct tdm_bytes cut = {tdm_writer_bytes(archive).data, i};

        assert_int_not_equal(tdm__module_archive_unpack(cut, to), TDM_OK);
        tdm__directory_remove(to);
    }
    for (uint32_t i = 0; i < 2000; i++) {
        memcpy(bytes, tdm_writer_bytes(archive).data, size_bytes);
        bytes[test_random_below(&chance, (uint32_t)size_bytes)] = (char)test_random_next(&chance);
        (void)tdm__module_archive_unpack((struct tdm_bytes){bytes, size_bytes}, to);
        tdm__directory_remove(to);
    }
    free(bytes);
    tdm_writer_destroy(archive);
    tdm__directory_remove(from);
    assert_int_equal(rmdir(top), 0); /* Nothing else was created. */
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, create_folders, remove_folders)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(test_unpacked_archive_packs_to_the_same_bytes),
        EACH(test_archive_depends_on_contents_and_not_on_times),
        EACH(test_only_what_is_named_is_packed),
        EACH(test_names_that_lead_out_of_the_folder_are_refused),
        EACH(test_missing_and_unreadable_names_are_errors_with_their_paths),
        EACH(test_too_many_bytes_are_refused_with_both_numbers),
        EACH(test_link_to_a_file_inside_is_packed_as_the_file),
        EACH(test_links_out_of_the_folder_to_folders_and_to_nothing_are_refused),
        EACH(test_what_is_neither_file_nor_folder_is_refused),
        EACH(test_archive_with_a_path_out_of_its_folder_is_refused),
        EACH(test_archive_with_repeated_or_unordered_paths_is_refused),
        EACH(test_archive_is_not_unpacked_into_an_existing_folder),
        EACH(test_every_cut_and_many_damaged_archives_are_refused_or_stay_inside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
