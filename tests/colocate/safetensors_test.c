/* safetensors_test.c - written files can be read, and hostile files are refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/safetensors.h"

#include <dirent.h>
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char directory[] = "/tmp/tandem-safetensors-XXXXXX";
static char path[64];

/* Puts length, header and `data_bytes` bytes of data into memory and parses them. */
static tdm_status parse(const char *header, uint64_t header_bytes, size_t data_bytes,
                        tdm_safetensors **file_out, void **bytes_out)
{
    size_t text_bytes = strlen(header);
    unsigned char *bytes = calloc(1, 8 + text_bytes + data_bytes);
    uint64_t length = htole64(header_bytes);

    assert_non_null(bytes);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, text_bytes);
    *bytes_out = bytes;
    return tdm__safetensors_parse(bytes, 8 + text_bytes + data_bytes, "x.safetensors", file_out);
}

static void refuses(const char *header, size_t data_bytes, const char *detail)
{
    tdm_safetensors *file = NULL;
    void *bytes;
    tdm_status status = parse(header, strlen(header), data_bytes, &file, &bytes);

    if (status != TDM_E_PROTOCOL || strstr(tdm_error_detail(), detail) == NULL ||
        strncmp(tdm_error_detail(), "reading x.safetensors failed: ", 30) != 0) {
        fail_msg("%s: wanted \"%s\", got %s: %s", header, detail, tdm_strerror(status),
                 tdm_error_detail());
    }
    free(bytes);
}

static void written_file_is_read_back(void **state)
{
    static const float weights[6] = {1, 2, 3, 4, 5, 6};
    static const uint8_t flags[3] = {7, 8, 9};
    static const int64_t step = -5;
    const struct tdm_tensor_view tensors[] = {
        {{"flags", TDM_U8, 1, {3}}, {1}, flags},
        {{"model.layers.0.weight", TDM_F32, 2, {2, 3}}, {3, 1}, weights},
        {{"nothing", TDM_BF16, 2, {0, 9}}, {9, 1}, NULL},
        {{"step", TDM_I64, 0, {0}}, {0}, &step},
    };
    const struct tdm_tensor_view *view;
    tdm_safetensors *file;

    (void)state;
    assert_int_equal(tdm_safetensors_write(path, tensors, 4), TDM_OK);
    assert_int_equal(tdm_safetensors_open(path, &file), TDM_OK);
    assert_int_equal(tdm_safetensors_count(file), 4);
    /* Elements of eight bytes come first, so that every tensor is aligned. */
    assert_string_equal(tdm_safetensors_view(file, 0)->info.name, "step");
    assert_string_equal(tdm_safetensors_view(file, 3)->info.name, "flags");
    assert_null(tdm_safetensors_view(file, 4));
    view = tdm_safetensors_find(file, "model.layers.0.weight");
    assert_non_null(view);
    assert_int_equal(view->info.dtype, TDM_F32);
    assert_int_equal(view->info.dims_count, 2);
    assert_int_equal(view->stride[0], 3);
    assert_memory_equal(view->data, weights, sizeof(weights));
    assert_memory_equal(tdm_safetensors_find(file, "step")->data, &step, sizeof(step));
    assert_int_equal(tdm_tensor_bytes(&tdm_safetensors_find(file, "nothing")->info), 0);
    assert_null(tdm_safetensors_find(file, "weight"));
    tdm_safetensors_close(file);
}

static uint32_t files_in_directory(void)
{
    DIR *stream = opendir(directory);
    uint32_t count = 0;

    assert_non_null(stream);
    for (const struct dirent *entry = readdir(stream); entry != NULL; entry = readdir(stream)) {
        count += entry->d_name[0] != '.';
    }
    (void)closedir(stream);
    return count;
}

