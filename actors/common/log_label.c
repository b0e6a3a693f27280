/* log_label.c - marks in a worker's output that say which name its next lines are printed with. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/common/log_label.h"

#include <string.h>

/* Bytes in front of the name in a log label: an operating system command of terminals, which
 * terminals that do not know it ignore. */
static const char label_start[] = "\033]tandem-label;";
/* Length of `label_start` in bytes. */
#define START_BYTES (sizeof(label_start) - 1)
/* Byte behind the name in a log label. */
#define LABEL_END '\007'

bool tdm__log_label_find(const char *text, size_t text_bytes, struct tdm__log_label *label_out)
{
    const char *start = memmem(text, text_bytes, label_start, START_BYTES);
    const char *name = start == NULL ? NULL : start + START_BYTES;
    const char *end =
        start == NULL ? NULL : memchr(name, LABEL_END, text_bytes - (size_t)(name - text));

    if (end == NULL) {
        return false;
    }
    *label_out = (struct tdm__log_label){.begin = (size_t)(start - text),
                                         .end = (size_t)(end - text) + 1,
                                         .name = name,
                                         .name_bytes = (size_t)(end - name)};
    return true;
}

size_t tdm__log_label_remove(char *text, size_t text_bytes)
{
    struct tdm__log_label label;
    size_t checked = 0;

    while (tdm__log_label_find(text + checked, text_bytes - checked, &label)) {
        size_t bytes = label.end - label.begin;

        checked += label.begin;
        memmove(text + checked, text + checked + bytes, text_bytes - checked - bytes);
        text_bytes -= bytes;
    }
    return text_bytes;
}
