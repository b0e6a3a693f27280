/* rank_files_test.c - a rank uses the original file, or a copy in the cache of its node. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/rank_files.h"

#include "actors/process/runtime.h"
#include "colocate/job/module_archive.h"
#include "runtime/directory.h"

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

#define DRIVERS_NODE "00000000000000000000000000000001"
#define OTHER_NODE   "00000000000000000000000000000002"

/* Directory of each test, with the node's directory and the folder of the job in it. */
static char top[64];
static char node[96];
static char job[96];
static char file_path[128];

/* What a fetch gives, and how often it was called. */
static struct tdm_bytes fetched;
static uint32_t fetches_count;

static tdm_status fetch(void *arg, struct tdm_bytes *bytes_out)
{
    (void)arg;
    fetches_count++;
    *bytes_out = fetched;
    return TDM_OK;
}

static const struct tdm__content_place drivers_place = {node, DRIVERS_NODE, fetch, NULL};
static const struct tdm__content_place other_place = {node, OTHER_NODE, fetch, NULL};

/* Writes a text into the file of the job. */
static void write_file(const char *text)
{
    FILE *file = fopen(file_path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(file_path, 0644), 0);
}

static int create_folders(void **state)
{
    (void)state;
    (void)snprintf(top, sizeof(top), "/tmp/tandem-rank-files-XXXXXX");
    if (mkdtemp(top) == NULL) {
        return -1;
    }
    (void)snprintf(node, sizeof(node), "%s/node", top);
    (void)snprintf(job, sizeof(job), "%s/job", top);
    (void)snprintf(file_path, sizeof(file_path), "%s/mine.py", job);
    fetches_count = 0;
    if (mkdir(node, 0700) != 0 || mkdir(job, 0700) != 0) {
        return -1;
    }
    write_file("contents");
    return 0;
}

static int remove_folders(void **state)
{
    (void)state;
    tdm__directory_remove(top);
    return 0;
}

/* Returns the driver's message about a file with these bytes, which a fetch gives. */
static struct tdm__job_content_message announce_file(const char *text,
                                                     struct tdm__content_hash *hash)
{
    fetched = (struct tdm_bytes){text, strlen(text)};
    assert_int_equal(tdm__content_hash_bytes(fetched, hash), TDM_OK);
    return (struct tdm__job_content_message){.path = file_path,
                                             .hash = {hash->bytes, sizeof(hash->bytes)},
                                             .size_bytes = fetched.size_bytes,
                                             .node = DRIVERS_NODE,
                                             .reference = {"", 0}};
}

/* Checks that the content is a copy in the cache of the node with these bytes. */
static void require_copy(struct tdm__cached_content *content, const char *text)
{
    size_t size_bytes;
    char *bytes;

    assert_true(content->lock_fd >= 0);
    assert_int_equal(strncmp(content->path, node, strlen(node)), 0);
    assert_int_equal(tdm__file_read(content->path, 1000, &bytes, &size_bytes), TDM_OK);
    assert_string_equal(bytes, text);
    free(bytes);
    tdm__cached_content_release(content);
}

static void test_original_with_the_hash_is_used_on_the_drivers_node(void **state)
{
    struct tdm__content_hash hash;
    struct tdm__job_content_message message = announce_file("contents", &hash);
    struct tdm__cached_content content;

    (void)state;
    assert_int_equal(chmod(file_path, 0666), 0); /* The driver has used it all the same. */
    assert_int_equal(tdm__rank_files_locate(&message, &drivers_place, &content), TDM_OK);
    assert_string_equal(content.path, file_path);
    assert_int_equal(content.lock_fd, -1);
    assert_int_equal(fetches_count, 0);
}

static void test_original_is_used_on_another_node_if_nobody_else_can_change_it(void **state)
{
    struct tdm__content_hash hash;
    struct tdm__job_content_message message = announce_file("contents", &hash);
    struct tdm__cached_content content;

    (void)state;
    assert_int_equal(tdm__rank_files_locate(&message, &other_place, &content), TDM_OK);
    assert_string_equal(content.path, file_path);
    assert_int_equal(fetches_count, 0);
    assert_int_equal(chmod(job, 0777), 0); /* Another user could exchange it after the check. */
    assert_int_equal(tdm__rank_files_locate(&message, &other_place, &content), TDM_OK);
    require_copy(&content, "contents");
    assert_int_equal(fetches_count, 1);
}

