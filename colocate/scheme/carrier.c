/* carrier.c - how a bucket gets from the sender to a receiver: one row for each scheme. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/carrier.h"

#include "colocate/scheme/board.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 64, WORD_BYTES = 8 };

/* A bucket's note is (sums b, what the carrier adds …). */
static void key_of(const struct tdm__way *way, uint32_t bucket, char key[KEY_BYTES])
{
    (void)snprintf(key, KEY_BYTES, "update/%llu/bucket/%u/", (unsigned long long)way->epoch,
                   bucket);
}

/* As an array of words, since arrays come aligned. */
static struct tdm_ndarray words_of(const struct tdm__parcel *parcel)
{
    return (struct tdm_ndarray){.dtype = TDM_U64,
                                .dims_count = 1,
                                .shape = {parcel->size_bytes / WORD_BYTES},
                                .data = parcel->image};
}

static tdm_status check_words(const struct tdm_ndarray *words, const struct tdm__parcel *wanted)
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

void tdm__held_fini(struct tdm__held *held)
{
    tdm_ref_release(held->note);
    tdm_ref_release(held->value);
    free(held->copy);
    *held = (struct tdm__held){.note = NULL};
}

/* Waits for the bucket's note; its sums are then in `held`. */
static tdm_status take_note(const struct tdm__way *way, const struct tdm__parcel *wanted,
                            struct tdm__held *held, const tdm_value **value_out)
{
    char key[KEY_BYTES];
    const struct tdm_ndarray *sums;

    key_of(way, wanted->bucket, key);
    TDM_TRY(tdm__board_read(way->board, key, way->deadline_ms, &held->note, value_out));
    sums = tdm_value_ndarray(tdm_value_at(*value_out, 0));
    if (sums == NULL || sums->dtype != TDM_U64 ||
        tdm_ndarray_bytes(sums) != wanted->sums_count * sizeof(*held->sums)) {
        return tdm__fail(TDM_E_PROTOCOL, "bucket %u: not the sums of %u tensors",
                         wanted->bucket, wanted->sums_count);
    }
    held->sums = sums->data;
    return TDM_OK;
}

static struct tdm_ndarray sums_of(const struct tdm__parcel *parcel)
{
    return (struct tdm_ndarray){
        .dtype = TDM_U64, .dims_count = 1, .shape = {parcel->sums_count}, .data = parcel->sums};
}

/* ---- by reference ----------------------------------------------------------------------- */

static tdm_status give_reference(const struct tdm__way *way, const struct tdm__parcel *parcel)
{
    const struct tdm_ndarray words = words_of(parcel);
    const struct tdm_ndarray sums = sums_of(parcel);
    char key[KEY_BYTES];
    tdm_ref *value;
    tdm_ref *done = NULL;
    tdm_status status;

    key_of(way, parcel->bucket, key);
    TDM_TRY(tdm_put(way->runtime, &value, "a", &words));
    status = tdm_actor_call(way->board, "put", &done, "s(aR)", key, &sums, value);
    if (status == TDM_OK) {
        status = tdm__board_done(done, way->deadline_ms);
    }
    tdm_ref_release(value); /* the board holds it, and whoever reads it */
    return status;
}

static tdm_status read_reference(const struct tdm__way *way, const struct tdm__parcel *wanted,
                                 const tdm_value *note, struct tdm__held *held)
{
    struct tdm_ndarray words;

    TDM_TRY(tdm_value_ref(way->runtime, tdm_value_at(note, 1), &held->value));
    TDM_TRY(tdm_get(held->value, tdm__deadline_left(way->deadline_ms), "a", &words));
    TDM_TRY(check_words(&words, wanted));
    held->data = words.data;
    return TDM_OK;
}

static tdm_status take_reference(const struct tdm__way *way, const struct tdm__parcel *wanted,
                                 struct tdm__held *held_out)
{
    struct tdm__held held = {.note = NULL};
    const tdm_value *note;
    tdm_status status = take_note(way, wanted, &held, &note);

    if (status == TDM_OK) {
        status = read_reference(way, wanted, note, &held);
    }
    if (status != TDM_OK) {
        tdm__held_fini(&held);
        return status;
    }
    *held_out = held;
    return TDM_OK;
}

