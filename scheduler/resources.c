/* resources.c - resources of nodes, requests of actors and bundles, and grants. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A pool contains the total and the free amount of each resource. Allocating a request yields a
 * grant, and releasing the grant restores the pool exactly, because amounts are integers.
 *
 * Invariants: 0 <= free <= total for each amount, except that free CPUs may be negative (lent CPUs
 * that were taken back). Allocation and release change either all amounts
 * of a grant or none; they work on a copy of the pool. Named resources are sorted by name. The
 * functions keep no state and do not block; a pool is used on one thread at a time. */

#include "scheduler/resources.h"

#include "runtime/assert.h"
#include "runtime/error.h"

#include <math.h>
#include <string.h>

/* ---- requests --------------------------------------------------------------------------- */

/* Converts an amount to units of 1/10,000; `name` is the resource's name for the error. */
static tdm_status amount_to_steps(const char *name, double amount, int64_t *steps_out)
{
    double scaled = amount * TDM__RESOURCE_ONE;
    double steps = round(scaled);

    if (!isfinite(amount) || amount < 0) {
        return tdm__fail(TDM_E_INVAL, "%s %g: an amount is a number, zero or more", name, amount);
    }
    if (steps > (double)TDM__RESOURCE_AMOUNT_MAX) {
        return tdm__fail(TDM_E_INVAL, "%s %g: at most %g", name, amount,
                         (double)TDM__RESOURCE_AMOUNT_MAX / TDM__RESOURCE_ONE);
    }
    /* The tolerance accepts sums of decimals, such as 0.1 + 0.2. A fifth decimal digit differs by
     * at least 0.1. */
    if (fabs(scaled - steps) > 1e-6 + scaled * 1e-15) {
        return tdm__fail(TDM_E_INVAL, "%s %.10g: amounts go in steps of 0.0001, ask for %.10g",
                         name, amount, steps / TDM__RESOURCE_ONE);
    }
    *steps_out = (int64_t)steps;
    return TDM_OK;
}

/* Checks that the name of a resource is valid. */
static tdm_status check_name(const char *name)
{
    size_t length = strnlen(name, TDM__RESOURCE_NAME_BYTES);

    if (length == 0 || length == TDM__RESOURCE_NAME_BYTES) {
        return tdm__fail(TDM_E_INVAL, "resource \"%.40s\": a name has 1 to %d bytes", name,
                         TDM__RESOURCE_NAME_BYTES - 1);
    }
    for (const char *at = name; *at != '\0'; at++) {
        if (*at <= ' ' || *at > '~') {
            return tdm__fail(TDM_E_INVAL,
                             "resource \"%s\": a name is of printable ASCII without spaces", name);
        }
    }
    return TDM_OK;
}

/* Fails with TDM_E_INVAL because the request contains the resource already. */
static tdm_status fail_duplicate(const char *name)
{
    return tdm__fail(TDM_E_INVAL, "resource \"%s\" is given twice: add the amounts up", name);
}

/* Adds an amount of GPUs, in units of 1/10,000, to a request. */
static tdm_status resources_add_gpus(struct tdm__resources *resources, int64_t steps)
{
    long long whole = steps / TDM__RESOURCE_ONE;

    if (resources->gpu != 0) {
        return fail_duplicate("GPU");
    }
    if (whole > 0 && steps % TDM__RESOURCE_ONE != 0) {
        return tdm__fail(TDM_E_INVAL,
                         "GPU %g: a fraction of one GPU, or whole ones; ask for %lld or %lld",
                         (double)steps / TDM__RESOURCE_ONE, whole, whole + 1);
    }
    resources->gpu = steps;
    return TDM_OK;
}

