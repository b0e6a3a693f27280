/* actor_class.h - the classes that this program and its libraries define. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_COMMON_ACTOR_CLASS_H
#define TDM_ACTORS_COMMON_ACTOR_CLASS_H

#include <stdint.h>
#include <tandem/actor.h>

enum { TDM__CLASSES_MAX = 512 };
/* The concurrency group of methods that have none. */
#define TDM__DEFAULT_CONCURRENCY_GROUP "default"

/* NULL when there is none of that name. */
const struct tdm_actor_class *tdm__class_find(const char *name);
/* Where the methods of a class are, by a hash of their names. */
struct tdm__method_index {
    const struct tdm_actor_class *actor_class; /* borrowed */
    uint8_t slots[2 * TDM_METHODS_MAX];        /* the method's place plus 1; 0: none */
    const struct tdm_method_entry *any;        /* for the names that are not there; or NULL */
};
void tdm__method_index_init(struct tdm__method_index *index,
                            const struct tdm_actor_class *actor_class);
/* The one for any name, if it is none of the others; NULL without one. */
const struct tdm_method_entry *tdm__method_find(const struct tdm__method_index *index,
                                                const char *name);
/* What a call says for the name of a concurrency group; never 0. */
uint32_t tdm__concurrency_group_id(const char *name);
/* "counter, engine" for messages: those of this program and its libraries, Tandem's own left
 * out; cut where the room ends. */
const char *tdm__classes_text(char *text, size_t text_bytes);
/* "add, get" likewise. */
const char *tdm__class_methods_text(const struct tdm_actor_class *actor_class, char *text,
                                    size_t text_bytes);

#endif
