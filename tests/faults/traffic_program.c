/* traffic_program.c - moves known bytes between two nodes: in calls, values, weights and groups. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/tandem.h>

/* The program is a driver that joins the node of its machine, and it is also its two actors, of
 * which each is on a node of its own:
 *
 *     traffic_program ARGUMENT VALUE WEIGHTS GROUP VARIABLE
 *
 * Each word fills what is moved in its way: an argument (whose reply is the reversed word), a large
 * value that the driver puts and one that an actor returns, the weights of a model, the data of a
 * collective group, and an environment variable of each actor. When all is moved, the program
 * prints "moved" and keeps everything until its stdin ends. */

enum {
    ACTORS = 2,
    MOVED_BYTES = 1 << 20, /* Bytes of each value, of the weights, and of the group's data. */
    CALLS = 10,            /* Number of calls with the argument. */
    WORD_BYTES_MAX = 64,   /* Longest word. */
    TIMEOUT_MS = 30000
};

#define MODEL    "traffic"
#define VARIABLE "TRAFFIC_VARIABLE"

/* Fills `bytes` with repetitions of the word. */
static void fill(char *bytes, const char *word)
{
    size_t length = strlen(word);

    for (size_t i = 0; i < MOVED_BYTES; i++) {
        bytes[i] = word[i % length];
    }
}

/* Fails unless `bytes` are repetitions of the word. */
static tdm_status check(const char *bytes, size_t count, const char *word)
{
    size_t length = strlen(word);

    if (count != MOVED_BYTES) {
        return tdm_fail(TDM_E_METHOD, "%zu bytes came, not %d", count, (int)MOVED_BYTES);
    }
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != word[i % length]) {
            return tdm_fail(TDM_E_METHOD, "byte %zu is wrong", i);
        }
    }
    return TDM_OK;
}

/* ---- the actors -------------------------------------------------------------------------- */

/* State of an actor. */
struct mover {
    tdm_weights_receiver *receiver; /* Receiver of the weights, owned; NULL before there are any. */
    tdm_collective_group *group;    /* Group of both actors, owned; NULL before it was joined. */
};

/* (word) replies the word from its end to its beginning. */
static tdm_status mover_reverse(tdm_call *call, void *self)
{
    char reversed[WORD_BYTES_MAX + 1] = "";
    const char *word;
    size_t length;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "s", &word));
    length = strlen(word);
    for (size_t i = 0; i < length && i < WORD_BYTES_MAX; i++) {
        reversed[i] = word[length - 1 - i];
    }
    return tdm_call_reply(call, "s", reversed);
}

/* () replies the number of bytes of the actor's environment variable, which is not sent again. */
static tdm_status mover_measure_variable(tdm_call *call, void *self)
{
    const char *value = getenv(VARIABLE);

    (void)self;
    return tdm_call_reply(call, "u", value == NULL ? 0 : (uint64_t)strlen(value));
}

/* (value, word) checks the value, and replies one of the same size and contents. */
static tdm_status mover_return_value(tdm_call *call, void *self)
{
    const void *value;
    const char *word;
    size_t count;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "bs", &value, &count, &word));
    TDM_TRY(check(value, count, word));
    return tdm_call_reply(call, "b", value, count);
}

/* (word) receives the weights and checks them. */
static tdm_status mover_receive(tdm_call *call, void *self)
{
    struct mover *mover = self;
    const struct tdm_weights_tensor tensor = {
        .info = {.name = "w", .dtype = TDM_U8, .dims_count = 1, .shape = {MOVED_BYTES}}};
    const struct tdm_weights_receiver_options options = {
        .model = MODEL, .tensors = &tensor, .tensors_count = 1, .timeout_ms = TIMEOUT_MS};
    const char *word;
    tdm_status status;

    TDM_TRY(tdm_call_unpack(call, "s", &word));
    TDM_TRY(tdm_weights_receiver_create(tdm_runtime_current(), &options, &mover->receiver));
    TDM_TRY(tdm_weights_receiver_connect(mover->receiver));
    TDM_TRY(tdm_weights_read_begin(mover->receiver, NULL));
    status = check(tdm_weights_data(mover->receiver, 0), MOVED_BYTES, word);
    tdm_weights_read_end(mover->receiver);
    TDM_TRY(status);
    return tdm_call_reply(call, "");
}