/* Adds an amount of a named resource, in units of 1/10,000, to a request, in sorted order. */
static tdm_status resources_add_custom(struct tdm__resources *resources, const char *name,
                                       int64_t steps)
{
    struct tdm__custom_resource *custom = resources->custom;
    uint32_t at = 0;

    while (at < TDM__CUSTOM_RESOURCES_MAX && custom[at].name[0] != '\0' &&
           strcmp(custom[at].name, name) < 0) {
        at++;
    }
    if (at < TDM__CUSTOM_RESOURCES_MAX && strcmp(custom[at].name, name) == 0) {
        return fail_duplicate(name);
    }
    if (custom[TDM__CUSTOM_RESOURCES_MAX - 1].name[0] != '\0') {
        return tdm__fail(TDM_E_LIMIT, "resource \"%s\": at most %d named resources", name,
                         TDM__CUSTOM_RESOURCES_MAX);
    }
    memmove(&custom[at + 1], &custom[at], (TDM__CUSTOM_RESOURCES_MAX - 1 - at) * sizeof(custom[0]));
    memset(&custom[at], 0, sizeof(custom[at]));
    memcpy(custom[at].name, name, strlen(name));
    custom[at].amount = steps;
    return TDM_OK;
}

tdm_status tdm__resources_add(struct tdm__resources *resources, const char *name, double amount)
{
    int64_t steps = 0;

    TDM_TRY(check_name(name));
    TDM_TRY(amount_to_steps(name, amount, &steps));
    if (steps == 0) {
        return TDM_OK;
    }
    if (strcmp(name, "CPU") == 0) {
        if (resources->cpu != 0) {
            return fail_duplicate(name);
        }
        resources->cpu = steps;
        return TDM_OK;
    }
    if (strcmp(name, "GPU") == 0) {
        return resources_add_gpus(resources, steps);
    }
    return resources_add_custom(resources, name, steps);
}

tdm_status tdm__resources_of_bundle(const struct tdm_bundle *bundle,
                                    struct tdm__resources *resources_out)
{
    static const struct tdm__resources nothing;
    struct tdm__resources resources = {0};

    TDM_TRY(tdm__resources_add(&resources, "CPU", bundle->num_cpus));
    TDM_TRY(tdm__resources_add(&resources, "GPU", bundle->num_gpus));
    for (uint32_t i = 0; i < TDM_BUNDLE_RESOURCES_MAX && bundle->resources[i].name != NULL; i++) {
        TDM_TRY(
            tdm__resources_add(&resources, bundle->resources[i].name, bundle->resources[i].amount));
    }
    if (tdm__resources_equal(&resources, &nothing)) {
        return tdm__fail(TDM_E_INVAL, "a bundle must ask for something");
    }
    *resources_out = resources;
    return TDM_OK;
}

