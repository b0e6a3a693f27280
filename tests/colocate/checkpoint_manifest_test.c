/* checkpoint_manifest_test.c - every change of a checkpoint's files is noticed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/checkpoint_manifest.h"

#include "runtime/error.h"
#include "tests/support/disk_log.h"
#include "tests/support/redis_fixture.h"

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

#define TRY(x) assert_int_equal((x), TDM_OK)

static char directory[64]; /* The checkpoint. */
static const struct tdm__checkpoint_origin origin = {12, "5f3a"};

/* Checks the checkpoint. If it is accepted, the save that has written it is returned, too. */
static tdm_status verify_manifest(void)
{
    struct tdm__checkpoint_origin found = {.step = 77};
    tdm_status status = tdm__checkpoint_manifest_verify(directory, &found);

    if (status == TDM_OK) {
        assert_int_equal(found.step, origin.step);
        assert_string_equal(found.run, origin.run);
    }
    return status;
}

/* Returns the path of a file of the checkpoint. */
static const char *path(const char *name)
{
    static char whole[128];

    (void)snprintf(whole, sizeof(whole), "%s/%s", directory, name);
    return whole;
}

static void write_file(const char *name, const void *bytes, size_t size_bytes)
{
    FILE *file = fopen(path(name), "w");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size_bytes, file), size_bytes);
    assert_int_equal(fclose(file), 0);
}

/* Contents of the files of the checkpoint; the large one is read in several parts. */
static const char small[] = "a rank's file";
static char large[600000];

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(directory, sizeof(directory), "/tmp/tandem-manifest-XXXXXX");
    if (mkdtemp(directory) == NULL || mkdir(path("hf"), 0777) != 0) {
        return -1;
    }
    for (size_t i = 0; i < sizeof(large); i++) {
        large[i] = (char)(i * i % 251);
    }
    write_file("rank-0", small, sizeof(small));
    write_file("rank-1", "", 0);
    write_file("hf/model", large, sizeof(large));
    write_file("hf/a name with spaces", "x", 1);
    return tdm__checkpoint_manifest_write(directory, &origin) == TDM_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    remove_tree(directory);
    return 0;
}

/* Checks that the checkpoint is refused with an error that has these words. */
static void assert_refused(tdm_status status, const char *words)
{
    assert_int_equal(verify_manifest(), status);
    if (strstr(tdm_error_detail(), words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", tdm_error_detail(), words);
    }
}

static void unchanged_checkpoint_is_accepted(void **state)
{
    (void)state;
    TRY(verify_manifest());
    write_file(".hidden", "x", 1); /* Such as those of a network file system. */
    TRY(verify_manifest());
    TRY(tdm__checkpoint_manifest_write(directory, &origin));
    TRY(verify_manifest());
}

static void each_flipped_bit_is_noticed(void **state)
{
    char changed[sizeof(small)];

    (void)state;
    for (size_t bit = 0; bit < 8 * sizeof(small); bit++) {
        memcpy(changed, small, sizeof(small));
        changed[bit / 8] = (char)(changed[bit / 8] ^ (1 << bit % 8));
        write_file("rank-0", changed, sizeof(changed));
        assert_refused(TDM_E_PROTOCOL, "/rank-0 is damaged: 14 bytes with hash");
    }
    write_file("rank-0", small, sizeof(small));
    TRY(verify_manifest());
    large[sizeof(large) - 1] ^= 1;
    write_file("hf/model", large, sizeof(large));
    assert_refused(TDM_E_PROTOCOL, "/hf/model is damaged: 600000 bytes");
}

static void other_length_is_noticed(void **state)
{
    (void)state;
    write_file("rank-1", "\0", 1);
    assert_refused(TDM_E_PROTOCOL, "/rank-1 is damaged: 1 bytes");
    write_file("rank-1", "", 0);
    write_file("rank-0", small, sizeof(small) - 1);
    assert_refused(TDM_E_PROTOCOL, "13 bytes with hash");
}

static void missing_file_is_named(void **state)
{
    (void)state;
    assert_int_equal(unlink(path("rank-1")), 0);
    assert_refused(TDM_E_PROTOCOL, "/rank-1 is missing");
    write_file("rank-1", "", 0);
    assert_int_equal(unlink(path("hf/a name with spaces")), 0);
    assert_refused(TDM_E_PROTOCOL, "/hf/a name with spaces is missing");
}

static void file_that_is_not_listed_is_named(void **state)
{
    (void)state;
    write_file("rank-2", "of another run", 14);
    assert_refused(TDM_E_PROTOCOL, "/rank-2 is not in the manifest");
}

static void exchanged_files_are_noticed(void **state)
{
    (void)state;
    write_file("rank-0", "", 0);
    write_file("rank-1", small, sizeof(small));
    assert_refused(TDM_E_PROTOCOL, "/rank-0 is damaged");
}

static void link_is_no_file(void **state)
{
    (void)state;
    assert_int_equal(unlink(path("rank-1")), 0);
    assert_int_equal(symlink("rank-0", path("rank-1")), 0);
    assert_refused(TDM_E_STATE, "rank-1 is neither a file nor a directory");
    assert_int_equal(tdm__checkpoint_manifest_write(directory, &origin), TDM_E_STATE);
}

static void missing_manifest_is_named(void **state)
{
    (void)state;
    assert_int_equal(unlink(path("manifest")), 0);
    assert_refused(TDM_E_NOT_FOUND, "/manifest");
}

/* A line of a manifest of another save, for example with a file that was copied from there. */
static void file_of_another_save_is_named(void **state)
{
    static const char *const lines[] = {" 14 12 5f3b rank-0", " 14 13 5f3a rank-0"};
    static char text[1024];
    FILE *file = fopen(path("manifest"), "r");
    size_t size_bytes;

    (void)state;
    assert_non_null(file);
    size_bytes = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        char *line = strstr(text, i == 0 ? " 14 12 5f3a rank-0" : lines[0]);

        assert_non_null(line);
        memcpy(line, lines[i], strlen(lines[i]));
        write_file("manifest", text, size_bytes);
        assert_refused(TDM_E_PROTOCOL, i == 0 ? "/rank-0 is of step 12 of run 5f3b"
                                              : "/rank-0 is of step 13 of run 5f3a");
    }
}

