/* actor_class.c - the actor classes that this program and its libraries define. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Owns the list of registered classes of the process. Constructors of the program and of its
 * libraries register classes, before main() or inside dlopen(); a wrong class aborts the
 * process. After that the list is only read, by any thread and without a lock. Classes are never
 * removed.
 *
 * The index of a class's methods (struct tdm__method_index) is filled once by its owner and only
 * read after that. */

#include "actors/common/actor_class.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Registered actor classes. Constructor functions append to them before main() or inside dlopen(),
 * on one thread. */
static const struct tdm_actor_class *classes[TDM__CLASSES_MAX];
/* Number of registered actor classes in `classes`. */
static uint32_t classes_count;

/* Reports why an actor class cannot be registered, and aborts the process. */
_Noreturn static void class_refuse(const char *name, const char *why)
{
    (void)fprintf(stderr, "tandem: class \"%s\": %s\n", name, why);
    abort();
}

/* Aborts if two concurrency groups of the class have the same number, since a call finds its
 * group by that number. */
static void class_check_groups(const struct tdm_actor_class *actor_class)
{
    const struct tdm_concurrency_group *groups = actor_class->concurrency_groups;

    for (uint32_t i = 0; i < TDM_CONCURRENCY_GROUPS_MAX && groups[i].name != NULL; i++) {
        uint32_t number = tdm__concurrency_group_id(groups[i].name);

        if (number == tdm__concurrency_group_id(TDM__DEFAULT_CONCURRENCY_GROUP)) {
            class_refuse(actor_class->name, "\"" TDM__DEFAULT_CONCURRENCY_GROUP
                                            "\" is the group of methods without one, and its "
                                            "limit the actor's max_concurrency");
        }
        for (uint32_t j = 0; j < i; j++) {
            if (number == tdm__concurrency_group_id(groups[j].name)) {
                class_refuse(actor_class->name, "two concurrency groups have one name");
            }
        }
    }
}

/* Returns the class that is registered with exactly this name, or NULL. */
static const struct tdm_actor_class *class_find_registered(const char *name)
{
    for (uint32_t i = 0; i < classes_count; i++) {
        if (strcmp(classes[i]->name, name) == 0) {
            return classes[i];
        }
    }
    return NULL;
}

void tdm_class_register(const struct tdm_actor_class *actor_class)
{
    TDM__REQUIRE_OR(actor_class, );

    size_t length = strnlen(actor_class->name, 64);

    if (length == 0 || length > 63) {
        class_refuse(actor_class->name, "a name has 1 to 63 bytes");
    }
    if (class_find_registered(actor_class->name) != NULL) {
        class_refuse(actor_class->name, "defined twice in this process");
    }
    if (classes_count == TDM__CLASSES_MAX) {
        class_refuse(actor_class->name, "more than 512 classes");
    }
    class_check_groups(actor_class);
    classes[classes_count++] = actor_class;
}

const struct tdm_actor_class *tdm__class_find(const char *name)
{
    const struct tdm_actor_class *found = class_find_registered(name);

    return found != NULL ? found : class_find_registered("*");
}

/* Number of slots of a method index. */
enum { SLOTS = 2 * TDM_METHODS_MAX };

/* Returns the FNV-1a hash of the name of a method or of a concurrency group. */
static uint32_t name_hash(const char *name)
{
    uint32_t hash = 2166136261u;

    for (; *name != '\0'; name++) {
        hash = (hash ^ (uint8_t)*name) * 16777619u;
    }
    return hash;
}

void tdm__method_index_init(struct tdm__method_index *index,
                            const struct tdm_actor_class *actor_class)
{
    const struct tdm_method_entry *methods = actor_class->methods;

    *index = (struct tdm__method_index){.actor_class = actor_class};
    for (uint32_t i = 0; i < TDM_METHODS_MAX && methods[i].name != NULL; i++) {
        uint32_t slot = name_hash(methods[i].name) % SLOTS;

        if (strcmp(methods[i].name, "*") == 0) {
            index->any = &methods[i];
        }
        while (index->slots[slot] != 0) { /* At least half of the slots are free. */
            slot = (slot + 1) % SLOTS;
        }
        index->slots[slot] = (uint8_t)(i + 1);
    }
}

const struct tdm_method_entry *tdm__method_find(const struct tdm__method_index *index,
                                                const char *name)
{
    uint32_t slot = name_hash(name) % SLOTS;

    for (; index->slots[slot] != 0; slot = (slot + 1) % SLOTS) {
        const struct tdm_method_entry *method =
            &index->actor_class->methods[index->slots[slot] - 1];

        if (strcmp(method->name, name) == 0) {
            return method;
        }
    }
    return index->any;
}

/* ---- names for messages ----------------------------------------------------------------- */

/* Appends a name to the list of names in `text`, if the whole name fits. */
static void name_list_append(char *text, size_t text_bytes, const char *name)
{
    size_t used = strlen(text);
    int added = snprintf(text + used, text_bytes - used, "%s%s", used == 0 ? "" : ", ", name);

    if (added < 0 || (size_t)added >= text_bytes - used) {
        text[used] = '\0';
    }
}

const char *tdm__classes_text(char *text, size_t text_bytes)
{
    text[0] = '\0';
    for (uint32_t i = 0; i < classes_count; i++) {
        if (strncmp(classes[i]->name, "tandem.", 7) != 0) {
            name_list_append(text, text_bytes, classes[i]->name);
        }
    }
    return text;
}

const char *tdm__class_methods_text(const struct tdm_actor_class *actor_class, char *text,
                                    size_t text_bytes)
{
    text[0] = '\0';
    for (uint32_t i = 0; i < TDM_METHODS_MAX && actor_class->methods[i].name != NULL; i++) {
        name_list_append(text, text_bytes, actor_class->methods[i].name);
    }
    return text;
}

tdm_status tdm__class_refuse_group(const struct tdm_actor_class *actor_class, const char *method)
{
    const struct tdm_concurrency_group *groups = actor_class->concurrency_groups;
    char text[512] = TDM__DEFAULT_CONCURRENCY_GROUP;

    for (uint32_t i = 0; i < TDM_CONCURRENCY_GROUPS_MAX && groups[i].name != NULL; i++) {
        name_list_append(text, sizeof(text), groups[i].name);
    }
    return tdm__fail(TDM_E_NOT_FOUND,
                     "class %s does not have the concurrency group that the call of %s names; it "
                     "has: %s",
                     actor_class->name, method, text);
}

/* A hash of the name; class_check_groups() rejects classes with a collision. */
uint32_t tdm__concurrency_group_id(const char *name)
{
    uint32_t hash = name_hash(name);

    return hash == 0 ? 1 : hash;
}
