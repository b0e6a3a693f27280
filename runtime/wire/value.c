/* value.c - reads parsed values. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/wire/value.h"
#include "runtime/error.h"

#include <string.h>

/* Returns true if the value is of this kind.  NULL is of no kind. */
static bool value_is_kind(const tdm_value *value, enum tdm_value_kind kind)
{
    return value != NULL && value->kind == kind;
}

enum tdm_value_kind tdm_value_kind_of(const tdm_value *value)
{
    return value != NULL ? value->kind : TDM_NIL;
}

const char *tdm__value_kind_text(const tdm_value *value)
{
    static const char *const texts[] = {
        [TDM_NIL] = "nil",
        [TDM_BOOL] = "a bool",
        [TDM_INT] = "an integer",
        [TDM_DOUBLE] = "a double",
        [TDM_STRING] = "a string",
        [TDM_BYTES] = "bytes",
        [TDM_ARRAY] = "an array",
        [TDM_MAP] = "a map",
        [TDM_NDARRAY] = "an ndarray",
        [TDM_REFERENCE] = "a reference",
        [TDM_HANDLE] = "an actor's handle",
    };

    return value != NULL ? texts[value->kind] : "nothing";
}

uint32_t tdm_value_count(const tdm_value *value)
{
    return value_is_kind(value, TDM_ARRAY) || value_is_kind(value, TDM_MAP) ? value->count : 0;
}

const tdm_value *tdm_value_at(const tdm_value *array, uint32_t index)
{
    return value_is_kind(array, TDM_ARRAY) && index < array->count ? &array->as.values[index]
                                                                   : NULL;
}

const tdm_value *tdm_value_pair(const tdm_value *map, uint32_t index, const char **key_out)
{
    const tdm_value *pair;

    if (!value_is_kind(map, TDM_MAP) || index >= map->count) {
        return NULL;
    }
    pair = &map->as.values[2 * (size_t)index];
    if (key_out != NULL) {
        *key_out = tdm_value_string(&pair[0], NULL);
    }
    return &pair[1];
}

const tdm_value *tdm_value_find(const tdm_value *map, const char *key)
{
    TDM__REQUIRE_OR(key, NULL);

    for (uint32_t i = 0; value_is_kind(map, TDM_MAP) && i < map->count; i++) {
        const char *name = NULL;
        const tdm_value *value = tdm_value_pair(map, i, &name);

        if (name != NULL && strcmp(name, key) == 0) {
            return value;
        }
    }
    return NULL;
}

bool tdm__value_fits_int(const tdm_value *value)
{
    return value_is_kind(value, TDM_INT) &&
           (value->as.integer.negative || value->as.integer.bits <= INT64_MAX);
}

bool tdm__value_fits_uint(const tdm_value *value)
{
    return value_is_kind(value, TDM_INT) && !value->as.integer.negative;
}

int64_t tdm_value_int(const tdm_value *value, int64_t otherwise)
{
    return tdm__value_fits_int(value) ? (int64_t)value->as.integer.bits : otherwise;
}

uint64_t tdm_value_uint(const tdm_value *value, uint64_t otherwise)
{
    return tdm__value_fits_uint(value) ? value->as.integer.bits : otherwise;
}

double tdm_value_double(const tdm_value *value, double otherwise)
{
    if (value_is_kind(value, TDM_INT)) {
        return value->as.integer.negative ? (double)(int64_t)value->as.integer.bits
                                          : (double)value->as.integer.bits;
    }
    return value_is_kind(value, TDM_DOUBLE) ? value->as.number : otherwise;
}

int tdm_value_bool(const tdm_value *value, int otherwise)
{
    return value_is_kind(value, TDM_BOOL) ? value->as.truth : otherwise;
}

const char *tdm_value_string(const tdm_value *value, const char *otherwise)
{
    return value_is_kind(value, TDM_STRING) ? value->as.data : otherwise;
}

struct tdm_bytes tdm_value_bytes(const tdm_value *value)
{
    struct tdm_bytes bytes = {NULL, 0};

    if (value_is_kind(value, TDM_BYTES)) {
        bytes.data = value->as.data;
        bytes.size_bytes = value->as.size_bytes;
    }
    return bytes;
}

const struct tdm_ndarray *tdm_value_ndarray(const tdm_value *value)
{
    return value_is_kind(value, TDM_NDARRAY) ? value->as.ndarray : NULL;
}

struct tdm_bytes tdm__value_ext(const tdm_value *value)
{
    struct tdm_bytes bytes = {NULL, 0};

    if (value_is_kind(value, TDM_REFERENCE) || value_is_kind(value, TDM_HANDLE)) {
        bytes.data = value->as.data;
        bytes.size_bytes = value->as.size_bytes;
    }
    return bytes;
}
