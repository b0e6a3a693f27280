/* message.h - encodes and decodes C structures by tables of their fields. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_WIRE_MESSAGE_H
#define TDM_RUNTIME_WIRE_MESSAGE_H

#include "runtime/id.h"
#include "runtime/wire/value.h"

/* A message is one packed array with one value per field, in the order of its table.  The table
 * serves both directions, so a field that is added to the table is written and read.  The
 * messages of Tandem are declared in runtime/messages.
 *
 *   kind             C type                      packed as
 *   ---------------  --------------------------  ------------------------------------------
 *   INT, INT32       int64_t, int32_t            an integer that fits the C type
 *   UINT, UINT32     uint64_t, uint32_t          an integer that fits the C type
 *   DOUBLE           double                      a double; an integer is accepted
 *   BOOL             bool                        a bool
 *   STRING           const char *                a string; NULL is no valid value
 *   OPTIONAL_STRING  const char *                a string; nil if NULL
 *   BYTES            struct tdm_bytes            bytes
 *   OPTIONAL_BYTES   struct tdm_bytes            bytes; nil if the data is NULL
 *   ID               struct tdm__id              16 bytes; all zero means none
 *   NDARRAY          const struct tdm_ndarray *  an n-dimensional array
 *   VALUE            struct tdm__message_value   any one value
 *   MESSAGE          the structure itself        an array of the fields of that message
 *   OPTIONAL         the structure and a flag    the same; nil if the flag is false
 *   LIST             struct tdm__message_list    an array of items of one kind
 *
 * Decoded strings, bytes, arrays, values and lists are borrowed from the decoded value. */
enum tdm__field_kind {
    TDM__FIELD_INT,             /* An integer in an int64_t. */
    TDM__FIELD_INT32,           /* An integer in an int32_t. */
    TDM__FIELD_UINT,            /* An integer in a uint64_t. */
    TDM__FIELD_UINT32,          /* An integer in a uint32_t. */
    TDM__FIELD_DOUBLE,          /* A double; an integer is accepted. */
    TDM__FIELD_BOOL,            /* A bool. */
    TDM__FIELD_STRING,          /* A string, never NULL. */
    TDM__FIELD_OPTIONAL_STRING, /* A string; NULL is packed as nil. */
    TDM__FIELD_BYTES,           /* Bytes in a struct tdm_bytes. */
    TDM__FIELD_OPTIONAL_BYTES,  /* Bytes; NULL data is packed as nil. */
    TDM__FIELD_ID,              /* A struct tdm__id, packed as 16 bytes. */
    TDM__FIELD_NDARRAY,         /* A pointer to an n-dimensional array. */
    TDM__FIELD_VALUE,           /* Any value, in a struct tdm__message_value. */
    TDM__FIELD_MESSAGE,         /* Another message, as its structure. */
    TDM__FIELD_OPTIONAL,        /* A message with a flag that says whether it is present. */
    TDM__FIELD_LIST             /* A list of items, in a struct tdm__message_list. */
};

struct tdm__message;

/* Description of one field of a message; static. */
struct tdm__field {
    const char *name;               /* Name of the field in errors and in the hash. */
    enum tdm__field_kind kind;      /* Kind of the field, which decides its C type. */
    enum tdm__field_kind item_kind; /* Kind of each item, if the field is a LIST. */
    size_t offset;                  /* Offset in bytes of the field in the message's C structure. */
    /* Of an OPTIONAL field: offset in bytes of the bool that says whether the field is present. */
    size_t flag_offset;
    /* Returns the table of a MESSAGE, an OPTIONAL, or a LIST of messages; NULL for others. */
    const struct tdm__message *(*nested)(void);
};

/* Description of a message: the table of its fields; static. */
struct tdm__message {
    const char *name;      /* Name of the message in errors and in the hash. */
    size_t size_bytes;     /* Size in bytes of the message's C structure. */
    uint32_t fields_count; /* Number of entries in `fields`. */
    /* Fields of the message, in the order in which they are packed. */
    const struct tdm__field *fields;
};

/* One value of any kind.  To encode, set one of the first three members; nil is written if none
 * is set.  Decoding sets `value`. */
struct tdm__message_value {
    const tdm_value *value; /* Parsed value, borrowed; NULL if another member has the value. */
    /* Bytes of one packed value; the data is NULL if another member has the value. */
    struct tdm_bytes packed;
    /* Callback that writes the value; NULL if another member has the value. */
    void (*write)(tdm_writer *writer, const void *arg);
    const void *arg; /* Second argument of write(). */
};

/* The items of a list.  To encode, set `count` and one of `items`, `get` and `packed`.  After
 * decoding, `count` is set and every item has been checked; tdm__message_list_read() returns
 * the items.
 */
struct tdm__message_list {
    uint32_t count; /* Number of items in the list. */
    /* Array of `count` items in their C type; NULL if another member has the items. */
    const void *items;
    /* Callback that fills the item with this index; NULL if another member has the items.  It may
     * leave members of the item that are zero untouched. */
    void (*get)(const void *arg, uint32_t index, void *item_out);
    const void *arg; /* First argument of get(). */
    /* Bytes of `count` packed items, one after the other; the data is NULL if another member has
     * the items. */
    struct tdm_bytes packed;
    const tdm_value *value; /* Decoded array, borrowed from the document; NULL before decoding. */
    /* Description of the list field, set by decoding; NULL before. */
    const struct tdm__field *field;
};

/* Size in bytes of the largest C structure that the get() of a list may fill. */
enum { TDM__MESSAGE_ITEM_BYTES_MAX = 1024 };

/* Appends a message, whose C structure is `structure`, to the writer and returns the writer's
 * status. */
tdm_status tdm__message_encode(const struct tdm__message *message, const void *structure,
                               tdm_writer *writer);

/* Decodes a message: checks the number and the types of all fields, also of nested messages and
 * lists, and fills the C structure.  On failure the structure is undefined, and the result is
 * TDM_E_PROTOCOL with an error that names the message, the field, and the expected and the found
 * type. `value` may be NULL. */
tdm_status tdm__message_decode(const struct tdm__message *message, const tdm_value *value,
                               void *structure_out);

/* Copies one item of a decoded list.  `item_bytes` is the size of the item's C type, and is
 * asserted, as is `index` < list->count. */
void tdm__message_list_read(const struct tdm__message_list *list, uint32_t index, void *item_out,
                            size_t item_bytes);

/* Initial value of the hash of tdm__message_hash(). */
#define TDM__MESSAGE_HASH_START UINT64_C(0xcbf29ce484222325)
/* Continues a 64-bit FNV-1a hash over the name of the message and the names and kinds of its
 * fields.  Start with TDM__MESSAGE_HASH_START. */
uint64_t tdm__message_hash(const struct tdm__message *message, uint64_t hash);
/* Continues a hash of tdm__message_hash() over a text and its NUL. */
uint64_t tdm__message_hash_text(const char *text, uint64_t hash);

#endif
