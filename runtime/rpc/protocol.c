/* protocol.c - the version of the protocol, derived from what processes send. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/rpc/protocol.h"

#include "runtime/messages/messages.h"
#include "runtime/rpc/hello.h"
#include "runtime/wire/frame.h"

#include <stdatomic.h>

/* Expands one entry of HELLO_FIELDS to text, over which the protocol version is hashed. */
#define FIELD_TEXT(type, name, array) #type " " #name #array ";"
const char tdm__hello_layout[] = HELLO_FIELDS(FIELD_TEXT);

/* Computes the protocol version, a hash. It maps 0 to 1, since 0 means "not computed". */
static uint32_t version_compute(void)
{
    uint64_t hash = tdm__message_hash_text(tdm__hello_layout, TDM__MESSAGE_HASH_START);
    const struct tdm__message *message;
    uint32_t version;

    hash = tdm__message_hash_text(tdm__frame_layout, hash);
    for (uint32_t i = 0; (message = tdm__messages_at(i)) != NULL; i++) {
        hash = tdm__message_hash(message, hash);
    }
    version = (uint32_t)(hash ^ (hash >> 32));
    return version != 0 ? version : 1;
}

uint32_t tdm__protocol_version(void)
{
    /* Protocol version computed before; 0 before the first call. Threads that compute it at the
     * same time store the same value. */
    static _Atomic uint32_t cached_version;
    uint32_t version = atomic_load_explicit(&cached_version, memory_order_relaxed);

    if (version == 0) {
        version = version_compute();
        atomic_store_explicit(&cached_version, version, memory_order_relaxed);
    }
    return version;
}