#define HASH "00000000000000000000000000000000"

static void manifest_of_another_form_is_refused(void **state)
{
    static const char *const lines[] = {
        "",
        "tandem checkpoint manifest 1\n",
        "tandem checkpoint manifest 2\nshort 1 12 5f3a rank-0\n",
        "tandem checkpoint manifest 2\n" HASH " one 12 5f3a rank-0\n",
        "tandem checkpoint manifest 2\n" HASH " 1\n",
        "tandem checkpoint manifest 2\n" HASH " 1 12\n",
        "tandem checkpoint manifest 2\n" HASH " 1 12 5f3a\n",
        "tandem checkpoint manifest 2\n" HASH " 1 12 5f3a \n",
        "tandem checkpoint manifest 2\n" HASH " 1 4294967296 5f3a rank-0\n",
        "tandem checkpoint manifest 2\n" HASH " 1 12  rank-0\n",
        "tandem checkpoint manifest 2\n" HASH " 1 12 " HASH HASH " rank-0\n",
        "tandem checkpoint manifest 2\n" HASH " -1 12 5f3a rank-0\n",
        "tandem checkpoint manifest 2",
        "tandem checkpoint manifest 2\n" HASH " 1 12 5f3a rank-0"};

    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        write_file("manifest", lines[i], strlen(lines[i]));
        assert_refused(TDM_E_PROTOCOL, "/manifest:");
    }
    write_file("manifest", "tandem checkpoint manifest 2\n\0", 30);
    assert_refused(TDM_E_PROTOCOL, "a byte 0 at position 29");
    write_file("manifest", "tandem checkpoint manifest 2\n", 29);
    assert_refused(TDM_E_PROTOCOL, "is not in the manifest");
}

/* A manifest with any one byte changed is refused, or it says the same. */
static void each_changed_byte_of_the_manifest_is_noticed(void **state)
{
    static char text[1024];
    FILE *file = fopen(path("manifest"), "r");
    size_t size_bytes;

    (void)state;
    assert_non_null(file);
    size_bytes = fread(text, 1, sizeof(text), file);
    (void)fclose(file);
    assert_in_range(size_bytes, 100, sizeof(text) - 1);
    for (size_t i = 0; i + 1 < size_bytes; i++) {
        text[i] ^= 4;
        write_file("manifest", text, size_bytes);
        assert_int_not_equal(verify_manifest(), TDM_OK);
        text[i] ^= 4;
    }
}

static void missing_directory_is_refused(void **state)
{
    struct tdm__checkpoint_origin found;

    (void)state;
    assert_int_not_equal(tdm__checkpoint_manifest_write("/no/such/directory", &origin), TDM_OK);
    assert_int_equal(tdm__checkpoint_manifest_verify("/no/such/directory", &found),
                     TDM_E_NOT_FOUND);
}

/* All that the manifest lists is on disk before the manifest has its name, files that ranks have
 * written and the directories with their names alike. */
static void all_is_on_disk_before_the_manifest_has_its_name(void **state)
{
    static const char *const written[] = {
        "/rank-0", "/rank-1", "/hf/model", "/hf/a name with spaces", "/hf", ""};
    char synced[128];
    char renamed[128];

    (void)state;
    disk_log_clear();
    TRY(tdm__checkpoint_manifest_write(directory, &origin));
    (void)snprintf(renamed, sizeof(renamed), "rename %s/", directory);
    for (size_t i = 0; i < sizeof(written) / sizeof(written[0]); i++) {
        (void)snprintf(synced, sizeof(synced), "fsync %s%s\n", directory, written[i]);
        disk_log_expect(synced, renamed);
    }
    disk_log_expect(renamed, synced); /* The name of the manifest, which is in the directory. */
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(unchanged_checkpoint_is_accepted),
        EACH(all_is_on_disk_before_the_manifest_has_its_name),
        EACH(each_flipped_bit_is_noticed),
        EACH(other_length_is_noticed),
        EACH(missing_file_is_named),
        EACH(file_that_is_not_listed_is_named),
        EACH(exchanged_files_are_noticed),
        EACH(link_is_no_file),
        EACH(missing_manifest_is_named),
        EACH(file_of_another_save_is_named),
        EACH(manifest_of_another_form_is_refused),
        EACH(each_changed_byte_of_the_manifest_is_noticed),
        EACH(missing_directory_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
