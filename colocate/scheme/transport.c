/* transport.c - how a bucket gets from the sender to a receiver: one row for each scheme. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/transport.h"

#include "colocate/scheme/mailbox.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 64, WORD_BYTES = 8 };

/* A bucket's note is (sums b, what the transport adds …). */
static void bucket_message_key(const struct tdm__transport_context *context, uint32_t bucket,
                               char key[KEY_BYTES])
{
    (void)snprintf(key, KEY_BYTES, "update/%llu/bucket/%u/", (unsigned long long)context->epoch,
                   bucket);
}

/* As an array of words, since arrays come aligned. */
static struct tdm_ndarray checksum_words(const struct tdm__outgoing_bucket *outgoing_bucket)
{
    return (struct tdm_ndarray){.dtype = TDM_U64,
                                .dims_count = 1,
                                .shape = {outgoing_bucket->size_bytes / WORD_BYTES},
                                .data = outgoing_bucket->image};
}

static tdm_status check_words(const struct tdm_ndarray *words,
                              const struct tdm__outgoing_bucket *wanted)
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
    tdm_ref_release(received->note);
    tdm_ref_release(received->value);
    free(received->copy);
    *received = (struct tdm__received_bucket){.note = NULL};
}

/* Waits for the bucket's note; its sums are then in `held`. */
static tdm_status receive_note(const struct tdm__transport_context *context,
                               const struct tdm__outgoing_bucket *wanted,
                               struct tdm__received_bucket *received, const tdm_value **value_out)
{
    char key[KEY_BYTES];
    const struct tdm_ndarray *sums;

    bucket_message_key(context, wanted->bucket, key);
    TDM_TRY(tdm__mailbox_read_message(context->mailbox, key, context->deadline_ms, &received->note,
                                      value_out));
    sums = tdm_value_ndarray(tdm_value_at(*value_out, 0));
    if (sums == NULL || sums->dtype != TDM_U64 ||
        tdm_ndarray_bytes(sums) != wanted->sums_count * sizeof(*received->sums)) {
        return tdm__fail(TDM_E_PROTOCOL, "bucket %u: not the sums of %u tensors", wanted->bucket,
                         wanted->sums_count);
    }
    received->sums = sums->data;
    return TDM_OK;
}

static struct tdm_ndarray note_checksums(const struct tdm__outgoing_bucket *outgoing_bucket)
{
    return (struct tdm_ndarray){.dtype = TDM_U64,
                                .dims_count = 1,
                                .shape = {outgoing_bucket->sums_count},
                                .data = outgoing_bucket->sums};
}

/* ---- by reference ----------------------------------------------------------------------- */

static tdm_status send_reference(const struct tdm__transport_context *context,
                                 const struct tdm__outgoing_bucket *outgoing_bucket)
{
    const struct tdm_ndarray words = checksum_words(outgoing_bucket);
    const struct tdm_ndarray sums = note_checksums(outgoing_bucket);
    char key[KEY_BYTES];
    tdm_ref *value;
    tdm_ref *done = NULL;
    tdm_status status;

    bucket_message_key(context, outgoing_bucket->bucket, key);
    TDM_TRY(tdm_put(context->runtime, &value, "a", &words));
    status = tdm_actor_call(context->mailbox, "put", &done, "s(aR)", key, &sums, value);
    if (status == TDM_OK) {
        status = tdm__mailbox_await_put(done, context->deadline_ms);
    }
    tdm_ref_release(value); /* the mailbox holds it, and whoever reads it */
    return status;
}

static tdm_status read_reference(const struct tdm__transport_context *context,
                                 const struct tdm__outgoing_bucket *wanted, const tdm_value *note,
                                 struct tdm__received_bucket *received)
{
    struct tdm_ndarray words;

    TDM_TRY(tdm_value_ref(context->runtime, tdm_value_at(note, 1), &received->value));
    TDM_TRY(
        tdm_get(received->value, tdm__deadline_remaining_ms(context->deadline_ms), "a", &words));
    TDM_TRY(check_words(&words, wanted));
    received->data = words.data;
    return TDM_OK;
}

static tdm_status receive_reference(const struct tdm__transport_context *context,
                                    const struct tdm__outgoing_bucket *wanted,
                                    struct tdm__received_bucket *held_out)
{
    struct tdm__received_bucket received = {.note = NULL};
    const tdm_value *note;
    tdm_status status = receive_note(context, wanted, &received, &note);

