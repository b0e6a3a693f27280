/* messages.h - the structures of all messages, with functions that encode and decode them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_MESSAGES_H
#define TDM_RUNTIME_MESSAGES_H

#include "runtime/wire/message.h"

/* Every message between processes is declared once, in a .def file of this folder; all.def lists
 * these files.  For a declaration
 *
 *     MESSAGE(greeting)
 *     FIELD(ID, actor)
 *     FIELD(STRING, text)
 *     END_MESSAGE(greeting)
 *
 * this header declares struct tdm__greeting_message, tdm__greeting_encode(),
 * tdm__greeting_decode() and tdm__greeting_table(), which returns the description of the fields.
 * The other forms of fields are MESSAGE_FIELD and OPTIONAL_MESSAGE (a message inside), LIST and
 * MESSAGE_LIST.  The kinds and their C types are listed in runtime/wire/message.h.
 *
 * The messages of all layers are declared here, in the lowest layer, because the version of the
 * protocol is computed from all of them (runtime/rpc/protocol.h).  That must work in programs
 * that use only a part of the library.  A declaration must not use types of the layers above. */

/* The C types of fields by their kinds, which are described in runtime/wire/message.h. */
#define TDM__C_INT             int64_t          /* C type of a field of the kind INT. */
#define TDM__C_INT32           int32_t          /* C type of a field of the kind INT32. */
#define TDM__C_UINT            uint64_t         /* C type of a field of the kind UINT. */
#define TDM__C_UINT32          uint32_t         /* C type of a field of the kind UINT32. */
#define TDM__C_DOUBLE          double           /* C type of a field of the kind DOUBLE. */
#define TDM__C_BOOL            bool             /* C type of a field of the kind BOOL. */
#define TDM__C_STRING          const char *     /* C type of a field of the kind STRING. */
#define TDM__C_OPTIONAL_STRING const char *     /* C type of a field of the kind OPTIONAL_STRING. */
#define TDM__C_BYTES           struct tdm_bytes /* C type of a field of the kind BYTES. */
#define TDM__C_OPTIONAL_BYTES  struct tdm_bytes /* C type of a field of the kind OPTIONAL_BYTES. */
#define TDM__C_ID              struct tdm__id   /* C type of a field of the kind ID. */
#define TDM__C_NDARRAY         const struct tdm_ndarray * /* C type of a field of the kind NDARRAY. */
#define TDM__C_VALUE           struct tdm__message_value /* C type of a field of the kind VALUE. */

/* clang-format off */
/* The start of a message: the start of its structure. */
#define MESSAGE(message) struct tdm__##message##_message {
/* A field of a simple kind: a member of the structure. */
#define FIELD(kind, field) TDM__C_##kind field;
/* A field that is a message: a member of the structure. */
#define MESSAGE_FIELD(message, field) struct tdm__##message##_message field;
/* A field that is a message or nil: a flag and a member of the structure. */
#define OPTIONAL_MESSAGE(message, field) bool has_##field; struct tdm__##message##_message field;
/* A field that is a list of a simple kind: a member of the structure. */
#define LIST(kind, field) struct tdm__message_list field;
/* A field that is a list of messages: a member of the structure. */
#define MESSAGE_LIST(message, field) struct tdm__message_list field;
/* The end of a message: the end of the structure, and its functions. */
#define END_MESSAGE(message)                                                                   \
    };                                                                                         \
    const struct tdm__message *tdm__##message##_table(void);                                   \
    static inline tdm_status tdm__##message##_encode(                                          \
        const struct tdm__##message##_message *structure, tdm_writer *writer)                  \
    {                                                                                          \
        return tdm__message_encode(tdm__##message##_table(), structure, writer);               \
    }                                                                                          \
    static inline tdm_status tdm__##message##_decode(                                          \
        const tdm_value *value, struct tdm__##message##_message *structure_out)                \
    {                                                                                          \
        return tdm__message_decode(tdm__##message##_table(), value, structure_out);            \
    }
/* clang-format on */

#include "runtime/messages/all.def"

#undef MESSAGE
#undef FIELD
#undef MESSAGE_FIELD
#undef OPTIONAL_MESSAGE
#undef LIST
#undef MESSAGE_LIST
#undef END_MESSAGE

/* Returns the description of the message with this index, in the order of declaration, or NULL if
 * `index` is too large.  For the version of the protocol and for tests. */
const struct tdm__message *tdm__messages_at(uint32_t index);

#endif