static void test_changed_or_missing_original_is_replaced_by_the_announced_bytes(void **state)
{
    struct tdm__content_hash hash;
    struct tdm__job_content_message message = announce_file("contents", &hash);
    struct tdm__cached_content content;

    (void)state;
    write_file("contentS"); /* As many bytes. */
    assert_int_equal(tdm__rank_files_locate(&message, &drivers_place, &content), TDM_OK);
    require_copy(&content, "contents");
    assert_int_equal(unlink(file_path), 0);
    assert_int_equal(tdm__rank_files_locate(&message, &other_place, &content), TDM_OK);
    require_copy(&content, "contents");
    assert_int_equal(fetches_count, 1);
}

static void test_wrong_bytes_of_the_driver_are_refused_with_the_path(void **state)
{
    struct tdm__content_hash hash;
    struct tdm__job_content_message message = announce_file("contents", &hash);
    struct tdm__cached_content content;

    (void)state;
    assert_int_equal(unlink(file_path), 0);
    fetched = (struct tdm_bytes){"contentS", 8};
    assert_int_equal(tdm__rank_files_locate(&message, &other_place, &content), TDM_E_CHECKSUM);
    assert_non_null(strstr(tdm_error_detail(), file_path));
    message.hash.size_bytes = 31;
    assert_int_equal(tdm__rank_files_locate(&message, &other_place, &content), TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "a hash of 31 bytes, expected 32"));
}

/* Decodes the message about the module mine.py in the folder of the job. */
static struct tdm__job_content_message announce_module(struct tdm__content_hash *hash,
                                                       tdm_writer **archive_out,
                                                       tdm_document **document_out)
{
    static const char *const names[] = {"mine.py"};
    const struct tdm__module_files files = {job, names, 1};
    struct tdm__job_content_message message;
    tdm_writer *writer;

    assert_int_equal(tdm__module_archive_pack(&files, 1000, archive_out), TDM_OK);
    fetched = tdm_writer_bytes(*archive_out);
    assert_int_equal(tdm__content_hash_bytes(fetched, hash), TDM_OK);
    message = (struct tdm__job_content_message){.path = job,
                                                .names = {.count = 1, .items = names},
                                                .hash = {hash->bytes, sizeof(hash->bytes)},
                                                .size_bytes = fetched.size_bytes,
                                                .node = DRIVERS_NODE,
                                                .reference = {"", 0}};
    assert_int_equal(tdm_writer_create(&writer), TDM_OK);
    assert_int_equal(tdm__job_content_encode(&message, writer), TDM_OK);
    assert_int_equal(tdm_document_parse(tdm_writer_bytes(writer), document_out), TDM_OK);
    tdm_writer_destroy(writer);
    assert_int_equal(tdm__job_content_decode(tdm_document_root(*document_out), &message), TDM_OK);
    return message;
}

static void test_modules_are_found_by_name_or_in_a_folder_of_the_cache(void **state)
{
    struct tdm__content_hash hash;
    tdm_writer *archive;
    tdm_document *document;
    struct tdm__job_content_message message = announce_module(&hash, &archive, &document);
    struct tdm__cached_content content;
    struct tdm__rank_files files = {.is_python = true};

    (void)state;
    assert_int_equal(tdm__rank_files_locate(&message, &drivers_place, &content), TDM_OK);
    assert_string_equal(content.path, "");
    files.library = content;
    assert_null(tdm__rank_files_module_folder(&files));
    assert_int_equal(fetches_count, 0);
    write_file("changed after the driver has read it");
    assert_int_equal(tdm__rank_files_locate(&message, &drivers_place, &content), TDM_OK);
    assert_int_equal(fetches_count, 1);
    files.library = content;
    assert_string_equal(tdm__rank_files_module_folder(&files), content.path);
    files.is_python = false;
    assert_null(tdm__rank_files_module_folder(&files));
    (void)snprintf(content.path + strlen(content.path), sizeof(content.path) - strlen(content.path),
                   "/mine.py");
    require_copy(&content, "contents");
    tdm_document_destroy(document);
    tdm_writer_destroy(archive);
}