/* (rank, node, word) joins the group of both actors, whose first one sends the word to the other.
 */
static tdm_status mover_join(tdm_call *call, void *self)
{
    struct mover *mover = self;
    struct tdm_collective_options options = {
        .name = MODEL, .ranks_count = ACTORS, .timeout_ms = TIMEOUT_MS};
    char *bytes = calloc(1, MOVED_BYTES);
    const char *word;
    uint64_t rank;
    tdm_status status = tdm_call_unpack(call, "uss", &rank, &options.node_id, &word);

    options.rank = (uint32_t)rank;
    if (status == TDM_OK) {
        status = tdm_collective_join(tdm_runtime_current(), &options, &mover->group);
    }
    if (status == TDM_OK) {
        if (rank == 0) {
            fill(bytes, word);
        }
        status = tdm_collective_broadcast(mover->group, bytes, MOVED_BYTES, 0);
    }
    if (status == TDM_OK) {
        status = check(bytes, MOVED_BYTES, word);
    }
    free(bytes);
    TDM_TRY(status);
    return tdm_call_reply(call, "");
}

static void mover_end(void *self)
{
    struct mover *mover = self;

    tdm_weights_receiver_shutdown(mover->receiver);
    tdm_collective_leave(mover->group);
}

TDM_ACTOR_CLASS(mover, .state_bytes = sizeof(struct mover), .destruct = mover_end,
                .methods = {{"reverse", mover_reverse},
                            {"measure_variable", mover_measure_variable},
                            {"return_value", mover_return_value},
                            {"receive", mover_receive},
                            {"join", mover_join}});

/* ---- the driver -------------------------------------------------------------------------- */

static tdm_runtime *runtime;
static tdm_placement_group *places;
static tdm_actor *actors[ACTORS];

/* Creates an actor on each of two nodes, with the word as the value of a variable. */
static void create_actors(const char *word)
{
    static const struct tdm_bundle bundles[ACTORS] = {{.num_cpus = 1}, {.num_cpus = 1}};
    char variable[sizeof(VARIABLE) + 1 + WORD_BYTES_MAX];

    TDM_CHECK(tdm_placement_group_create(runtime, bundles, ACTORS, TDM_STRICT_SPREAD, TIMEOUT_MS,
                                         &places));
    (void)snprintf(variable, sizeof(variable), "%s=%s", VARIABLE, word);
    for (uint32_t i = 0; i < ACTORS; i++) {
        const struct tdm_actor_options options = {
            .num_cpus = 1, .group = places, .bundle = i, .environment = {variable}};
        uint64_t bytes;
        tdm_ref *ref;

        TDM_CHECK(tdm_actor_create(runtime, "mover", &options, &actors[i], ""));
        TDM_CHECK(tdm_actor_wait_ready(actors[i], TIMEOUT_MS));
        TDM_CHECK(tdm_actor_call(actors[i], "measure_variable", &ref, ""));
        TDM_CHECK(tdm_get(ref, TIMEOUT_MS, "u", &bytes));
        tdm_ref_release(ref);
        TDM_CHECK(bytes == strlen(word)
                      ? TDM_OK
                      : tdm_fail(TDM_E_METHOD, "an actor lacks its environment variable"));
    }
}