static void refused_write_leaves_the_old_file(void **state)
{
    static const float weights[4] = {1, 2, 3, 4};
    struct tdm_tensor_view tensors[] = {{{"a", TDM_F32, 1, {4}}, {1}, weights},
                                        {{"a", TDM_F32, 1, {4}}, {1}, weights}};
    tdm_safetensors *file;

    (void)state;
    assert_int_equal(tdm_safetensors_write(path, tensors, 1), TDM_OK);
    assert_int_equal(tdm_safetensors_write(path, tensors, 2), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "\"a\": the name is taken"));
    tensors[1].info.name = "b";
    tensors[1].stride[0] = 2;
    assert_int_equal(tdm_safetensors_write(path, tensors, 2), TDM_E_INVAL);
    tensors[1].stride[0] = 1;
    tensors[1].info.name = "\xff";
    assert_int_equal(tdm_safetensors_write(path, tensors, 2), TDM_E_INVAL);
    tensors[1].info.name = "__metadata__";
    assert_int_equal(tdm_safetensors_write(path, tensors, 2), TDM_E_INVAL);
    assert_int_equal(tdm_safetensors_write("/nowhere/x", tensors, 1), TDM_E_IO);
    assert_int_equal(files_in_directory(), 1);
    assert_int_equal(tdm_safetensors_open(path, &file), TDM_OK);
    assert_int_equal(tdm_safetensors_count(file), 1);
    tdm_safetensors_close(file);
}

static void good_header_passes(void **state)
{
    tdm_safetensors *file;
    void *bytes;
    const char *header = "{\"__metadata__\":{\"format\":\"pt\"},"
                         "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]},"
                         "\"a\":{\"dtype\":\"I32\",\"shape\":[1,2],\"data_offsets\":[0,8]}}   ";

    (void)state;
    assert_int_equal(strlen(header) % 4, 0);
    assert_int_equal(parse(header, strlen(header), 16, &file, &bytes), TDM_OK);
    assert_string_equal(tdm_safetensors_view(file, 0)->info.name, "a");
    assert_string_equal(tdm_safetensors_view(file, 1)->info.name, "b");
    tdm_safetensors_close(file);
    free(bytes);
}

static void wrong_header_length_is_refused(void **state)
{
    static const uint64_t lengths[] = {0, 3, 100000001, UINT64_MAX, UINT64_MAX - 7, 1ULL << 63};
    tdm_safetensors *file;
    void *bytes;

    (void)state;
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        assert_int_equal(parse("{}", lengths[i], 0, &file, &bytes), TDM_E_PROTOCOL);
        free(bytes);
    }
    assert_int_equal(tdm__safetensors_parse("1234567", 7, "x", &file), TDM_E_PROTOCOL);
}

#define TENSOR(dtype, shape, offsets)                                                              \
    "{\"w\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void wrong_numbers_are_refused_by_name(void **state)
{
    (void)state;
    refuses(TENSOR("\"F32\"", "[2]", "[0,9]"), 8, "\"w\" ends at byte 9 of 8 bytes of data");
    refuses(TENSOR("\"F32\"", "[3]", "[0,8]"), 8, "make 12 bytes, its offsets 8");
    refuses(TENSOR("\"F32\"", "[2]", "[-8,0]"), 8, "\"w\": data_offsets");
    refuses(TENSOR("\"F32\"", "[2]", "[8,0]"), 8, "\"w\": data_offsets");
    refuses(TENSOR("\"F32\"", "[2]", "[0,8,8]"), 8, "\"w\": data_offsets");
    refuses(TENSOR("\"F32\"", "[2]", "[0,8.0]"), 8, "\"w\": data_offsets");
    refuses(TENSOR("\"F32\"", "[2]", "{}"), 8, "\"w\": data_offsets");
    refuses(TENSOR("\"F32\"", "[2]", "[0,9223372036854775807]"), 8, "ends at byte");
    refuses(TENSOR("\"F32\"", "[2]", "[0,18446744073709551615]"), 8, "header: byte");
    refuses(TENSOR("\"F32\"", "[-2]", "[0,8]"), 8, "dimension 0 is not a whole number");
    refuses(TENSOR("\"F32\"", "[1,1,1,1,2]", "[0,8]"), 8, "\"w\": shape");
    refuses(TENSOR("\"F32\"", "2", "[0,8]"), 8, "\"w\": shape");
    refuses(TENSOR("\"F32\"", "[4294967296,4294967296,2]", "[0,0]"), 0, "overflows");
    refuses(TENSOR("\"F32\"", "[4611686018427387904]", "[0,0]"), 0, "overflows");
    refuses(TENSOR("\"C64\"", "[1]", "[0,8]"), 8, "dtype \"C64\" is not supported");
    refuses(TENSOR("7", "[1]", "[0,8]"), 8, "\"w\" has 3 entries, expected three: dtype (a text)");
}

