/* shared_ref.c - the entries of the table of references that other processes know. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Owns the buckets of the table: a hash table from object ids to entries (struct tdm__shared_ref).
 * An entry exists while its reference does; the reference owns it. An entry has an owner if another
 * process owns the object (ref_owners.c), and pins and waiters if this process does (owned_refs.c).
 * Everything runs with the loop's lock. */

#include "actors/objects/shared_ref.h"

#include "actors/objects/ref.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

/* Number of hash buckets that the first entry of a table creates; before it there are none. */
enum { BUCKETS_MIN = 64 };

/* Returns the bucket of the object with this id. */
static struct bucket *ref_table_bucket(struct tdm__ref_table *objects, const struct tdm__id *id)
{
    uint64_t hash;

    /* Object ids are random, so their first bytes serve as the hash. */
    memcpy(&hash, id->bytes, sizeof(hash));
    return &objects->buckets[hash & (objects->buckets_count - 1)];
}

/* Replaces the buckets by `buckets_count` new ones, a power of two, and moves all entries. */
static tdm_status ref_table_resize(struct tdm__ref_table *objects, uint32_t buckets_count)
{
    struct bucket *old = objects->buckets;
    uint32_t old_count = objects->buckets_count;
    struct bucket *buckets = calloc(buckets_count, sizeof(*buckets));

    if (buckets == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a table of %u objects", buckets_count);
    }
    objects->buckets = buckets;
    objects->buckets_count = buckets_count;
    for (uint32_t i = 0; i < old_count; i++) {
        struct tdm__shared_ref *shared;

        while ((shared = LIST_FIRST(&old[i])) != NULL) {
            LIST_REMOVE(shared, in_bucket);
            LIST_INSERT_HEAD(ref_table_bucket(objects, &shared->id), shared, in_bucket);
        }
    }
    free(old);
    return TDM_OK;
}

struct tdm__shared_ref *tdm__shared_ref_find(struct tdm__ref_table *objects,
                                             const struct tdm__id *id)
{
    struct tdm__shared_ref *shared;

    if (objects->buckets_count == 0) {
        return NULL;
    }
    LIST_FOREACH(shared, ref_table_bucket(objects, id), in_bucket)
    {
        if (tdm__id_equal(&shared->id, id)) {
            return shared;
        }
    }
    return NULL;
}

tdm_status tdm__shared_ref_create(struct tdm__ref_table *objects, const struct tdm__id *id,
                                  tdm_ref *ref, struct tdm__shared_ref **shared_out)
{
    struct tdm__shared_ref *shared;

    if (objects->shared_count >= objects->buckets_count) {
        TDM_TRY(ref_table_resize(
            objects, objects->buckets_count == 0 ? BUCKETS_MIN : 2 * objects->buckets_count));
    }
    shared = calloc(1, sizeof(*shared));
    if (shared == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a shared reference");
    }
    shared->objects = objects;
    shared->id = *id;
    shared->ref = ref;
    shared->created_ms = tdm__clock_ms();
    LIST_INIT(&shared->borrower_pins);
    STAILQ_INIT(&shared->waiters);
    LIST_INSERT_HEAD(ref_table_bucket(objects, id), shared, in_bucket);
    objects->shared_count++;
    ref->shared = shared;
    *shared_out = shared;
    return TDM_OK;
}

void tdm__shared_ref_remove(struct tdm__shared_ref *shared)
{
    LIST_REMOVE(shared, in_bucket);
    shared->objects->shared_count--;
    shared->ref->shared = NULL;
}

bool tdm__shared_ref_is_settled(const struct tdm__shared_ref *shared)
{
    return shared->owner == NULL || shared->pin_acknowledged;
}

bool tdm__shared_ref_is_borrowed(const struct tdm__shared_ref *shared)
{
    return shared->owner != NULL;
}

const struct tdm__id *tdm__shared_ref_owner_node(const struct tdm__shared_ref *shared)
{
    return shared->owner == NULL ? NULL : &shared->owner->address.node;
}
