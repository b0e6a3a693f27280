/* job_contents_test.c - what a driver reads for other nodes, and what it says about it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/job_contents.h"

#include "colocate/job/module_archive.h"
#include "runtime/directory.h"

#include <tandem/tandem.h>

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

/* Folder of the job file of each test. */
static char folder[64];
static struct tdm__job_spec spec;
static struct tdm__job_contents contents;

static int create_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/tandem-contents-XXXXXX");
    contents = (struct tdm__job_contents){.is_read = false};
    spec.config = NULL;
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int remove_folder(void **state)
{
    (void)state;
    tdm__job_contents_fini(&contents);
    tdm__job_spec_fini(&spec);
    tdm__directory_remove(folder);
    return 0;
}

/* Writes a text into a file of the folder, and creates the file's own folder. */
static void write_file(const char *name, const char *text)
{
    char path[256];
    char *slash;
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    slash = strrchr(path, '/');
    *slash = '\0';
    (void)mkdir(path, 0755);
    *slash = '/';
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Reads a job file with these settings in the sections "job" and "model". */
static void read_spec(const char *job, const char *model)
{
    char text[512];
    tdm_config *config;

    (void)snprintf(text, sizeof(text),
                   "job: {%s}\nmodel: {%s}\ndata: {train: none, unseen: none}\n", job, model);
    assert_int_equal(tdm_config_parse(text, strlen(text), "job.yaml", &config), TDM_OK);
    assert_int_equal(tdm__job_spec_from_config(config, folder, &spec), TDM_OK);
}

/* Checks that the archive has these names, separated by blanks, and nothing else. */
static void require_names(const char *names)
{
    char found[256] = "";
    size_t used = 0;
    tdm_document *document;
    struct tdm__module_archive_message archive;

    assert_int_equal(tdm_document_parse(contents.library.bytes, &document), TDM_OK);
    assert_int_equal(tdm__module_archive_decode(tdm_document_root(document), &archive), TDM_OK);
    for (uint32_t i = 0; i < archive.entries.count; i++) {
        struct tdm__archive_entry_message entry;

        tdm__message_list_read(&archive.entries, i, &entry, sizeof(entry));
        used += (size_t)snprintf(found + used, sizeof(found) - used, "%s%s", i > 0 ? " " : "",
                                 entry.path);
    }
    assert_string_equal(found, names);
    tdm_document_destroy(document);
}

static void test_library_and_model_config_are_read_once_with_their_hashes(void **state)
{
    struct tdm__content_hash hash;

    (void)state;
    write_file("mine.so", "library");
    write_file("config.json", "{}");
    read_spec("library: mine.so", "config: config.json");
    assert_int_equal(tdm__job_contents_read(&spec, &contents), TDM_OK);
    assert_true(contents.is_read);
    write_file("mine.so", "another one, which the job does not use");
    assert_int_equal(contents.library.bytes.size_bytes, 7);
    assert_memory_equal(contents.library.bytes.data, "library", 7);
    assert_int_equal(tdm__content_hash_bytes((struct tdm_bytes){"library", 7}, &hash), TDM_OK);
    assert_true(tdm__content_hash_equal(&hash, &contents.library.hash));
    assert_memory_equal(contents.model_config.bytes.data, "{}", 2);
}

static void test_missing_and_unreadable_files_are_named(void **state)
{
    (void)state;
    write_file("mine.so", "library");
    read_spec("library: mine.so", "config: missing.json");
    assert_int_equal(tdm__job_contents_read(&spec, &contents), TDM_E_NOT_FOUND);
    assert_non_null(strstr(tdm_error_detail(), "missing.json"));
    assert_non_null(strstr(tdm_error_detail(), "model.config cannot be given to other nodes"));
}

static void test_file_that_is_too_large_is_refused_with_both_numbers(void **state)
{
    char path[128];

    (void)state;
    write_file("mine.so", "");
    (void)snprintf(path, sizeof(path), "%s/mine.so", folder);
    assert_int_equal(truncate(path, (off_t)TDM__JOB_CONTENT_BYTES_MAX + 1), 0);
    read_spec("library: mine.so", "");
    assert_int_equal(tdm__job_contents_read(&spec, &contents), TDM_E_LIMIT);
    assert_non_null(strstr(tdm_error_detail(), "the job library cannot be given to other nodes"));
    assert_non_null(strstr(tdm_error_detail(), "536870913 bytes, the limit is 536870912"));
}

static void test_module_is_a_file_or_a_package_of_the_folder(void **state)
{
    (void)state;
    write_file("letters.py", "");
    write_file("helpers.py", "");
    write_file("letters/data.txt", ""); /* No package: the file has precedence. */
    read_spec("library: 'python:letters'", "");
    assert_int_equal(tdm__job_contents_read(&spec, &contents), TDM_OK);
    require_names("letters.py");
    tdm__job_contents_fini(&contents);
    write_file("letters/__init__.py", "");
    assert_int_equal(tdm__job_contents_read(&spec, &contents), TDM_OK);
    require_names("letters/__init__.py letters/data.txt");
}

static void test_module_with_dots_means_its_package(void **state)
{
    (void)state;
    write_file("package/job.py", "");
    read_spec("library: 'python:package.job'", "");
    assert_int_equal(tdm__job_contents_read(&spec, &contents), TDM_OK);
    require_names("package/job.py");
}

static void test_files_of_the_job_file_are_added(void **state)
{
    (void)state;
    write_file("letters.py", "");
    write_file("helpers.py", "");
    write_file("data/a.txt", "");
    write_file("data/b.txt", "");
    write_file("secret.txt", "");
    read_spec("library: 'python:letters', files: '  helpers.py data/ '", "");
    assert_int_equal(tdm__job_contents_read(&spec, &contents), TDM_OK);
    require_names("data/a.txt data/b.txt helpers.py letters.py");
}

static void test_file_of_the_job_file_that_is_missing_or_outside_is_refused(void **state)
{
    (void)state;
    write_file("letters.py", "");
    read_spec("library: 'python:letters', files: 'missing.py'", "");
    assert_int_not_equal(tdm__job_contents_read(&spec, &contents), TDM_OK);
    assert_non_null(strstr(tdm_error_detail(), "missing.py"));
    assert_non_null(strstr(tdm_error_detail(), "job.yaml:1"));
    tdm__job_contents_fini(&contents);
    tdm__job_spec_fini(&spec);
    read_spec("library: 'python:letters', files: '../other.py'", "");
    assert_int_equal(tdm__job_contents_read(&spec, &contents), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "../other.py"));
}