bool tdm__resources_equal(const struct tdm__resources *a, const struct tdm__resources *b)
{
    /* A memory comparison is correct, because requests consist of integers and zero-filled names
     * only. */
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* ---- pools ------------------------------------------------------------------------------ */

/* Returns an amount with this total that is entirely free. */
static struct tdm__amount amount_all_free(int64_t total)
{
    return (struct tdm__amount){.total = total, .free = total};
}

/* Initialises the named resources of a pool, all free. */
static void pool_init_custom(struct tdm__pool *pool, const struct tdm__custom_resource *custom)
{
    for (uint32_t i = 0; i < TDM__CUSTOM_RESOURCES_MAX; i++) {
        memcpy(pool->custom[i].name, custom[i].name, sizeof(custom[i].name));
        pool->custom[i].amount = amount_all_free(custom[i].amount);
    }
}

tdm_status tdm__pool_init(struct tdm__pool *pool, const struct tdm__resources *totals)
{
    int64_t gpus_count = totals->gpu / TDM__RESOURCE_ONE;

    if (totals->gpu % TDM__RESOURCE_ONE != 0 || gpus_count > TDM__NODE_GPUS_MAX) {
        return tdm__fail(TDM_E_INVAL, "a node has 0 to %d whole GPUs, not %g", TDM__NODE_GPUS_MAX,
                         (double)totals->gpu / TDM__RESOURCE_ONE);
    }
    memset(pool, 0, sizeof(*pool));
    pool->cpu = amount_all_free(totals->cpu);
    pool->gpus_count = (uint32_t)gpus_count;
    for (uint32_t i = 0; i < pool->gpus_count; i++) {
        pool->gpus[i] = amount_all_free(TDM__RESOURCE_ONE);
    }
    pool_init_custom(pool, totals->custom);
    return TDM_OK;
}

void tdm__pool_of_grant(struct tdm__pool *pool, const struct tdm__grant *grant)
{
    memset(pool, 0, sizeof(*pool));
    pool->cpu = amount_all_free(grant->cpu);
    for (uint32_t i = 0; i < grant->gpus_count; i++) {
        TDM_ASSERT(grant->gpu_indices[i] < TDM__NODE_GPUS_MAX);
        pool->gpus[grant->gpu_indices[i]] = amount_all_free(grant->gpu_amount);
        pool->gpus_count = grant->gpu_indices[i] + 1;
    }
    pool_init_custom(pool, grant->custom);
}

void tdm__pool_release_all(struct tdm__pool *pool)
{
    pool->cpu.free = pool->cpu.total;
    for (uint32_t i = 0; i < pool->gpus_count; i++) {
        pool->gpus[i].free = pool->gpus[i].total;
    }
    for (uint32_t i = 0; i < TDM__CUSTOM_RESOURCES_MAX; i++) {
        pool->custom[i].amount.free = pool->custom[i].amount.total;
    }
}

/* Returns the pool's amount of the named resource `name`, or NULL if the pool does not have that
 * resource. */
static struct tdm__amount *find_custom(struct tdm__pool *pool, const char *name)
{
    for (uint32_t i = 0; i < TDM__CUSTOM_RESOURCES_MAX; i++) {
        if (strcmp(pool->custom[i].name, name) == 0) {
            return &pool->custom[i].amount;
        }
    }
    return NULL;
}

/* Adds `by` to the free part of an amount. Returns false and changes nothing if `by` would make it
 * negative or raise it above the total. Returns false if `amount` is NULL. */
static bool amount_add(struct tdm__amount *amount, int64_t by)
{
    if (amount == NULL || (by < 0 && amount->free + by < 0) || amount->free + by > amount->total) {
        return false;
    }
    amount->free += by;
    return true;
}

/* Releases the whole grant in the pool (sign 1) or allocates it (sign -1). Returns false and
 * changes nothing if that is impossible. */
static bool pool_apply_grant(struct tdm__pool *pool, const struct tdm__grant *grant, int64_t sign)
{
    struct tdm__pool changed = *pool;

    if (!amount_add(&changed.cpu, sign * grant->cpu)) {
        return false;
    }
    for (uint32_t i = 0; i < grant->gpus_count; i++) {
        uint32_t gpu = grant->gpu_indices[i];

        if (gpu >= changed.gpus_count ||
            !amount_add(&changed.gpus[gpu], sign * grant->gpu_amount)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < TDM__CUSTOM_RESOURCES_MAX && grant->custom[i].name[0] != '\0'; i++) {
        struct tdm__amount *amount = find_custom(&changed, grant->custom[i].name);

        if (!amount_add(amount, sign * grant->custom[i].amount)) {
            return false;
        }
    }
    *pool = changed;
    return true;
}

tdm_status tdm__pool_allocate_grant(struct tdm__pool *pool, const struct tdm__grant *grant)
{
    if (!pool_apply_grant(pool, grant, -1)) {
        return tdm__fail(TDM_E_CONFLICT, "allocation failed: the grant is not free in this pool");
    }
    return TDM_OK;
}

tdm_status tdm__pool_allocate_held_grant(struct tdm__pool *pool, const struct tdm__grant *grant)
{
    struct tdm__grant others = *grant;

    others.cpu = 0;
    TDM_TRY(tdm__pool_allocate_grant(pool, &others));
    return tdm__pool_take_cpus(pool, grant->cpu);
}

tdm_status tdm__pool_take_cpus(struct tdm__pool *pool, int64_t cpu)
{
    if (pool->cpu.free - cpu > pool->cpu.total) {
        return tdm__fail(TDM_E_STATE, "the lent CPUs belong to another pool");
    }
    pool->cpu.free -= cpu;
    return TDM_OK;
}

tdm_status tdm__pool_release_grant(struct tdm__pool *pool, const struct tdm__grant *grant)
{
    if (!pool_apply_grant(pool, grant, 1)) {
        return tdm__fail(TDM_E_STATE,
                         "the grant is not out: it was given back before, or is another pool's");
    }
    return TDM_OK;
}

/* Returns the index of the GPU from which a fraction of a GPU is best taken, or gpus_count if no
 * GPU has that much free. */
static uint32_t best_gpu(const struct tdm__pool *pool, int64_t amount)
{
    uint32_t best = pool->gpus_count;

    for (uint32_t i = 0; i < pool->gpus_count; i++) {
        if (pool->gpus[i].free >= amount &&
            (best == pool->gpus_count || pool->gpus[i].free < pool->gpus[best].free)) {
            best = i;
        }
    }
    return best;
}

/* Returns the number of GPUs of the pool that are entirely free. */
static uint32_t whole_gpus_free(const struct tdm__pool *pool)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < pool->gpus_count; i++) {
        count += pool->gpus[i].free == TDM__RESOURCE_ONE;
    }
    return count;
}

