/* soak_objects.c - operations of the soak: values that are put, passed on, borrowed and
 * released. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "soak.h"

/* Number of small values that one operation puts. */
enum { SMALL_PUTS = 50 };

tdm_status soak_put_small(struct soak_thread *driver_thread)
{
    for (int i = 0; i < SMALL_PUTS; i++) {
        uint64_t number = soak_random(driver_thread, UINT64_MAX);
        tdm_ref *ref;

        TDM_TRY(tdm_put(driver_thread->runtime, &ref, "u", number));
        TDM_TRY(soak_get_number(driver_thread, ref, number, "a small put"));
    }
    return TDM_OK;
}

/* Puts the thread's words as a value of 1 MiB. */
static tdm_status put_words(struct soak_thread *driver_thread, tdm_ref **ref_out)
{
    struct tdm_ndarray array = soak_array(driver_thread);

    driver_thread->counts->bytes += SOAK_MIB;
    return tdm_put(driver_thread->runtime, ref_out, "a", &array);
}

/* Puts a large value and reads it in this process and in actors on both nodes. */
tdm_status soak_put_large(struct soak_thread *driver_thread)
{
    struct tdm_ndarray array;
    tdm_ref *put;
    tdm_ref *ref;
    uint64_t hash;
    tdm_status status;

    TDM_TRY(put_words(driver_thread, &put));
    hash = soak_hash(driver_thread->words, SOAK_MIB);
    status = tdm_get(put, SOAK_TIMEOUT_MS, "a", &array);
    if (status == TDM_OK) {
        status = soak_expect_equal(hash, soak_hash(array.data, SOAK_MIB), "a large put");
    }
    for (int i = SOAK_LOCAL; status == TDM_OK && i <= SOAK_REMOTE; i++) {
        status = tdm_actor_call(driver_thread->actors[i], "hash", &ref, "r", put);
        if (status == TDM_OK) {
            status = soak_get_number(driver_thread, ref, hash, "a large put, elsewhere");
        }
    }
    tdm_ref_release(put);
    return status;
}

/* Lets an actor keep a reference, releases the owner's own, and checks that the actor can still
 * read the value. */
tdm_status soak_borrow_reference(struct soak_thread *driver_thread)
{
    tdm_actor *actor =
        driver_thread->actors[soak_random(driver_thread, 2) == 0 ? SOAK_LOCAL : SOAK_REMOTE];
    tdm_ref *put;
    tdm_ref *ref = NULL;
    uint64_t hash;
    tdm_status status;

    TDM_TRY(put_words(driver_thread, &put));
    hash = soak_hash(driver_thread->words, SOAK_MIB);
    status = tdm_actor_call(actor, "keep", &ref, "R", put);
    if (status == TDM_OK) {
        status = tdm_get(ref, SOAK_TIMEOUT_MS, "");
    }
    tdm_ref_release(ref);
    tdm_ref_release(put);
    TDM_TRY(status);
    TDM_TRY(tdm_actor_call(actor, "read_kept", &ref, ""));
    return soak_get_number(driver_thread, ref, hash, "a borrowed value");
}

/* Passes the result of one actor to two others by reference; this process never reads it. */
tdm_status soak_chain_references(struct soak_thread *driver_thread)
{
    tdm_ref *made;
    tdm_ref *local_ref = NULL;
    tdm_ref *remote_ref = NULL;
    uint64_t local_hash = 0;
    tdm_status status;

    driver_thread->counts->bytes += SOAK_MIB;
    TDM_TRY(tdm_actor_call(driver_thread->actors[SOAK_REMOTE], "make", &made, "u",
                           soak_random(driver_thread, UINT64_MAX / 2)));
    status = tdm_actor_call(driver_thread->actors[SOAK_LOCAL], "hash", &local_ref, "r", made);
    if (status == TDM_OK) {
        status = tdm_actor_call(driver_thread->actors[SOAK_REMOTE], "hash", &remote_ref, "r", made);
    }
    tdm_ref_release(made);
    if (status == TDM_OK) {
        status = tdm_get(local_ref, SOAK_TIMEOUT_MS, "u", &local_hash);
    }
    tdm_ref_release(local_ref);
    if (status != TDM_OK) {
        tdm_ref_release(remote_ref);
        return status;
    }
    return soak_get_number(driver_thread, remote_ref, local_hash, "a result passed on");
}

tdm_status soak_pass_handle(struct soak_thread *driver_thread)
{
    uint64_t number = soak_random(driver_thread, UINT64_MAX);
    tdm_ref *ref;

    TDM_TRY(tdm_actor_call(driver_thread->actors[SOAK_LOCAL], "ask", &ref, "hu",
                           driver_thread->actors[SOAK_REMOTE], number));
    return soak_get_number(driver_thread, ref, number, "a call by a passed handle");
}