static void test_copy_that_cannot_be_opened_says_what_copies_lack(void **state)
{
    static struct tdm_runtime runtime;
    struct tdm__content_hash hash;
    struct tdm__rank_arguments_message arguments = {.library = file_path,
                                                    .model_config = "",
                                                    .has_library_content = true,
                                                    .library_content =
                                                        announce_file("no library", &hash)};
    struct tdm__cached_content content;
    struct tdm__rank_files files;
    struct tdm__job_library library;
    tdm_config *config;

    (void)state;
    assert_int_equal(tdm_config_parse("{}", 2, "job.yaml", &config), TDM_OK);
    (void)snprintf(runtime.directory, sizeof(runtime.directory), "%s", node);
    (void)snprintf(runtime.node_id, sizeof(runtime.node_id), "%s", OTHER_NODE);
    assert_int_equal(tdm__rank_files_locate(&arguments.library_content, &other_place, &content),
                     TDM_OK);
    tdm__cached_content_release(&content);
    assert_int_equal(tdm__rank_files_open(&runtime, &arguments, config, &files, &library),
                     TDM_E_PROTOCOL);
    assert_non_null(strstr(tdm_error_detail(), "$ORIGIN"));
    assert_non_null(strstr(tdm_error_detail(), "of node " DRIVERS_NODE));
    assert_non_null(strstr(tdm_error_detail(), "/content/"));
    tdm__cached_content_release(&files.library);
    tdm_config_destroy(config);
}

static void test_settings_have_the_path_of_a_copied_model_config(void **state)
{
    static struct tdm_runtime runtime;
    struct tdm__content_hash hash;
    struct tdm__rank_arguments_message arguments = {.library = "python:mine",
                                                    .model_config = file_path,
                                                    .has_model_config_content = true,
                                                    .model_config_content =
                                                        announce_file("{\"a\": 1}", &hash)};
    struct tdm__cached_content content;
    struct tdm__rank_files files;
    struct tdm__job_library library;
    const char *path = NULL;
    tdm_config *config;

    (void)state;
    assert_int_equal(tdm_config_parse("model: {config: mine.py}", 24, "job.yaml", &config), TDM_OK);
    (void)snprintf(runtime.directory, sizeof(runtime.directory), "%s", node);
    (void)snprintf(runtime.node_id, sizeof(runtime.node_id), "%s", OTHER_NODE);
    arguments.model_config_content.path = "/no/such/con\"fig.json";
    assert_int_equal(
        tdm__rank_files_locate(&arguments.model_config_content, &other_place, &content), TDM_OK);
    /* This process has registered no tables for libraries in Python. */
    assert_int_equal(tdm__rank_files_open(&runtime, &arguments, config, &files, &library),
                     TDM_E_PROTOCOL);
    assert_string_equal(files.model_config.path, content.path);
    assert_int_equal(tdm_config_string(config, "model.config", "", &path), TDM_OK);
    assert_string_equal(path, content.path);
    assert_null(tdm__rank_files_module_folder(&files));
    tdm__cached_content_release(&files.model_config);
    tdm__cached_content_release(&content);
    tdm_config_destroy(config);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, create_folders, remove_folders)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(test_original_with_the_hash_is_used_on_the_drivers_node),
        EACH(test_original_is_used_on_another_node_if_nobody_else_can_change_it),
        EACH(test_changed_or_missing_original_is_replaced_by_the_announced_bytes),
        EACH(test_wrong_bytes_of_the_driver_are_refused_with_the_path),
        EACH(test_modules_are_found_by_name_or_in_a_folder_of_the_cache),
        EACH(test_copy_that_cannot_be_opened_says_what_copies_lack),
        EACH(test_settings_have_the_path_of_a_copied_model_config),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