    if (status == TDM_OK) {
        status = read_reference(context, wanted, note, &received);
    }
    if (status != TDM_OK) {
        tdm__received_bucket_fini(&received);
        return status;
    }
    *held_out = received;
    return TDM_OK;
}

/* ---- inside calls ----------------------------------------------------------------------- */

static tdm_status send_bytes(const struct tdm__transport_context *context,
                             const struct tdm__outgoing_bucket *outgoing_bucket)
{
    const struct tdm_ndarray words = checksum_words(outgoing_bucket);
    const struct tdm_ndarray sums = note_checksums(outgoing_bucket);
    char key[KEY_BYTES];
    tdm_ref *done;

    bucket_message_key(context, outgoing_bucket->bucket, key);
    TDM_TRY(tdm_actor_call(context->mailbox, "put", &done, "s(aa)", key, &sums, &words));
    return tdm__mailbox_await_put(done, context->deadline_ms);
}

static tdm_status receive_bytes(const struct tdm__transport_context *context,
                                const struct tdm__outgoing_bucket *wanted,
                                struct tdm__received_bucket *held_out)
{
    struct tdm__received_bucket received = {.note = NULL};
    const struct tdm_ndarray *words;
    const tdm_value *note;
    tdm_status status = receive_note(context, wanted, &received, &note);

    if (status == TDM_OK) {
        words = tdm_value_ndarray(tdm_value_at(note, 1));
        status = check_words(words, wanted);
    }
    if (status != TDM_OK) {
        tdm__received_bucket_fini(&received);
        return status;
    }
    received.data = words->data;
    *held_out = received;
    return TDM_OK;
}

/* ---- by broadcast ----------------------------------------------------------------------- */

enum { SENDERS_RANK = 0 };

static tdm_status send_broadcast(const struct tdm__transport_context *context,
                                 const struct tdm__outgoing_bucket *outgoing_bucket)
{
    const struct tdm_ndarray sums = note_checksums(outgoing_bucket);
    char key[KEY_BYTES];
    tdm_ref *done;

    bucket_message_key(context, outgoing_bucket->bucket, key);
    TDM_TRY(tdm_actor_call(context->mailbox, "put", &done, "s(a)", key, &sums));
    TDM_TRY(tdm__mailbox_await_put(done, context->deadline_ms));
    return tdm_collective_broadcast(context->group, outgoing_bucket->image,
                                    outgoing_bucket->size_bytes, SENDERS_RANK);
}

static tdm_status receive_broadcast(const struct tdm__transport_context *context,
                                    const struct tdm__outgoing_bucket *wanted,
                                    struct tdm__received_bucket *held_out)
{
    struct tdm__received_bucket received = {.note = NULL};
    const tdm_value *note;
    tdm_status status = receive_note(context, wanted, &received, &note);

    if (status == TDM_OK) {
        received.copy = malloc(wanted->size_bytes);
        status = received.copy != NULL
                     ? tdm_collective_broadcast(context->group, received.copy, wanted->size_bytes,
                                                SENDERS_RANK)
                     : tdm__fail(TDM_E_NOMEM, "a bucket of %zu bytes", wanted->size_bytes);
    }
    if (status != TDM_OK) {
        tdm__received_bucket_fini(&received);
        return status;
    }
    received.data = received.copy;
    *held_out = received;
    return TDM_OK;
}

/* ---- the table -------------------------------------------------------------------------- */

/* clang-format off */
static const struct tdm__weight_transport transports[] = {
    [TDM_WEIGHTS_SHARED]      = {"shared", false, false, send_reference, receive_reference},
    [TDM_WEIGHTS_PROCESSES]   = {"processes", false, false, send_bytes, receive_bytes},
    [TDM_WEIGHTS_DISTRIBUTED] = {"distributed", true, false, send_broadcast, receive_broadcast},
    [TDM_WEIGHTS_RPC]         = {"rpc", false, false, send_reference, receive_reference},
    [TDM_WEIGHTS_ACTORS]      = {"actors", false, false, send_reference, receive_reference},
    [TDM_WEIGHTS_MODULE]      = {"module", false, true, send_reference, receive_reference},
    [TDM_WEIGHTS_NONE]        = {"none", false, false, NULL, NULL},
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
