/* transport.c - how buckets get from the sender to a receiver, one entry per scheme. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A sender puts one message for each bucket into its mailbox, under
 * "update/EPOCH/bucket/INDEX/". The message always has the bucket's tensor handles, which
 * say where each tensor lies in it, with checksums. Its table is scheme_bucket
 * (runtime/messages/scheme.def). The bytes take one of three ways:
 * - By reference: the message has a reference to an object in shared memory, or on another node.
 * - In the call: the message has the bytes themselves.
 * - By broadcast: sender and receivers are ranks of a collective group; the sender has rank 0.
 *
 * Transports have no state; a transport context lives on the stack of one send or receive. They
 * block the thread of their caller. */

#include "colocate/scheme/transport.h"

#include "actors/objects/ref_table.h"
#include "actors/process/runtime.h"
#include "colocate/scheme/mailbox.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sizes of messages. */
enum {
    KEY_BYTES = 64, /* Size of a message key in bytes, with its terminating NUL. */
    WORD_BYTES = 8, /* Size in bytes of the words in which buckets travel. */
};

/* Writes the key of a bucket's message. */
static void bucket_message_key(const struct tdm__transport_context *context, uint32_t bucket,
                               char key[KEY_BYTES])
{
    (void)snprintf(key, KEY_BYTES, "update/%llu/bucket/%u/", (unsigned long long)context->epoch,
                   bucket);
}

/* Returns the bucket's contents as an array of 64-bit words, because arrays arrive aligned. */
static struct tdm_ndarray image_words(const struct tdm__outgoing_bucket *outgoing_bucket)
{
    return (struct tdm_ndarray){.dtype = TDM_U64,
                                .dims_count = 1,
                                .shape = {outgoing_bucket->size_bytes / WORD_BYTES},
                                .data = outgoing_bucket->image};
}

/* Returns TDM_E_PROTOCOL if the received array does not have the type and the size of the expected
 * bucket. */
static tdm_status check_words(const struct tdm_ndarray *words,
                              const struct tdm__wanted_bucket *wanted)
{
    if (words == NULL || words->dtype != TDM_U64 ||
        tdm_ndarray_bytes(words) != wanted->size_bytes) {
        return tdm__fail(TDM_E_PROTOCOL, "bucket %u: %llu bytes of numbers, not %zu",
                         wanted->bucket,
                         words == NULL ? 0ULL : (unsigned long long)tdm_ndarray_bytes(words),
                         wanted->size_bytes);
    }
    return TDM_OK;
}

void tdm__received_bucket_fini(struct tdm__received_bucket *received)
{
    tdm_ref_release(received->message);
    tdm_ref_release(received->value);
    free(received->copy);
    *received = (struct tdm__received_bucket){.message = NULL};
}

/* Waits for the bucket's message and sets `message` and `description` of `received`. `contents_out`
 * is the field with the contents, borrowed from the message. */
static tdm_status receive_bucket_message(const struct tdm__transport_context *context,
                                         const struct tdm__wanted_bucket *wanted,
                                         struct tdm__received_bucket *received,
                                         const tdm_value **contents_out)
{
    char key[KEY_BYTES];
    struct tdm__scheme_bucket_message message;
    const tdm_value *value;

    bucket_message_key(context, wanted->bucket, key);
    TDM_TRY(tdm__mailbox_read_message(context->mailbox, key, context->deadline_ms,
                                      &received->message, &value));
    TDM_TRY(tdm__scheme_bucket_decode(value, &message));
    received->description = message.description;
    *contents_out = message.contents.value;
    return TDM_OK;
}

/* ---- by reference -------------------------------------------------------------------- */

/* Packs a reference to an object. */
static tdm_status pack_reference(tdm_runtime *runtime, tdm_ref *ref, tdm_writer *writer)
{
    TDM__LOCK(runtime);

    return tdm__reference_write(writer, ref);
}