/* Returns whether the pool has the amount of GPUs `wanted` free: a fraction of one GPU, or whole
 * GPUs. */
static bool holds_gpus(const struct tdm__pool *pool, int64_t wanted)
{
    if (wanted == 0) {
        return true;
    }
    if (wanted < TDM__RESOURCE_ONE) {
        return best_gpu(pool, wanted) < pool->gpus_count;
    }
    return wanted / TDM__RESOURCE_ONE <= whole_gpus_free(pool);
}

/* Returns whether the pool has the requested amounts of named resources free. Both lists are sorted
 * by name, so one pass over the pool is enough. */
static bool holds_custom(const struct tdm__pool *pool, const struct tdm__custom_resource *wanted)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < TDM__CUSTOM_RESOURCES_MAX && wanted[i].name[0] != '\0'; i++) {
        while (at < TDM__CUSTOM_RESOURCES_MAX &&
               strcmp(pool->custom[at].name, wanted[i].name) != 0) {
            at++;
        }
        if (at == TDM__CUSTOM_RESOURCES_MAX || pool->custom[at].amount.free < wanted[i].amount) {
            return false;
        }
    }
    return true;
}

bool tdm__pool_fits(const struct tdm__pool *pool, const struct tdm__resources *wanted)
{
    return (wanted->cpu == 0 || wanted->cpu <= pool->cpu.free) && holds_gpus(pool, wanted->gpu) &&
           holds_custom(pool, wanted->custom);
}

/* Enters the pool's first `count` entirely free GPUs in the grant. */
static void grant_whole_gpus(const struct tdm__pool *pool, uint32_t count, struct tdm__grant *grant)
{
    for (uint32_t i = 0; i < pool->gpus_count && grant->gpus_count < count; i++) {
        if (pool->gpus[i].free == TDM__RESOURCE_ONE) {
            grant->gpu_indices[grant->gpus_count++] = i;
        }
    }
    grant->gpu_amount = TDM__RESOURCE_ONE;
}

bool tdm__pool_allocate_on_gpu(struct tdm__pool *pool, const struct tdm__resources *wanted,
                               uint32_t gpu_index, struct tdm__grant *grant_out)
{
    struct tdm__grant grant = {.cpu = wanted->cpu};

    if (!tdm__pool_fits(pool, wanted)) {
        return false;
    }
    if (wanted->gpu >= TDM__RESOURCE_ONE) {
        grant_whole_gpus(pool, (uint32_t)(wanted->gpu / TDM__RESOURCE_ONE), &grant);
    } else if (wanted->gpu > 0) {
        grant.gpus_count = 1;
        grant.gpu_indices[0] = gpu_index;
        grant.gpu_amount = wanted->gpu;
    }
    memcpy(grant.custom, wanted->custom, sizeof(grant.custom));
    if (!pool_apply_grant(pool, &grant, -1)) {
        return false;
    }
    *grant_out = grant;
    return true;
}

bool tdm__pool_allocate(struct tdm__pool *pool, const struct tdm__resources *wanted,
                        struct tdm__grant *grant_out)
{
    return tdm__pool_allocate_on_gpu(pool, wanted, best_gpu(pool, wanted->gpu), grant_out);
}

