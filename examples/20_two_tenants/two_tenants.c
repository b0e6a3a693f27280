/* two_tenants.c - a trainer and an engine on one GPU that is too small for both at once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <tandem/tandem.h>

enum { MIB = 1 << 20 };

struct tenant {
    tdm_region *region;
    int64_t *turns; /* its first word; the address stays over every pause */
    int began;
};

/* Starts paused: making it needs no memory of the GPU. */
static tdm_status tenant_construct(tdm_call *call, void *self)
{
    struct tdm_region_options options = {.policy = TDM_REGION_KEEP, .paused = 1};
    struct tenant *tenant = self;
    uint64_t mib;

    TDM_TRY(tdm_call_unpack(call, "su", &options.tag, &mib));
    options.size_bytes = mib * MIB;
    TDM_TRY(tdm_region_create(tdm_runtime_current(), &options, &tenant->region));
    tenant->turns = tdm_region_address(tenant->region);
    return TDM_OK;
}

static void tenant_destruct(void *self)
{
    tdm_region_destroy(((struct tenant *)self)->region);
}

/* Waits for memory that is on its way out; what cannot come is refused at once. */
static tdm_status tenant_work(tdm_call *call, void *self)
{
    struct tenant *tenant = self;

    TDM_TRY(tdm_region_resume(tenant->region, 5000));
    if (!tenant->began) {
        *tenant->turns = 0; /* what new memory holds is undefined */
        tenant->began = 1;
    }
    ++*tenant->turns;
    return tdm_call_reply(call, "i", *tenant->turns);
}

/* Contents go to host memory, the GPU's memory to whoever wants it. */
static tdm_status tenant_rest(tdm_call *call, void *self)
{
    (void)call;
    return tdm_region_pause(((struct tenant *)self)->region);
}

TDM_ACTOR_CLASS(tenant, .state_bytes = sizeof(struct tenant), .construct = tenant_construct,
                .destruct = tenant_destruct,
                .methods = {{"work", tenant_work}, {"rest", tenant_rest}});

static void work(tdm_actor *tenant, const char *name)
{
    tdm_ref *ref;
    int64_t number;
    tdm_status status;

    TDM_CHECK(tdm_actor_call(tenant, "work", &ref, ""));
    status = tdm_get(ref, 10000, "i", &number);
    if (status == TDM_OK) {
        (void)printf("%s works, turn %lld\n", name, (long long)number);
    } else {
        (void)printf("%s: %s: %s\n", name, tdm_strerror(status), tdm_error_detail());
    }
    tdm_ref_release(ref);
}

static void rest(tdm_actor *tenant)
{
    tdm_ref *ref;

    TDM_CHECK(tdm_actor_call(tenant, "rest", &ref, ""));
    TDM_CHECK(tdm_get(ref, 10000, ""));
    tdm_ref_release(ref);
}

static tdm_actor *create(tdm_runtime *runtime, const char *name, const char *tag)
{
    struct tdm_actor_options options = {.name = name, .num_gpus = 0.5};
    tdm_actor *tenant;

    TDM_CHECK(tdm_actor_create(runtime, "tenant", &options, &tenant, "su", tag, (uint64_t)12));
    TDM_CHECK(tdm_actor_wait_ready(tenant, 10000));
    return tenant;
}

int main(void)
{
    struct tdm_runtime_options node = TDM_RUNTIME_OPTIONS_INIT;
    tdm_runtime *runtime;
    tdm_actor *trainer;
    tdm_actor *engine;

    node.gpus = 1; /* a virtual one, but what does not fit is not there */
    node.gpu_bytes = 16ull * MIB;
    TDM_CHECK(tdm_runtime_start(&node, &runtime));
    trainer = create(runtime, "trainer", "optimizer");
    engine = create(runtime, "engine", "kv_cache");
    work(trainer, "trainer");
    work(engine, "engine"); /* out of turn */
    for (int turn = 0; turn < 2; turn++) {
        rest(trainer);
        work(engine, "engine");
        rest(engine);
        work(trainer, "trainer"); /* finds what it left */
    }
    tdm_actor_destroy(trainer);
    tdm_actor_destroy(engine);
    tdm_runtime_stop(runtime);
    return 0;
}