/* ---- inside calls ----------------------------------------------------------------------- */

static tdm_status give_bytes(const struct tdm__way *way, const struct tdm__parcel *parcel)
{
    const struct tdm_ndarray words = words_of(parcel);
    const struct tdm_ndarray sums = sums_of(parcel);
    char key[KEY_BYTES];
    tdm_ref *done;

    key_of(way, parcel->bucket, key);
    TDM_TRY(tdm_actor_call(way->board, "put", &done, "s(aa)", key, &sums, &words));
    return tdm__board_done(done, way->deadline_ms);
}

static tdm_status take_bytes(const struct tdm__way *way, const struct tdm__parcel *wanted,
                             struct tdm__held *held_out)
{
    struct tdm__held held = {.note = NULL};
    const struct tdm_ndarray *words;
    const tdm_value *note;
    tdm_status status = take_note(way, wanted, &held, &note);

    if (status == TDM_OK) {
        words = tdm_value_ndarray(tdm_value_at(note, 1));
        status = check_words(words, wanted);
    }
    if (status != TDM_OK) {
        tdm__held_fini(&held);
        return status;
    }
    held.data = words->data;
    *held_out = held;
    return TDM_OK;
}

/* ---- by broadcast ----------------------------------------------------------------------- */

enum { SENDERS_RANK = 0 };

static tdm_status give_broadcast(const struct tdm__way *way, const struct tdm__parcel *parcel)
{
    const struct tdm_ndarray sums = sums_of(parcel);
    char key[KEY_BYTES];
    tdm_ref *done;

    key_of(way, parcel->bucket, key);
    TDM_TRY(tdm_actor_call(way->board, "put", &done, "s(a)", key, &sums));
    TDM_TRY(tdm__board_done(done, way->deadline_ms));
    return tdm_group_broadcast(way->group, parcel->image, parcel->size_bytes, SENDERS_RANK);
}

static tdm_status take_broadcast(const struct tdm__way *way, const struct tdm__parcel *wanted,
                                 struct tdm__held *held_out)
{
    struct tdm__held held = {.note = NULL};
    const tdm_value *note;
    tdm_status status = take_note(way, wanted, &held, &note);

    if (status == TDM_OK) {
        held.copy = malloc(wanted->size_bytes);
        status =
            held.copy != NULL
                ? tdm_group_broadcast(way->group, held.copy, wanted->size_bytes, SENDERS_RANK)
                : tdm__fail(TDM_E_NOMEM, "a bucket of %zu bytes", wanted->size_bytes);
    }
    if (status != TDM_OK) {
        tdm__held_fini(&held);
        return status;
    }
    held.data = held.copy;
    *held_out = held;
    return TDM_OK;
}

/* ---- the table -------------------------------------------------------------------------- */

/* clang-format off */
static const struct tdm__carrier carriers[] = {
    [TDM_WEIGHTS_SHARED]      = {"shared", false, false, give_reference, take_reference},
    [TDM_WEIGHTS_PROCESSES]   = {"processes", false, false, give_bytes, take_bytes},
    [TDM_WEIGHTS_DISTRIBUTED] = {"distributed", true, false, give_broadcast, take_broadcast},
    [TDM_WEIGHTS_RPC]         = {"rpc", false, false, give_reference, take_reference},
    [TDM_WEIGHTS_ACTORS]      = {"actors", false, false, give_reference, take_reference},
    [TDM_WEIGHTS_MODULE]      = {"module", false, true, give_reference, take_reference},
    [TDM_WEIGHTS_NONE]        = {"none", false, false, NULL, NULL},
};
/* clang-format on */

const struct tdm__carrier *tdm__carrier_of(enum tdm_weights_scheme scheme)
{
    size_t index = (size_t)scheme;

    return index < sizeof(carriers) / sizeof(carriers[0]) && carriers[index].name != NULL
               ? &carriers[index]
               : NULL;
}

const char *tdm_weights_scheme_name(enum tdm_weights_scheme scheme)
{
    const struct tdm__carrier *carrier = tdm__carrier_of(scheme);

    return carrier == NULL ? NULL : carrier->name;
}
