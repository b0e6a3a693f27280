/* two_tenants.c - a trainer and an engine on one GPU that is too small for both at once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <tandem/tandem.h>

enum { MIB = 1 << 20 };

/* State of the actor. It has one region, which is GPU memory that can be taken away and given back
 * at the same address. work() needs that memory. */
struct tenant {
    tdm_region *region;
    int64_t *turns; /* First word of the region; its address is the same after every pause. */
    int began;      /* 1 after the first work(). */
};

/* Creates the region paused, which needs no GPU memory. */
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

/* Method work(): resumes the region and counts the turns. Resuming waits for memory that another
 * actor is about to release, and fails at once if the memory cannot become free. */
static tdm_status tenant_work(tdm_call *call, void *self)
{
    struct tenant *tenant = self;

    TDM_TRY(tdm_region_resume(tenant->region, 5000));
    if (!tenant->began) {
        *tenant->turns = 0; /* The contents of new memory are undefined. */
        tenant->began = 1;
    }
    ++*tenant->turns;
    return tdm_call_reply(call, "i", *tenant->turns);
}

/* Method rest(): moves the contents to host memory and frees the GPU memory for other actors. */
static tdm_status tenant_rest(tdm_call *call, void *self)
{
    (void)call;
    return tdm_region_pause(((struct tenant *)self)->region);
}

TDM_ACTOR_CLASS(tenant, .state_bytes = sizeof(struct tenant), .construct = tenant_construct,
                .destruct = tenant_destruct,
                .methods = {{"work", tenant_work}, {"rest", tenant_rest}});

static void call_work(tdm_actor *tenant, const char *name)
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

static void call_rest(tdm_actor *tenant)
{
    tdm_ref *ref;

    TDM_CHECK(tdm_actor_call(tenant, "rest", &ref, ""));
    TDM_CHECK(tdm_get(ref, 10000, ""));
    tdm_ref_release(ref);
}

static tdm_actor *create_tenant(tdm_runtime *runtime, const char *name, const char *tag)
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

    node.gpus = 1; /* The GPU is virtual, but its capacity is enforced. */
    node.gpu_bytes = 16ull * MIB;
    TDM_CHECK(tdm_runtime_start(&node, &runtime));
    trainer = create_tenant(runtime, "trainer", "optimizer");
    engine = create_tenant(runtime, "engine", "kv_cache");
    call_work(trainer, "trainer");
    call_work(engine, "engine"); /* This fails, since the trainer has the GPU's memory. */
    for (int turn = 0; turn < 2; turn++) {
        call_rest(trainer);
        call_work(engine, "engine");
        call_rest(engine);
        call_work(trainer, "trainer"); /* The trainer finds the contents that it left. */
    }
    tdm_actor_destroy(trainer);
    tdm_actor_destroy(engine);
    tdm_runtime_stop(runtime);
    return 0;
}
