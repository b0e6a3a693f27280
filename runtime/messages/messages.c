/* messages.c - the tables that describe the fields of all messages. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/messages/messages.h"

/* clang-format off */
/* Each declaration expands to a function with the table inside.  So the macros of the fields can
 * take offsets from one local name of the structure, which they do not know otherwise. */
#define MESSAGE(message)                                                                       \
    const struct tdm__message *tdm__##message##_table(void)                                    \
    {                                                                                          \
        typedef struct tdm__##message##_message structure;                                     \
        static const struct tdm__field fields[] = {
/* A field of a simple kind: an entry of the table. */
#define FIELD(kind, field)                                                                     \
            {#field, TDM__FIELD_##kind, TDM__FIELD_##kind, offsetof(structure, field), 0, NULL},
/* A field that is a message: an entry of the table. */
#define MESSAGE_FIELD(message, field)                                                          \
            {#field, TDM__FIELD_MESSAGE, TDM__FIELD_MESSAGE, offsetof(structure, field), 0,    \
             tdm__##message##_table},
/* A field that is a message or nil: an entry of the table. */
#define OPTIONAL_MESSAGE(message, field)                                                       \
            {#field, TDM__FIELD_OPTIONAL, TDM__FIELD_MESSAGE, offsetof(structure, field),      \
             offsetof(structure, has_##field), tdm__##message##_table},
/* A field that is a list of a simple kind: an entry of the table. */
#define LIST(kind, field)                                                                      \
            {#field, TDM__FIELD_LIST, TDM__FIELD_##kind, offsetof(structure, field), 0, NULL},
/* A field that is a list of messages: an entry of the table. */
#define MESSAGE_LIST(message, field)                                                           \
            {#field, TDM__FIELD_LIST, TDM__FIELD_MESSAGE, offsetof(structure, field), 0,       \
             tdm__##message##_table},
/* The end of a message: the end of the table and of its function. */
#define END_MESSAGE(message)                                                                   \
        };                                                                                     \
        static const struct tdm__message table = {#message, sizeof(structure),                 \
                                                  sizeof(fields) / sizeof(fields[0]), fields}; \
                                                                                               \
        return &table;                                                                         \
    }
#include "runtime/messages/all.def"

#undef MESSAGE
#undef FIELD
#undef MESSAGE_FIELD
#undef OPTIONAL_MESSAGE
#undef LIST
#undef MESSAGE_LIST
#undef END_MESSAGE

/* Expands a declaration to the function that returns its table, for the list of all tables. */
#define MESSAGE(message) tdm__##message##_table,
#define FIELD(kind, field)
#define MESSAGE_FIELD(message, field)
#define OPTIONAL_MESSAGE(message, field)
#define LIST(kind, field)
#define MESSAGE_LIST(message, field)
#define END_MESSAGE(message)
/* clang-format on */

const struct tdm__message *tdm__messages_at(uint32_t index)
{
    static const struct tdm__message *(*const tables[])(void) = {
#include "runtime/messages/all.def"
    };

    return index < sizeof(tables) / sizeof(tables[0]) ? tables[index]() : NULL;
}
