/* name_key.h - the store keys of the names of actors and placement groups. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_SCHEDULER_NAME_KEY_H
#define TDM_SCHEDULER_NAME_KEY_H

enum {
    /* Size in bytes of a key of the store, including the terminating NUL. */
    TDM__STORE_KEY_BYTES = 200,
    /* Size in bytes of the text of tdm__name_of_key(), including the terminating NUL. */
    TDM__NAME_OF_KEY_BYTES = 260
};

/* Writes the store key of a name in a name space, "KIND/SPACE/NAME", to `key` and returns `key`.
 * `kind` is "name" for actors and "group_name" for placement groups. Two names have the same key
 * only if they and their name spaces are equal. Both may hold any bytes, at most 255. */
const char *tdm__name_key(const char *kind, const char *name_space, const char *name,
                          char key[TDM__STORE_KEY_BYTES]);
/* Writes the name in a key of tdm__name_key() to `name` and returns `name`. The key of a long name
 * has only its beginning, which an ellipsis follows. For messages. */
const char *tdm__name_of_key(const char *key, char name[TDM__NAME_OF_KEY_BYTES]);

#endif
