/* value.h - what a parsed value is made of, for the files of this folder. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_WIRE_VALUE_H
#define TDM_RUNTIME_WIRE_VALUE_H

#include <stdbool.h>
#include <tandem/value.h>

/* Everything pointed to lies in the document that owns the value. */
struct tdm_value {
    enum tdm_value_kind kind;
    uint32_t count; /* strings and bytes: bytes; arrays: values; maps: pairs */
    union {
        bool truth;
        struct {
            uint64_t bits; /* two's complement if negative */
            bool negative;
        } integer;
        double number;
        const char *data;               /* strings: NUL-terminated */
        const struct tdm_value *values; /* maps: key, value, key, value … */
    } as;
};

bool tdm__value_fits_int(const tdm_value *value);
bool tdm__value_fits_uint(const tdm_value *value);

#endif
