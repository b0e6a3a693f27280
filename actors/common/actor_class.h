/* actor_class.h - the actor classes that this program and its libraries define. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_COMMON_ACTOR_CLASS_H
#define TDM_ACTORS_COMMON_ACTOR_CLASS_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/actor.h>

/* Most actor classes that one process can define. */
enum { TDM__CLASSES_MAX = 512 };
/* Name of the concurrency group of methods that name none. */
#define TDM__DEFAULT_CONCURRENCY_GROUP "default"

/* Returns the registered class with this name, else the class "*", else NULL. */
const struct tdm_actor_class *tdm__class_find(const char *name);
/* Hash table from method names to the methods of one class. Linear probing; at least half of the
 * slots are empty. */
struct tdm__method_index {
    const struct tdm_actor_class *actor_class; /* The class whose methods are indexed, borrowed. */
    /* Index of the method in the class plus 1; 0 for an empty slot. */
    uint8_t slots[2 * TDM_METHODS_MAX];
    /* The method named "*", which serves all names that the class does not define; NULL if
     * absent. Borrowed. */
    const struct tdm_method_entry *any;
};
/* Fills the index with the methods of `actor_class`, which is borrowed. */
void tdm__method_index_init(struct tdm__method_index *index,
                            const struct tdm_actor_class *actor_class);
/* Returns the method named `name`, else the class's method "*", else NULL. */
const struct tdm_method_entry *tdm__method_find(const struct tdm__method_index *index,
                                                const char *name);
/* Returns the number that a call carries for the name of a concurrency group, a hash of the
 * name; never 0. */
uint32_t tdm__concurrency_group_id(const char *name);
/* Writes the names of all registered classes except Tandem's own, as "counter, engine", for
 * messages. Names that do not fit are left out. Returns `text`. */
const char *tdm__classes_text(char *text, size_t text_bytes);
/* Writes the names of the class's methods, as "add, get", for messages. Names that do not fit
 * are left out. Returns `text`. */
const char *tdm__class_methods_text(const struct tdm_actor_class *actor_class, char *text,
                                    size_t text_bytes);

/* Fails with TDM_E_NOT_FOUND because a call of `method` names a concurrency group that the class
 * does not have. The text has the groups that there are. */
tdm_status tdm__class_refuse_group(const struct tdm_actor_class *actor_class, const char *method);

#endif
