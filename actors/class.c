/* class.c - the classes that this program and its libraries define. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/class.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Filled by constructors, before main() or inside dlopen(), on one thread. */
static const struct tdm_actor_class *classes[TDM__CLASSES_MAX];
static uint32_t classes_count;

_Noreturn static void refuse(const char *name, const char *why)
{
    (void)fprintf(stderr, "tandem: class \"%s\": %s\n", name, why);
    abort();
}

void tdm_class_register(const struct tdm_actor_class *actor_class)
{
    size_t length = strnlen(actor_class->name, 64);

    if (length == 0 || length > 63) {
        refuse(actor_class->name, "a name has 1 to 63 bytes");
    }
    if (tdm__class_find(actor_class->name) != NULL) {
        refuse(actor_class->name, "defined twice in this process");
    }
    if (classes_count == TDM__CLASSES_MAX) {
        refuse(actor_class->name, "more than 512 classes");
    }
    classes[classes_count++] = actor_class;
}

const struct tdm_actor_class *tdm__class_find(const char *name)
{
    for (uint32_t i = 0; i < classes_count; i++) {
        if (strcmp(classes[i]->name, name) == 0) {
            return classes[i];
        }
    }
    return NULL;
}

const struct tdm_method_entry *tdm__class_method(const struct tdm_actor_class *actor_class,
                                                 const char *name)
{
    for (uint32_t i = 0; i < TDM_METHODS_MAX && actor_class->methods[i].name != NULL; i++) {
        if (strcmp(actor_class->methods[i].name, name) == 0) {
            return &actor_class->methods[i];
        }
    }
    return NULL;
}

const char *tdm__class_methods_text(const struct tdm_actor_class *actor_class, char *text,
                                    size_t text_bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < TDM_METHODS_MAX && actor_class->methods[i].name != NULL; i++) {
        int added = snprintf(text + used, text_bytes - used, "%s%s", i == 0 ? "" : ", ",
                             actor_class->methods[i].name);

        if (added < 0 || (size_t)added >= text_bytes - used) {
            text[used] = '\0'; /* whole names only */
            break;
        }
        used += (size_t)added;
    }
    return text;
}
