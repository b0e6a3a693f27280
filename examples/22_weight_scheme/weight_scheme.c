/* weight_scheme.c - a training loop without a job sends two models to two engines. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <tandem/tandem.h>

enum { ENGINES = 2, ROWS = 64, COLUMNS = 1024, WAIT_MS = 20000 };

static const struct tdm_tensor_info policy_info = {
    .name = "policy.weight", .dtype = TDM_F32, .dims_count = 2, .shape = {ROWS, COLUMNS}};
static const struct tdm_tensor_info reward_info = {
    .name = "reward.scale", .dtype = TDM_F32, .dims_count = 1, .shape = {1}};

/* State of an engine. The two models arrive in two ways. The engine receives the policy when it
 * asks for it, between two rollouts. The reward model arrives when the trainer sends it, because
 * the sender calls the method TDM_WEIGHTS_METHOD of the engine. */
struct engine {
    tdm_weights_receiver *policy;
    tdm_weights_receiver *reward;
    float scale; /* The only weight of the reward model. */
};

static tdm_status engine_construct(tdm_call *call, void *self)
{
    struct engine *engine = self;
    /* Tandem allocates a tensor that has no address, here in memory that all engines share. */
    const struct tdm_weights_tensor policy = {.info = policy_info};
    const struct tdm_weights_tensor reward = {.info = reward_info, .address = &engine->scale};

    (void)call;
    TDM_TRY(tdm_weights_receiver_create(tdm_runtime_current(),
                                        &(struct tdm_weights_receiver_options){.model = "policy",
                                                                               .tensors = &policy,
                                                                               .tensors_count = 1},
                                        &engine->policy));
    return tdm_weights_receiver_create(tdm_runtime_current(),
                                       &(struct tdm_weights_receiver_options){.model = "reward",
                                                                              .tensors = &reward,
                                                                              .tensors_count = 1},
                                       &engine->reward);
}

static void engine_destruct(void *self)
{
    struct engine *engine = self;

    tdm_weights_receiver_shutdown(engine->policy);
    tdm_weights_receiver_shutdown(engine->reward);
}

static tdm_status engine_connect(tdm_call *call, void *self)
{
    (void)call;
    return tdm_weights_receiver_connect(((struct engine *)self)->policy);
}

/* Method rollout(i): waits up to `patience_ms` for a new policy and replies with its version and a
 * number that depends on both models. */
static tdm_status engine_rollout(tdm_call *call, void *self)
{
    struct engine *engine = self;
    const float *weights;
    uint64_t version;
    double sum = 0;
    int64_t patience_ms;
    tdm_status status;

    TDM_TRY(tdm_call_unpack(call, "i", &patience_ms));
    status = tdm_weights_receive(engine->policy, patience_ms, &version);
    if (status != TDM_OK && status != TDM_E_TIMEOUT) { /* It is no error if there is nothing new. */
        return status;
    }
    TDM_TRY(tdm_weights_read_begin(engine->policy, &version));
    weights = tdm_weights_data(engine->policy, 0);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        sum += (double)weights[i];
    }
    tdm_weights_read_end(engine->policy);
    return tdm_call_reply(call, "uf", version, sum * (double)engine->scale);
}

TDM_ACTOR_CLASS(engine, .state_bytes = sizeof(struct engine), .construct = engine_construct,
                .destruct = engine_destruct,
                .methods = {{"connect", engine_connect},
                            {"rollout", engine_rollout},
                            {TDM_WEIGHTS_METHOD, tdm_weights_serve}});

/* Creates the sender of a model of one tensor. With `modules` the sender calls these actors; with
 * NULL the receivers ask for the weights. */
static tdm_weights_sender *create_sender(tdm_runtime *runtime, const char *model,
                                         const struct tdm_weights_tensor *tensor,
                                         tdm_actor *const *modules)
{
    const struct tdm_weights_sender_options options = {
        .model = model,
        .scheme = modules == NULL ? TDM_WEIGHTS_SHARED : TDM_WEIGHTS_MODULE,
        .tensors = tensor,
        .tensors_count = 1,
        .receivers_count = ENGINES,
        .modules = modules,
        .modules_count = modules == NULL ? 0 : ENGINES};
    tdm_weights_sender *sender;

    TDM_CHECK(tdm_weights_sender_create(runtime, &options, &sender));
    return sender;
}

/* Calls rollout() of all engines and prints their replies. Each engine waits up to `patience_ms`
 * for a new policy. */
static void print_rollouts(tdm_actor *const *engines, int64_t patience_ms)
{
    tdm_ref *refs[ENGINES];
    uint64_t version;
    double reward;

    for (int i = 0; i < ENGINES; i++) {
        TDM_CHECK(tdm_actor_call(engines[i], "rollout", &refs[i], "i", patience_ms));
    }
    for (int i = 0; i < ENGINES; i++) {
        TDM_CHECK(tdm_get(refs[i], WAIT_MS, "uf", &version, &reward));
        (void)printf("engine %d, version %llu: %g\n", i, (unsigned long long)version, reward);
        tdm_ref_release(refs[i]);
    }
}

/* Sets all weights to a value. */
static void set_weights(float *weights, float value)
{
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        weights[i] = value;
    }
}

int main(void)
{
    static float weights[ROWS * COLUMNS];
    float scale = 2;
    const struct tdm_weights_tensor policy = {.info = policy_info, .address = weights};
    const struct tdm_weights_tensor reward = {.info = reward_info, .address = &scale};
    tdm_weights_sender *senders[2];
    tdm_actor *engines[ENGINES];
    tdm_ref *refs[ENGINES];
    tdm_runtime *runtime;

    TDM_CHECK(tdm_runtime_start(NULL, &runtime));
    for (int i = 0; i < ENGINES; i++) {
        TDM_CHECK(tdm_actor_create(runtime, "engine", NULL, &engines[i], ""));
    }
    senders[0] = create_sender(runtime, "policy", &policy, NULL);
    senders[1] = create_sender(runtime, "reward", &reward, engines);

    set_weights(weights, 0.5F);
    for (int i = 0; i < ENGINES; i++) {
        TDM_CHECK(tdm_actor_call(engines[i], "connect", &refs[i], ""));
    }
    TDM_CHECK(tdm_weights_sender_connect(senders[0]));
    for (int i = 0; i < ENGINES; i++) {
        TDM_CHECK(tdm_get(refs[i], WAIT_MS, ""));
        tdm_ref_release(refs[i]);
    }
    TDM_CHECK(tdm_weights_sender_connect(senders[1]));
    print_rollouts(engines, 0);

    set_weights(weights, 0.25F);
    /* The weights arrive when the engines ask for them. */
    TDM_CHECK(tdm_weights_send_async(senders[0]));
    print_rollouts(engines, WAIT_MS);
    TDM_CHECK(tdm_weights_wait(senders[0], WAIT_MS, NULL));
    scale = 4;
    /* These weights arrive without a request from the engines. */
    TDM_CHECK(tdm_weights_send(senders[1], NULL));
    print_rollouts(engines, 0);

    for (int i = 0; i < 2; i++) {
        tdm_weights_sender_shutdown(senders[i]);
    }
    for (int i = 0; i < ENGINES; i++) {
        tdm_actor_destroy(engines[i]);
    }
    tdm_runtime_stop(runtime);
    return 0;
}
