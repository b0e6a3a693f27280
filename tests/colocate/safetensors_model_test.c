/* safetensors_model_test.c - models in several files are written and read like one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <tandem/tensor.h>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { TENSORS = 40, ELEMENTS = 256, PATH_BYTES = 256 };
enum { MEETING_S = 20 }; /* Seconds that the first thread waits for another one. */

/* A step at which two threads must be at the same time. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_armed;    /* The step is watched. */
    unsigned inside;  /* Threads that have come to the step. */
    bool has_met;     /* Two threads were there at once. */
    bool has_expired; /* No other thread came in time. */
} meeting = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void meeting_arm(bool is_armed)
{
    (void)pthread_mutex_lock(&meeting.lock);
    meeting.is_armed = is_armed;
    meeting.inside = 0;
    meeting.has_met = false;
    meeting.has_expired = false;
    (void)pthread_mutex_unlock(&meeting.lock);
}

/* Blocks the first thread until a second one is here, too. A program that takes one file after the
 * other never has two. */
static void meeting_enter(void)
{
    struct timespec end;

    (void)clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += MEETING_S;
    (void)pthread_mutex_lock(&meeting.lock);
    if (meeting.is_armed) {
        meeting.inside++;
        meeting.has_met = meeting.has_met || meeting.inside >= 2;
        (void)pthread_cond_broadcast(&meeting.changed);
        while (!meeting.has_met && !meeting.has_expired) {
            meeting.has_expired =
                pthread_cond_timedwait(&meeting.changed, &meeting.lock, &end) != 0;
        }
        meeting.inside--;
    }
    (void)pthread_mutex_unlock(&meeting.lock);
}

/* Take the place of the C library's functions, which the library calls once for each file: the one
 * when a file is complete, the other one when it is mapped for reading. */
__attribute__((visibility("default"))) int rename(const char *from, const char *to)
{
    meeting_enter();
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

__attribute__((visibility("default"))) int madvise(void *address, size_t size_bytes, int advice)
{
    if (advice == MADV_WILLNEED) {
        meeting_enter();
    }
    return (int)syscall(SYS_madvise, address, size_bytes, advice);
}

static char directory[64];
static char names[TENSORS][16];
static float elements[TENSORS][ELEMENTS];
static struct tdm_tensor_view tensors[TENSORS];

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(directory, sizeof(directory), "/tmp/tandem-model-XXXXXX");
    assert_non_null(mkdtemp(directory));
    for (int i = 0; i < TENSORS; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "layer.%d", i);
        for (int k = 0; k < ELEMENTS; k++) {
            elements[i][k] = (float)(i * ELEMENTS + k);
        }
        tensors[i] = (struct tdm_tensor_view){{names[i], TDM_F32, 1, {ELEMENTS}}, {1}, elements[i]};
    }
    return 0;
}

static int tear_down(void **state)
{
    DIR *files = opendir(directory);
    const struct dirent *entry;

    (void)state;
    assert_non_null(files);
    while ((entry = readdir(files)) != NULL) {
        if (entry->d_name[0] != '.') {
            assert_int_equal(unlinkat(dirfd(files), entry->d_name, 0), 0);
        }
    }
    assert_int_equal(closedir(files), 0);
    return rmdir(directory);
}

static const char *path_of(const char *name)
{
    static char path[PATH_BYTES];

    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    return path;
}