static void holes_overlaps_and_leftovers_are_refused(void **state)
{
#define PAIR(a, b)                                                                                 \
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" a "},"                              \
    "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" b "}}"
    (void)state;
    refuses(PAIR("[0,4]", "[5,9]"), 9, "\"b\" begins at byte 5, a gap after byte 4");
    refuses(PAIR("[0,4]", "[3,7]"), 7, "the one before it ends at byte 4");
    refuses(PAIR("[0,4]", "[0,4]"), 4, "the one before it ends at byte 4");
    refuses(PAIR("[1,5]", "[5,9]"), 9, "a gap after byte 0");
    refuses(PAIR("[0,4]", "[4,8]"), 9, "9 bytes of data, the tensors cover 8");
#undef PAIR
}

static void malformed_json_is_refused(void **state)
{
    (void)state;
    refuses("[]", 0, "does not begin with '{'");
    refuses(" {}", 0, "does not begin with '{'");
    refuses("{", 0, "header: byte");
    refuses("{} x", 0, "header: byte");
    refuses("{\"w\":1}", 0, "\"w\" has 0 entries");
    refuses("{\"\":{}}", 0, "1 to 95 bytes");
    refuses("{\"a\":{},\"a\":{}}", 0, "duplicate");
    refuses("{\"\xff\":{}}", 0, "unable to decode byte 0xff");
    refuses("{\"a\\u0000b\":{}}", 0, "header: byte");
    refuses("{\"__metadata__\":[]}", 0, "__metadata__");
    refuses("{\"__metadata__\":{\"a\":1}}", 0, "\"a\" in __metadata__ is no text");
    refuses("{\"a\":{\"b\":[[", 0, "nests over 3 levels");
    refuses("{\"n23456789012345678901234567890123456789012345678901234567890123456789012345678901"
            "234567890123456\":{}}",
            0, "not 96");
}

/* A parser would build a JSON tree of a hundred times the size of "0,0,0,...". */
static void header_of_endless_entries_is_refused_before_it_is_parsed(void **state)
{
    size_t size_bytes = 6U * 1000 * 1000;
    char *header = malloc(size_bytes + 1);

    (void)state;
    assert_non_null(header);
    for (size_t i = 0; i < size_bytes; i += 2) {
        memcpy(header + i, "0,", 2);
    }
    memcpy(header, "{\"a\":[", 6);
    header[size_bytes] = '\0';
    refuses(header, 0, "the header has over");
    free(header);
}

/* A good file that is cut anywhere must give an error, and never a view outside of the file. */
static void truncated_file_is_refused_at_every_length(void **state)
{
    static const float weights[4] = {1, 2, 3, 4};
    const struct tdm_tensor_view tensor = {{"w", TDM_F32, 1, {4}}, {1}, weights};
    unsigned char bytes[256];
    tdm_safetensors *file;
    size_t size_bytes;
    FILE *stream;

    (void)state;
    assert_int_equal(tdm_safetensors_write(path, &tensor, 1), TDM_OK);
    stream = fopen(path, "rb");
    assert_non_null(stream);
    size_bytes = fread(bytes, 1, sizeof(bytes), stream);
    (void)fclose(stream);
    assert_in_range(size_bytes, 30, 255);
    for (size_t length = 0; length < size_bytes; length++) {
        assert_int_equal(truncate(path, (off_t)size_bytes - (off_t)length - 1), 0);
        assert_int_equal(tdm_safetensors_open(path, &file), TDM_E_PROTOCOL);
    }
}

static void missing_file_is_not_found(void **state)
{
    tdm_safetensors *file;

    (void)state;
    assert_int_equal(tdm_safetensors_open("/nowhere/x", &file), TDM_E_NOT_FOUND);
    /* A folder stands for the model in it. */
    assert_int_equal(tdm_safetensors_open(directory, &file), TDM_E_NOT_FOUND);
    assert_non_null(strstr(tdm_error_detail(), "/model.safetensors"));
}

static int make_directory(void **state)
{
    (void)state;
    if (mkdtemp(directory) == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof(path), "%s/a.safetensors", directory);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_file_is_read_back),
        cmocka_unit_test(refused_write_leaves_the_old_file),
        cmocka_unit_test(good_header_passes),
        cmocka_unit_test(wrong_header_length_is_refused),
        cmocka_unit_test(wrong_numbers_are_refused_by_name),
        cmocka_unit_test(holes_overlaps_and_leftovers_are_refused),
        cmocka_unit_test(malformed_json_is_refused),
        cmocka_unit_test(header_of_endless_entries_is_refused_before_it_is_parsed),
        cmocka_unit_test(truncated_file_is_refused_at_every_length),
        cmocka_unit_test(missing_file_is_not_found),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
