/* class.h - the classes that this program and its libraries define. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CLASS_H
#define TDM_ACTORS_CLASS_H

#include <tandem/actor.h>

enum { TDM__CLASSES_MAX = 512 };

/* NULL when there is none of that name. */
const struct tdm_actor_class *tdm__class_find(const char *name);
/* NULL when the class has no such method. */
const struct tdm_method_entry *tdm__class_method(const struct tdm_actor_class *actor_class,
                                                 const char *name);
/* "add, get" for messages; cut where the room ends. */
const char *tdm__class_methods_text(const struct tdm_actor_class *actor_class, char *text,
                                    size_t text_bytes);

#endif
