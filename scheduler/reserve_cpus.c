/* reserve_cpus.c - CPUs that an actor lends to others while its method waits. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/reserve_cpus.h"

#include "runtime/error.h"
#include "runtime/store/txn.h"
#include "scheduler/retrying_txn.h"

#include <stdlib.h>

/* State of tdm__reserve_cpus(). */
struct cpu_change {
    /* Copy of the actor's record, with the CPUs that the actor holds afterwards. */
    struct tdm__actor_record actor;
    tdm__reserve_done_fn *fn; /* Callback that gets the outcome. */
    void *arg;                /* First argument of the callback `fn`. */
};

/* Takes `cpu` from the actor's node and adds the write of that node's resources. */
static tdm_status take_on_node(struct tdm__txn *txn, const struct tdm__actor_record *actor,
                               int64_t cpu)
{
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record *record =
        tdm__txn_find_record(txn, tdm__store_key("free", &actor->node, key));
    struct tdm__node_resources node;

    if (record == NULL) {
        /* The node is lost with all its resources. If it joins now, it counts the actor. */
        return tdm__txn_require_unchanged(txn, key);
    }
    TDM_TRY(tdm__free_record_read(record, &node));
    TDM_TRY(tdm__pool_take_cpus(&node.pool, cpu));
    return tdm__free_record_put(txn, &node);
}

/* Takes the CPUs `arg`, an int64_t, from a pool. */
static tdm_status take_from_pool(void *arg, struct tdm__pool *pool)
{
    return tdm__pool_take_cpus(pool, *(const int64_t *)arg);
}

/* Takes `cpu` from the actor's bundle and adds the write of the group's record. */
static tdm_status take_in_bundle(struct tdm__txn *txn, const struct tdm__actor_record *actor,
                                 int64_t cpu)
{
    tdm_status status = tdm__txn_change_bundle(txn, actor, take_from_pool, &cpu);

    /* The group may have been removed with everything that its bundles held. */
    return status == TDM_E_NOT_FOUND ? TDM_OK : status;
}

/* Body of the transaction: compares with the CPUs that the actor's record has now, so that it does
 * nothing if it was committed before. */
static tdm_status cpu_change_body(void *arg, struct tdm__txn *txn)
{
    const struct tdm__actor_record *actor = &((struct cpu_change *)arg)->actor;
    char key[TDM__STORE_KEY_BYTES];
    const struct tdm__store_record *record =
        tdm__txn_find_record(txn, tdm__store_key("actor", &actor->actor, key));
    struct tdm__actor_record now;
    int64_t taken;

    if (record == NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__actor_record_read(record, &now));
    taken = actor->grant.cpu - now.grant.cpu;
    if (taken == 0 || !tdm__id_equal(&now.node, &actor->node)) {
        return TDM_OK;
    }
    TDM_TRY(tdm__id_is_none(&now.group) ? take_on_node(txn, &now, taken)
                                        : take_in_bundle(txn, &now, taken));
    now.grant.cpu = actor->grant.cpu;
    return tdm__actor_record_put(txn, &now);
}

/* Reports the outcome and frees the operation's state. */
static void cpu_change_done(void *arg, tdm_status status, const char *detail)
{
    struct cpu_change *cpu_change = arg;

    cpu_change->fn(cpu_change->arg, status, detail);
    free(cpu_change);
}

tdm_status tdm__reserve_cpus(struct tdm__store *store, const struct tdm__actor_record *actor,
                             int64_t deadline_ms, tdm__reserve_done_fn *fn, void *arg)
{
    struct cpu_change *cpu_change = calloc(1, sizeof(*cpu_change));
    bool in_group = !tdm__id_is_none(&actor->group);
    char actor_key[TDM__STORE_KEY_BYTES];
    char place_key[TDM__STORE_KEY_BYTES];
    const char *patterns[3] = {tdm__store_key("actor", &actor->actor, actor_key),
                               in_group ? tdm__store_key("group", &actor->group, place_key)
                                        : tdm__store_key("free", &actor->node, place_key),
                               actor->name_key};
    tdm_status status;

    if (cpu_change == NULL) {
        return tdm__fail(TDM_E_NOMEM, "changing an actor's CPUs");
    }
    *cpu_change = (struct cpu_change){*actor, fn, arg};
    status =
        tdm__retrying_txn_run_shared(store, patterns, actor->name_key[0] == '\0' ? 2 : 3,
                                     deadline_ms, cpu_change_body, cpu_change_done, cpu_change);
    if (status != TDM_OK) {
        free(cpu_change);
    }
    return status;
}