/* Puts a message with the bucket's description and a reference to the object with its contents. */
static tdm_status put_reference(const struct tdm__transport_context *context,
                                const struct tdm__outgoing_bucket *outgoing_bucket, tdm_ref *object)
{
    struct tdm__scheme_bucket_message message = {.description = outgoing_bucket->description};
    char key[KEY_BYTES];
    tdm_writer *writer;
    tdm_status status;

    bucket_message_key(context, outgoing_bucket->bucket, key);
    TDM_TRY(tdm_writer_create(&writer));
    status = pack_reference(context->runtime, object, writer);
    if (status == TDM_OK) {
        message.contents.packed = tdm_writer_bytes(writer);
        status = tdm__mailbox_put_and_wait(context->mailbox, key, tdm__scheme_bucket_table(),
                                           &message, context->deadline_ms);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Stores the bucket as an object and puts a reference to it into the message. */
static tdm_status send_reference(const struct tdm__transport_context *context,
                                 const struct tdm__outgoing_bucket *outgoing_bucket)
{
    const struct tdm_ndarray words = image_words(outgoing_bucket);
    tdm_ref *object;
    tdm_status status;

    TDM_TRY(tdm_put(context->runtime, &object, "a", &words));
    status = put_reference(context, outgoing_bucket, object);
    tdm_ref_release(object); /* The mailbox and the receivers retain the object. */
    return status;
}

/* Resolves the reference in the message and waits for its object. */
static tdm_status read_reference(const struct tdm__transport_context *context,
                                 const struct tdm__wanted_bucket *wanted,
                                 const tdm_value *reference, struct tdm__received_bucket *received)
{
    struct tdm_ndarray words;

    TDM_TRY(tdm_value_ref(context->runtime, reference, &received->value));
    TDM_TRY(
        tdm_get(received->value, tdm__deadline_remaining_ms(context->deadline_ms), "a", &words));
    TDM_TRY(check_words(&words, wanted));
    received->data = words.data;
    return TDM_OK;
}

/* Receives a bucket that is sent by reference. */
static tdm_status receive_reference(const struct tdm__transport_context *context,
                                    const struct tdm__wanted_bucket *wanted,
                                    struct tdm__received_bucket *received_out)
{
    struct tdm__received_bucket received = {.message = NULL};
    const tdm_value *reference;
    tdm_status status = receive_bucket_message(context, wanted, &received, &reference);

    if (status == TDM_OK) {
        status = read_reference(context, wanted, reference, &received);
    }
    if (status != TDM_OK) {
        tdm__received_bucket_fini(&received);
        return status;
    }
    *received_out = received;
    return TDM_OK;
}

/* ---- inside calls -------------------------------------------------------------------- */

/* Puts the bucket's bytes into the message. The formats "sv" of mailbox_put and "ba" of
 * scheme_bucket are written out here for speed. A call by format copies the bytes once, into the
 * shared memory of the call; a call with an encoded message copies them three times. */
static tdm_status send_bytes(const struct tdm__transport_context *context,
                             const struct tdm__outgoing_bucket *outgoing_bucket)
{
    const struct tdm_ndarray words = image_words(outgoing_bucket);
    char key[KEY_BYTES];
    tdm_ref *done;

    bucket_message_key(context, outgoing_bucket->bucket, key);
    TDM_TRY(tdm_actor_call(context->mailbox, "put", &done, "s(ba)", key,
                           outgoing_bucket->description.data,
                           outgoing_bucket->description.size_bytes, &words));
    return tdm__mailbox_await_done(done, context->deadline_ms);
}

/* Receives a bucket whose bytes are in the message. */
static tdm_status receive_bytes(const struct tdm__transport_context *context,
                                const struct tdm__wanted_bucket *wanted,
                                struct tdm__received_bucket *received_out)
{
    struct tdm__received_bucket received = {.message = NULL};
    const struct tdm_ndarray *words;
    const tdm_value *contents;
    tdm_status status = receive_bucket_message(context, wanted, &received, &contents);

    if (status == TDM_OK) {
        words = tdm_value_ndarray(contents);
        status = check_words(words, wanted);
    }
    if (status != TDM_OK) {
        tdm__received_bucket_fini(&received);
        return status;
    }
    received.data = words->data;
    *received_out = received;
    return TDM_OK;
}

/* ---- by broadcast -------------------------------------------------------------------- */

/* Rank of the sender in the collective group; receivers have the ranks from 1. */
enum { SENDER_RANK = 0 };

/* Puts the description into the message and broadcasts the bytes. */
static tdm_status send_broadcast(const struct tdm__transport_context *context,
                                 const struct tdm__outgoing_bucket *outgoing_bucket)
{
    const struct tdm__scheme_bucket_message message = {.description = outgoing_bucket->description};
    char key[KEY_BYTES];

    bucket_message_key(context, outgoing_bucket->bucket, key);
    TDM_TRY(tdm__mailbox_put_and_wait(context->mailbox, key, tdm__scheme_bucket_table(), &message,
                                      context->deadline_ms));
    return tdm_collective_broadcast(context->group, outgoing_bucket->image,
                                    outgoing_bucket->size_bytes, SENDER_RANK);
}

/* Receives a bucket that is broadcast, into newly allocated memory. */
static tdm_status receive_broadcast(const struct tdm__transport_context *context,
                                    const struct tdm__wanted_bucket *wanted,
                                    struct tdm__received_bucket *received_out)
{
    struct tdm__received_bucket received = {.message = NULL};
    const tdm_value *nothing;
    tdm_status status = receive_bucket_message(context, wanted, &received, &nothing);

    if (status == TDM_OK) {
        received.copy = malloc(wanted->size_bytes);
        status = received.copy != NULL
                     ? tdm_collective_broadcast(context->group, received.copy, wanted->size_bytes,
                                                SENDER_RANK)
                     : tdm__fail(TDM_E_NOMEM, "a bucket of %zu bytes", wanted->size_bytes);
    }
    if (status != TDM_OK) {
        tdm__received_bucket_fini(&received);
        return status;
    }
    received.data = received.copy;
    *received_out = received;
    return TDM_OK;
}

/* ---- the table ----------------------------------------------------------------------- */

/* clang-format off */
static const struct tdm__weight_transport transports[] = {
    [TDM_WEIGHTS_SHARED] = {"shared", "SharedMemWeightSyncScheme",
                            false, false, send_reference, receive_reference},
    [TDM_WEIGHTS_PROCESSES] = {"processes", "MultiProcessWeightSyncScheme",
                               false, false, send_bytes, receive_bytes},
    [TDM_WEIGHTS_DISTRIBUTED] = {"distributed", "DistributedWeightSyncScheme",
                                 true, false, send_broadcast, receive_broadcast},
    [TDM_WEIGHTS_RPC] = {"rpc", "RPCWeightSyncScheme",
                         false, false, send_reference, receive_reference},
    [TDM_WEIGHTS_ACTORS] = {"actors", "RayWeightSyncScheme",
                            false, false, send_reference, receive_reference},
    [TDM_WEIGHTS_MODULE] = {"module", "RayModuleTransformScheme",
                            false, true, send_reference, receive_reference},
    [TDM_WEIGHTS_NONE] = {"none", "NoWeightSyncScheme", false, false, NULL, NULL},
};
/* clang-format on */

const struct tdm__weight_transport *tdm__weight_transport_of_scheme(enum tdm_weights_scheme scheme)
{
    size_t index = (size_t)scheme;

    return index < sizeof(transports) / sizeof(transports[0]) && transports[index].name != NULL
               ? &transports[index]
               : NULL;
}

const char *tdm_weights_scheme_name(enum tdm_weights_scheme scheme)
{
    const struct tdm__weight_transport *transport = tdm__weight_transport_of_scheme(scheme);

    return transport == NULL ? NULL : transport->name;
}

const char *tdm_weights_scheme_torchrl(enum tdm_weights_scheme scheme)
{
    const struct tdm__weight_transport *transport = tdm__weight_transport_of_scheme(scheme);

    return transport == NULL ? NULL : transport->torchrl;
}