static void move_arguments(const char *word)
{
    for (uint32_t i = 0; i < CALLS * ACTORS; i++) {
        const char *reversed;
        tdm_ref *ref;

        TDM_CHECK(tdm_actor_call(actors[i % ACTORS], "reverse", &ref, "s", word));
        TDM_CHECK(tdm_get(ref, TIMEOUT_MS, "s", &reversed));
        tdm_ref_release(ref);
    }
}

static void move_values(const char *word, char *bytes)
{
    tdm_ref *value;

    fill(bytes, word);
    TDM_CHECK(tdm_put(runtime, &value, "b", (const void *)bytes, (size_t)MOVED_BYTES));
    for (uint32_t i = 0; i < ACTORS; i++) {
        const void *returned;
        size_t count;
        tdm_ref *ref;

        TDM_CHECK(tdm_actor_call(actors[i], "return_value", &ref, "rs", value, word));
        TDM_CHECK(tdm_get(ref, TIMEOUT_MS, "b", &returned, &count));
        TDM_CHECK(check(returned, count, word));
        tdm_ref_release(ref);
    }
    tdm_ref_release(value);
}

/* Waits for the replies to one call of each actor. */
static void await(tdm_ref *refs[ACTORS])
{
    for (uint32_t i = 0; i < ACTORS; i++) {
        TDM_CHECK(tdm_get(refs[i], TIMEOUT_MS, ""));
        tdm_ref_release(refs[i]);
    }
}

/* Returns the sender of the weights, which the caller shuts down. */
static tdm_weights_sender *move_weights(const char *word, char *bytes)
{
    const struct tdm_weights_tensor tensor = {
        .info = {.name = "w", .dtype = TDM_U8, .dims_count = 1, .shape = {MOVED_BYTES}},
        .address = bytes};
    const struct tdm_weights_sender_options options = {.model = MODEL,
                                                       .scheme = TDM_WEIGHTS_SHARED,
                                                       .tensors = &tensor,
                                                       .tensors_count = 1,
                                                       .receivers_count = ACTORS,
                                                       .timeout_ms = TIMEOUT_MS};
    tdm_weights_sender *sender;
    tdm_ref *refs[ACTORS];

    fill(bytes, word);
    TDM_CHECK(tdm_weights_sender_create(runtime, &options, &sender));
    for (uint32_t i = 0; i < ACTORS; i++) {
        TDM_CHECK(tdm_actor_call(actors[i], "receive", &refs[i], "s", word));
    }
    TDM_CHECK(tdm_weights_sender_connect(sender));
    await(refs);
    return sender;
}

static void move_in_group(const char *word)
{
    struct tdm_runtime_info info;
    tdm_ref *refs[ACTORS];

    tdm_runtime_describe(runtime, &info);
    for (uint32_t i = 0; i < ACTORS; i++) {
        TDM_CHECK(
            tdm_actor_call(actors[i], "join", &refs[i], "uss", (uint64_t)i, info.node_id, word));
    }
    await(refs);
}

int main(int argc, char **argv)
{
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    static char values[MOVED_BYTES];
    static char weights[MOVED_BYTES];
    tdm_weights_sender *sender;

    TDM_CHECK(tdm_runtime_start(&options, &runtime)); /* Workers end inside of this call. */
    if (argc != 6) {
        (void)fprintf(stderr, "usage: traffic_program ARGUMENT VALUE WEIGHTS GROUP VARIABLE\n");
        return 2;
    }
    create_actors(argv[5]);
    move_arguments(argv[1]);
    move_values(argv[2], values);
    sender = move_weights(argv[3], weights);
    move_in_group(argv[4]);
    (void)printf("moved\n");
    (void)fflush(stdout);
    while (getchar() != EOF) {
        continue;
    }
    tdm_weights_sender_shutdown(sender);
    for (uint32_t i = 0; i < ACTORS; i++) {
        tdm_actor_destroy(actors[i]);
    }
    TDM_CHECK(tdm_placement_group_remove(places, TIMEOUT_MS));
    tdm_runtime_stop(runtime);
    return 0;
}