/* ---- words ------------------------------------------------------------------------------ */

/* Converts an amount in units of 1/10,000 to the number that users see. */
static double amount_to_double(int64_t amount)
{
    return (double)amount / TDM__RESOURCE_ONE;
}

void tdm__resources_describe(const struct tdm__resources *resources, struct tdm__text *text)
{
    size_t start = text->length;

    if (resources->cpu > 0) {
        tdm__text_add(text, "CPU %.14g", amount_to_double(resources->cpu));
    }
    if (resources->gpu > 0) {
        tdm__text_add(text, "%sGPU %.14g", text->length > start ? ", " : "",
                      amount_to_double(resources->gpu));
    }
    for (uint32_t i = 0; i < TDM__CUSTOM_RESOURCES_MAX && resources->custom[i].name[0] != '\0';
         i++) {
        tdm__text_add(text, "%s%s %.14g", text->length > start ? ", " : "",
                      resources->custom[i].name, amount_to_double(resources->custom[i].amount));
    }
    if (text->length == start) {
        tdm__text_add(text, "nothing");
    }
}

/* Appends the free and total amounts of the GPUs. A bundle may hold a fraction of a GPU, and
 * nothing of the GPUs before it. */
static void describe_gpus(const struct tdm__pool *pool, struct tdm__text *text)
{
    int64_t total = 0;

    for (uint32_t i = 0; i < pool->gpus_count; i++) {
        if (pool->gpus[i].total > 0) {
            tdm__text_add(text, "%s%.14g", total == 0 ? ", GPU " : "+",
                          amount_to_double(pool->gpus[i].free));
            total += pool->gpus[i].total;
        }
    }
    if (total > 0) {
        tdm__text_add(text, " of %.14g", amount_to_double(total));
    }
}

void tdm__pool_describe(const struct tdm__pool *pool, struct tdm__text *text)
{
    tdm__text_add(text, "CPU %.14g of %.14g", amount_to_double(pool->cpu.free),
                  amount_to_double(pool->cpu.total));
    describe_gpus(pool, text);
    for (uint32_t i = 0; i < TDM__CUSTOM_RESOURCES_MAX && pool->custom[i].name[0] != '\0'; i++) {
        tdm__text_add(text, ", %s %.14g of %.14g", pool->custom[i].name,
                      amount_to_double(pool->custom[i].amount.free),
                      amount_to_double(pool->custom[i].amount.total));
    }
}

bool tdm__grants_equal(const struct tdm__grant *a, const struct tdm__grant *b)
{
    if (a->cpu != b->cpu || a->gpus_count != b->gpus_count || a->gpu_amount != b->gpu_amount) {
        return false;
    }
    for (uint32_t i = 0; i < a->gpus_count; i++) {
        if (a->gpu_indices[i] != b->gpu_indices[i]) {
            return false;
        }
    }
    for (uint32_t i = 0; i < TDM__CUSTOM_RESOURCES_MAX; i++) {
        if (a->custom[i].amount != b->custom[i].amount ||
            strcmp(a->custom[i].name, b->custom[i].name) != 0) {
            return false;
        }
    }
    return true;
}

/* Returns whether both amounts are the same. */
static bool amounts_equal(const struct tdm__amount *a, const struct tdm__amount *b)
{
    return a->total == b->total && a->free == b->free;
}

bool tdm__pools_equal(const struct tdm__pool *a, const struct tdm__pool *b)
{
    if (!amounts_equal(&a->cpu, &b->cpu) || a->gpus_count != b->gpus_count) {
        return false;
    }
    for (uint32_t i = 0; i < a->gpus_count; i++) {
        if (!amounts_equal(&a->gpus[i], &b->gpus[i])) {
            return false;
        }
    }
    for (uint32_t i = 0; i < TDM__CUSTOM_RESOURCES_MAX; i++) {
        if (!amounts_equal(&a->custom[i].amount, &b->custom[i].amount) ||
            strcmp(a->custom[i].name, b->custom[i].name) != 0) {
            return false;
        }
    }
    return true;
}