static void test_installed_module_is_not_read(void **state)
{
    struct tdm__rank_arguments_message arguments = {.rank = 0};

    (void)state;
    read_spec("library: 'python:json'", "");
    assert_int_equal(tdm__job_contents_read(&spec, &contents), TDM_OK);
    assert_string_equal(contents.library.path, "");
    tdm__job_contents_describe(&contents, &arguments);
    assert_false(arguments.has_library_content || arguments.has_model_config_content);
}

static void test_published_contents_are_in_the_arguments_and_can_be_fetched(void **state)
{
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    struct tdm__rank_arguments_message arguments = {.rank = 0};
    const void *data;
    size_t size_bytes;
    tdm_runtime *runtime;
    tdm_ref *ref;

    (void)state;
    write_file("mine.so", "library");
    read_spec("library: mine.so", "");
    assert_int_equal(tdm_runtime_start(&options, &runtime), TDM_OK);
    assert_int_equal(tdm__job_contents_read(&spec, &contents), TDM_OK);
    tdm__job_contents_describe(&contents, &arguments);
    assert_false(arguments.has_library_content); /* Not published yet. */
    tdm__job_contents_describe(NULL, &arguments);
    assert_int_equal(tdm__job_contents_publish(&contents, runtime), TDM_OK);
    tdm__job_contents_describe(&contents, &arguments);
    assert_true(arguments.has_library_content);
    assert_false(arguments.has_model_config_content);
    assert_int_equal(strlen(arguments.library_content.node), TDM__ID_TEXT_BYTES - 1);
    assert_int_equal(arguments.library_content.size_bytes, 7);
    assert_int_equal(tdm_ref_import(runtime, arguments.library_content.reference, &ref), TDM_OK);
    assert_int_equal(tdm_get(ref, 5000, "b", &data, &size_bytes), TDM_OK);
    assert_int_equal(size_bytes, 7);
    assert_memory_equal(data, "library", 7);
    tdm_ref_release(ref);
    tdm__job_contents_withdraw(&contents);
    tdm__job_contents_withdraw(&contents); /* Does nothing. */
    arguments.has_library_content = false;
    tdm__job_contents_describe(&contents, &arguments);
    assert_false(arguments.has_library_content);
    tdm_runtime_stop(runtime);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, create_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(test_library_and_model_config_are_read_once_with_their_hashes),
        EACH(test_missing_and_unreadable_files_are_named),
        EACH(test_file_that_is_too_large_is_refused_with_both_numbers),
        EACH(test_module_is_a_file_or_a_package_of_the_folder),
        EACH(test_module_with_dots_means_its_package),
        EACH(test_files_of_the_job_file_are_added),
        EACH(test_file_of_the_job_file_that_is_missing_or_outside_is_refused),
        EACH(test_installed_module_is_not_read),
        EACH(test_published_contents_are_in_the_arguments_and_can_be_fetched),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
