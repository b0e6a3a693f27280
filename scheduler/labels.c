/* labels.c - what nodes say of themselves, and what actors want of them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/labels.h"

#include "runtime/error.h"

#include <string.h>

/* Bytes before "=" or "!=". */
static size_t name_length(const char *text)
{
    return strcspn(text, "=!");
}

static bool is_negative(const char *text)
{
    return text[name_length(text)] == '!';
}

static const char *value_of(const char *text)
{
    return text + name_length(text) + (is_negative(text) ? 2 : 1);
}

static bool same_name(const char *a, const char *b)
{
    size_t length = name_length(a);

    return name_length(b) == length && memcmp(a, b, length) == 0;
}

static tdm_status add(struct tdm__labels *labels, const char *text)
{
    if (labels->count == TDM_LABELS_MAX) {
        return tdm__fail(TDM_E_LIMIT, "label \"%.40s\": at most %d labels", text,
                         (int)TDM_LABELS_MAX);
    }
    if (strlen(text) >= TDM__LABEL_BYTES) {
        return tdm__fail(TDM_E_INVAL, "label \"%.40s…\" of %zu bytes, at most %d", text,
                         strlen(text), TDM__LABEL_BYTES - 1);
    }
    memcpy(labels->texts[labels->count++], text, strlen(text) + 1);
    return TDM_OK;
}

tdm_status tdm__labels_add(struct tdm__labels *labels, const char *text)
{
    if (name_length(text) == 0 || text[name_length(text)] != '=') {
        return tdm__fail(TDM_E_INVAL, "label \"%.60s\" is not NAME=value", text);
    }
    for (uint32_t i = 0; i < labels->count; i++) {
        if (same_name(labels->texts[i], text)) {
            return tdm__fail(TDM_E_INVAL, "labels \"%.60s\" and \"%.60s\": one value a name",
                             labels->texts[i], text);
        }
    }
    return add(labels, text);
}

tdm_status tdm__labels_add_wish(struct tdm__labels *wishes, const char *text)
{
    size_t length = name_length(text);

    if (length == 0 || (text[length] != '=' && strncmp(text + length, "!=", 2) != 0)) {
        return tdm__fail(TDM_E_INVAL, "label \"%.60s\" is not NAME=value or NAME!=value", text);
    }
    return add(wishes, text);
}

static bool wish_holds(const struct tdm__labels *labels, const char *wish)
{
    for (uint32_t i = 0; i < labels->count; i++) {
        if (same_name(labels->texts[i], wish)) {
            return (strcmp(value_of(labels->texts[i]), value_of(wish)) == 0) !=
                   is_negative(wish);
        }
    }
    return is_negative(wish);
}

bool tdm__labels_match(const struct tdm__labels *labels, const struct tdm__labels *wishes)
{
    for (uint32_t i = 0; i < wishes->count; i++) {
        if (!wish_holds(labels, wishes->texts[i])) {
            return false;
        }
    }
    return true;
}

void tdm__labels_write(tdm_writer *writer, const struct tdm__labels *labels)
{
    tdm_write_array(writer, labels->count);
    for (uint32_t i = 0; i < labels->count; i++) {
        tdm_write_string(writer, labels->texts[i]);
    }
}

tdm_status tdm__labels_read(const tdm_value *value, struct tdm__labels *labels_out)
{
    struct tdm__labels labels = {0};

    for (uint32_t i = 0; i < tdm_value_count(value); i++) {
        if (tdm__labels_add_wish(&labels, tdm_value_string(tdm_value_at(value, i), "")) !=
            TDM_OK) {
            return tdm__fail(TDM_E_PROTOCOL, "label %u of %u is malformed", i,
                             tdm_value_count(value));
        }
    }
    *labels_out = labels;
    return TDM_OK;
}