static void put_text(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void assert_whole(const char *path)
{
    tdm_safetensors *model;

    TRY(tdm_safetensors_open(path, &model));
    assert_int_equal(tdm_safetensors_count(model), TENSORS);
    for (int i = 0; i < TENSORS; i++) {
        const struct tdm_tensor_view *view = tdm_safetensors_find(model, names[i]);

        assert_non_null(view);
        assert_string_equal(view->info.name, names[i]);
        assert_memory_equal(view->data, elements[i], sizeof(elements[i]));
        /* The files are in the order of the tensors. */
        assert_ptr_equal(view, tdm_safetensors_view(model, (uint32_t)i));
    }
    assert_null(tdm_safetensors_find(model, "layer.40"));
    assert_null(tdm_safetensors_view(model, TENSORS));
    tdm_safetensors_close(model);
}

static void model_in_several_files_is_one_model(void **state)
{
    (void)state;
    /* Three tensors a file: thirteen files, and one with the last tensor. */
    TRY(tdm_safetensors_write_model(directory, tensors, TENSORS, 3 * sizeof(elements[0]) + 1));
    assert_int_equal(access(path_of("model-00001-of-00014.safetensors"), F_OK), 0);
    assert_int_equal(access(path_of("model-00014-of-00014.safetensors"), F_OK), 0);
    assert_int_not_equal(access(path_of("model.safetensors"), F_OK), 0);
    assert_whole(directory);
    assert_whole(path_of("model.safetensors.index.json"));
}

/* Goal: two files are written, and two are read, at the same time. */
static void files_are_written_and_read_in_parallel(void **state)
{
    tdm_safetensors *model;

    (void)state;
    meeting_arm(true);
    TRY(tdm_safetensors_write_model(directory, tensors, TENSORS, 16 * sizeof(elements[0])));
    assert_true(meeting.has_met);
    meeting_arm(true);
    TRY(tdm_safetensors_open(directory, &model));
    assert_true(meeting.has_met);
    meeting_arm(false);
    tdm_safetensors_close(model);
}

static void model_that_fits_is_one_file(void **state)
{
    (void)state;
    TRY(tdm_safetensors_write_model(directory, tensors, TENSORS, sizeof(elements)));
    assert_int_not_equal(access(path_of("model.safetensors.index.json"), F_OK), 0);
    assert_whole(directory);
    assert_whole(path_of("model.safetensors"));
}

static void larger_tensor_has_a_file_of_its_own(void **state)
{
    (void)state;
    TRY(tdm_safetensors_write_model(directory, tensors, TENSORS, 1));
    assert_int_equal(access(path_of("model-00040-of-00040.safetensors"), F_OK), 0);
    assert_whole(directory);
    TRY(tdm_safetensors_write_model(directory, tensors, 0, 1));
    assert_int_equal(access(path_of("model.safetensors"), F_OK), 0);
}

/* The folder had another model: whichever of the two comes last is read. */
static void older_model_is_not_read(void **state)
{
    static const float other[1] = {-1};
    static const struct tdm_tensor_view old = {{"old", TDM_F32, 1, {1}}, {1}, other};
    tdm_safetensors *model;

    (void)state;
    TRY(tdm_safetensors_write_model(directory, &old, 1, 100));
    TRY(tdm_safetensors_write_model(directory, tensors, TENSORS, sizeof(elements) / 2));
    assert_whole(directory);
    TRY(tdm_safetensors_write_model(directory, &old, 1, 100));
    TRY(tdm_safetensors_open(directory, &model));
    assert_int_equal(tdm_safetensors_count(model), 1);
    tdm_safetensors_close(model);
}

static void assert_refused(const char *index, const char *words)
{
    tdm_safetensors *model = NULL;

    put_text("model.safetensors.index.json", index);
    assert_int_equal(tdm_safetensors_open(directory, &model), TDM_E_PROTOCOL);
    assert_null(model);
    if (strstr(tdm_error_detail(), words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", tdm_error_detail(), words);
    }
}

static void hostile_index_is_refused(void **state)
{
    tdm_safetensors *model;

    (void)state;
    TRY(tdm_safetensors_write(path_of("a.safetensors"), tensors, 2));
    TRY(tdm_safetensors_write(path_of("b.safetensors"), tensors + 1, 2));
    assert_refused("", "byte");
    assert_refused("{}", "no map \"weight_map\"");
    assert_refused("{\"weight_map\": {\"layer.0\": 1}}", "layer.0");
    assert_refused("{\"weight_map\": {\"layer.0\": \"../a.safetensors\"}}", "same folder");
    assert_refused("{\"weight_map\": {\"layer.0\": \"x/a.safetensors\"}}", "same folder");
    assert_refused("{\"weight_map\": {\"layer.0\": \"config.json\"}}", "same folder");
    assert_refused("{\"weight_map\": {\"layer.0\": \"a.safetensors\"}}",
                   "names 1 tensors, its files have 2");
    assert_refused("{\"weight_map\": {\"layer.9\": \"a.safetensors\"}}",
                   "\"layer.9\" is not in a.safetensors");
    assert_refused("{\"weight_map\": {\"layer.0\": \"a.safetensors\", \"layer.1\": "
                   "\"a.safetensors\", \"layer.2\": \"b.safetensors\", \"layer.3\": "
                   "\"b.safetensors\"}}",
                   "\"layer.3\" is not in b.safetensors");
    put_text("model.safetensors.index.json",
             "{\"weight_map\": {\"layer.0\": \"missing.safetensors\"}}");
    assert_int_equal(tdm_safetensors_open(directory, &model), TDM_E_NOT_FOUND);
    assert_non_null(strstr(tdm_error_detail(), "missing.safetensors"));
}

static void model_that_cannot_be_written_is_refused(void **state)
{
    const struct tdm_tensor_view twice[] = {tensors[0], tensors[1], tensors[0]};

    (void)state;
    assert_int_equal(tdm_safetensors_write_model(directory, tensors, TENSORS, 0), TDM_E_INVAL);
    assert_int_equal(tdm_safetensors_write_model(directory, twice, 3, 1), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "layer.0"));
    assert_int_not_equal(tdm_safetensors_write_model(path_of("none"), tensors, TENSORS, 1), TDM_OK);
    assert_non_null(strstr(tdm_error_detail(), "model-00001-of-00040.safetensors"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(model_in_several_files_is_one_model, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_are_written_and_read_in_parallel, set_up, tear_down),
        cmocka_unit_test_setup_teardown(model_that_fits_is_one_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(larger_tensor_has_a_file_of_its_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(older_model_is_not_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(hostile_index_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(model_that_cannot_be_written_is_refused, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
