/* soak_objects.c - acts of the soak: values put, passed on, borrowed and let go. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "soak.h"

enum { SMALL_PUTS = 50 };

tdm_status soak_put_small(struct soak_hand *hand)
{
    for (int i = 0; i < SMALL_PUTS; i++) {
        uint64_t number = soak_chance(hand, UINT64_MAX);
        tdm_ref *ref;

        TDM_TRY(tdm_put(hand->runtime, &ref, "u", number));
        TDM_TRY(soak_get_number(hand, ref, number, "a small put"));
    }
    return TDM_OK;
}

static tdm_status put_words(struct soak_hand *hand, tdm_ref **ref_out)
{
    struct tdm_ndarray array = soak_array(hand);

    hand->counts->bytes += SOAK_MIB;
    return tdm_put(hand->runtime, ref_out, "a", &array);
}

/* Read here, and on both nodes. */
tdm_status soak_put_large(struct soak_hand *hand)
{
    struct tdm_ndarray array;
    tdm_ref *put;
    tdm_ref *ref;
    uint64_t hash;
    tdm_status status;

    TDM_TRY(put_words(hand, &put));
    hash = soak_hash(hand->words, SOAK_MIB);
    status = tdm_get(put, SOAK_PATIENCE_MS, "a", &array);
    if (status == TDM_OK) {
        status = soak_expect(hash, soak_hash(array.data, SOAK_MIB), "a large put");
    }
    for (int i = SOAK_NEAR; status == TDM_OK && i <= SOAK_FAR; i++) {
        status = tdm_actor_call(hand->actors[i], "hash", &ref, "r", put);
        if (status == TDM_OK) {
            status = soak_get_number(hand, ref, hash, "a large put, elsewhere");
        }
    }
    tdm_ref_release(put);
    return status;
}

/* An actor keeps the reference; its owner lets go of it; the value stays until it is read. */
tdm_status soak_borrow(struct soak_hand *hand)
{
    tdm_actor *actor = hand->actors[soak_chance(hand, 2) == 0 ? SOAK_NEAR : SOAK_FAR];
    tdm_ref *put;
    tdm_ref *ref = NULL;
    uint64_t hash;
    tdm_status status;

    TDM_TRY(put_words(hand, &put));
    hash = soak_hash(hand->words, SOAK_MIB);
    status = tdm_actor_call(actor, "keep", &ref, "R", put);
    if (status == TDM_OK) {
        status = tdm_get(ref, SOAK_PATIENCE_MS, "");
    }
    tdm_ref_release(ref);
    tdm_ref_release(put);
    TDM_TRY(status);
    TDM_TRY(tdm_actor_call(actor, "read_kept", &ref, ""));
    return soak_get_number(hand, ref, hash, "a borrowed value");
}

/* What one actor replies goes to the other, never through here. */
tdm_status soak_chain(struct soak_hand *hand)
{
    tdm_ref *made;
    tdm_ref *near_ref = NULL;
    tdm_ref *far_ref = NULL;
    uint64_t near_hash = 0;
    tdm_status status;

    hand->counts->bytes += SOAK_MIB;
    TDM_TRY(tdm_actor_call(hand->actors[SOAK_FAR], "make", &made, "u",
                           soak_chance(hand, UINT64_MAX / 2)));
    status = tdm_actor_call(hand->actors[SOAK_NEAR], "hash", &near_ref, "r", made);
    if (status == TDM_OK) {
        status = tdm_actor_call(hand->actors[SOAK_FAR], "hash", &far_ref, "r", made);
    }
    tdm_ref_release(made);
    if (status == TDM_OK) {
        status = tdm_get(near_ref, SOAK_PATIENCE_MS, "u", &near_hash);
    }
    tdm_ref_release(near_ref);
    if (status != TDM_OK) {
        tdm_ref_release(far_ref);
        return status;
    }
    return soak_get_number(hand, far_ref, near_hash, "a result passed on");
}

tdm_status soak_pass_handle(struct soak_hand *hand)
{
    uint64_t number = soak_chance(hand, UINT64_MAX);
    tdm_ref *ref;

    TDM_TRY(tdm_actor_call(hand->actors[SOAK_NEAR], "ask", &ref, "hu", hand->actors[SOAK_FAR],
                           number));
    return soak_get_number(hand, ref, number, "a call by a passed handle");
}
