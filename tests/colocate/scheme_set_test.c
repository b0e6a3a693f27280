/* scheme_set_test.c - several models that are committed together, whatever dies at any step. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/receiver.h"
#include "colocate/scheme/sender.h"

#include "runtime/clock.h"
#include "tests/support/one_node.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) tried((x), #x, __LINE__)

enum { ACTOR = 1, CRITIC = 2, BOTH = 3 };
enum { WORDS = 2000, BUCKET_BYTES = 8192, TIMEOUT_MS = 20000, SOON_MS = 10000, SHORT_MS = 300 };
enum { SLOTS = 8, LOAD_SENDS = 40, READERS = 2, READ_PAUSE_NS = 100000 };

static const char *const kinds[2] = {"actor", "critic"};

static tdm_runtime *runtime;
static uint32_t worlds_count;

static void tried(tdm_status status, const char *what, int line)
{
    if (status != TDM_OK) {
        fail_msg("line %d: %s: %s: %s", line, what, tdm_strerror(status), tdm_error_detail());
    }
}

static struct tdm_tensor_info info_of(int kind)
{
    return (struct tdm_tensor_info){.name = kind == 0 ? "policy" : "value",
                                    .dtype = TDM_I64,
                                    .dims_count = 2,
                                    .shape = {4, WORDS / 4}};
}

/* ---- an actor with receivers --------------------------------------------------------- */

/* Versions that threads of several processes read at this moment; 0 if none. */
struct board {
    _Atomic uint64_t versions[SLOTS];
};

/* A receiver of one or both models, with threads that read all the time. */
struct listener {
    tdm_weights_receiver *receiver;
    char models[2][64]; /* Names of its models; empty if it has not this one. */
    int64_t tensors[2][WORDS];
    uint64_t told[2]; /* Version that on_version was called with last. */
    struct board *board;
    pthread_t threads[READERS];
    uint64_t threads_count;
    uint64_t first_slot;
    _Atomic uint64_t slots_taken;
    _Atomic bool stops;
    _Atomic uint64_t reads;
    _Atomic uint64_t wrong; /* Reads that saw something of another version. */
};

static void on_version(void *arg, uint64_t version)
{
    *(uint64_t *)arg = version;
}

/* open(prefix, kinds, flags): creates the receiver; flag 1: a thread receives in the background.
 * The critic stays in the memory of Tandem. */
static tdm_status listener_open(tdm_call *call, void *self)
{
    struct listener *listener = self;
    struct tdm_weights_receiver_options options[2];
    struct tdm_weights_tensor tensors[2];
    const char *prefix;
    uint64_t wanted;
    uint64_t flags;
    uint32_t count = 0;

    TDM_TRY(tdm_call_unpack(call, "suu", &prefix, &wanted, &flags));
    for (int i = 1; i >= 0; i--) { /* Not in the order of the sender. */
        if ((wanted >> i & 1) == 0) {
            continue;
        }
        (void)snprintf(listener->models[i], sizeof(listener->models[i]), "%s.%s", prefix, kinds[i]);
        tensors[i] = (struct tdm_weights_tensor){.info = info_of(i),
                                                 .address = i == 0 ? listener->tensors[0] : NULL};
        options[count++] = (struct tdm_weights_receiver_options){.model = listener->models[i],
                                                                 .tensors = &tensors[i],
                                                                 .tensors_count = 1,
                                                                 .timeout_ms = TIMEOUT_MS,
                                                                 .background = flags & 1,
                                                                 .on_version = on_version,
                                                                 .arg = &listener->told[i]};
    }
    return tdm_weights_receiver_create_set(tdm_runtime_current(), options, count,
                                           &listener->receiver);
}

static tdm_status listener_connect(tdm_call *call, void *self)
{
    struct listener *listener = self;

    (void)call;
    return tdm_weights_receiver_connect(listener->receiver);
}

static tdm_status listener_receive(tdm_call *call, void *self)
{
    struct listener *listener = self;
    int64_t timeout_ms;
    uint64_t version;

    TDM_TRY(tdm_call_unpack(call, "i", &timeout_ms));
    TDM_TRY(tdm_weights_receive(listener->receiver, timeout_ms, &version));
    return tdm_call_reply(call, "u", version);
}

/* Returns the value of all elements of a model that is read, or -1 if they differ. */
static int64_t value_of(const struct listener *listener, int kind)
{
    const tdm_weights_receiver *receiver =
        tdm_weights_receiver_of(listener->receiver, listener->models[kind]);
    const int64_t *data = tdm_weights_data(receiver, 0);

    for (int i = 1; i < WORDS; i++) {
        if (data[i] != data[0]) {
            return -1;
        }
    }
    return data[0];
}

/* look(): version, value of the actor, value of the critic; -2 for a model that it does not have.
 */
static tdm_status listener_look(tdm_call *call, void *self)
{
    struct listener *listener = self;
    int64_t values[2] = {-2, -2};
    uint64_t version;

    TDM_TRY(tdm_weights_read_begin(listener->receiver, &version));
    for (int i = 0; i < 2; i++) {
        if (listener->models[i][0] != '\0') {
            values[i] = value_of(listener, i);
        }
    }
    tdm_weights_read_end(listener->receiver);
    return tdm_call_reply(call, "uii", version, values[0], values[1]);
}

/* Reads all the time. The value of each model is its version. While it reads it shows its version
 * on the board, and no other thread of any process may show another one. */
static void *reader_main(void *arg)
{
    /* Without pauses the readers would take the processors from the sender. */
    const struct timespec rest = {.tv_nsec = READ_PAUSE_NS};
    struct listener *listener = arg;
    uint64_t slot = listener->first_slot + atomic_fetch_add(&listener->slots_taken, 1);

    while (!atomic_load(&listener->stops)) {
        bool wrong = false;
        uint64_t version;

        if (tdm_weights_read_begin(listener->receiver, &version) != TDM_OK) {
            break;
        }
        atomic_store(&listener->board->versions[slot], version);
        for (int i = 0; i < 2; i++) {
            wrong = wrong ||
                    (listener->models[i][0] != '\0' && value_of(listener, i) != (int64_t)version);
        }
        for (int i = 0; i < SLOTS; i++) {
            uint64_t other = atomic_load(&listener->board->versions[i]);

            wrong = wrong || (other != 0 && other != version);
        }
        atomic_store(&listener->board->versions[slot], 0);
        tdm_weights_read_end(listener->receiver);
        atomic_fetch_add(&listener->reads, 1);
        atomic_fetch_add(&listener->wrong, wrong);
        (void)nanosleep(&rest, NULL);
    }
    return NULL;
}

/* read(file, slot): starts threads that read; they use the board in the file from this slot on. */
static tdm_status listener_read(tdm_call *call, void *self)
{
    struct listener *listener = self;
    const char *file;
    int fd;

    TDM_TRY(tdm_call_unpack(call, "su", &file, &listener->first_slot));
    fd = open(file, O_RDWR);
    listener->board =
        mmap(NULL, sizeof(*listener->board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (listener->board == MAP_FAILED) {
        return tdm_fail(TDM_E_IO, "no board");
    }
    for (int i = 0; i < READERS; i++) {
        if (pthread_create(&listener->threads[listener->threads_count], NULL, reader_main,
                           listener) == 0) {
            listener->threads_count++;
        }
    }
    return TDM_OK;
}

/* stop(): ends these threads; replies how often they have read, and how often wrongly. */
static tdm_status listener_stop(tdm_call *call, void *self)
{
    struct listener *listener = self;

    atomic_store(&listener->stops, true);
    while (listener->threads_count > 0) {
        (void)pthread_join(listener->threads[--listener->threads_count], NULL);
    }
    return tdm_call_reply(call, "uu", (uint64_t)atomic_load(&listener->reads),
                          (uint64_t)atomic_load(&listener->wrong));
}

/* told(): the versions with which on_version was called last. */
static tdm_status listener_told(tdm_call *call, void *self)
{
    const struct listener *listener = self;

    return tdm_call_reply(call, "uu", listener->told[0], listener->told[1]);
}

static tdm_status listener_close(tdm_call *call, void *self)
{
    struct listener *listener = self;

    (void)call;
    tdm_weights_receiver_shutdown(listener->receiver);
    listener->receiver = NULL;
    return TDM_OK;
}

static void listener_end(void *self)
{
    struct listener *listener = self;

    tdm_weights_receiver_shutdown(listener->receiver);
}

TDM_ACTOR_CLASS(listener, .state_bytes = sizeof(struct listener), .destruct = listener_end,
                .methods = {{"open", listener_open},
                            {"connect", listener_connect},
                            {"receive", listener_receive},
                            {"look", listener_look},
                            {"read", listener_read},
                            {"stop", listener_stop},
                            {"told", listener_told},
                            {"close", listener_close}});

/* ---- a sender, in the test or in an actor -------------------------------------------- */

/* A sender of both models. All elements of both are the same number. */
struct speaker {
    tdm_weights_sender *sender;
    int64_t tensors[2][WORDS];
};

static void speaker_fill(struct speaker *speaker, int64_t value)
{
    for (int i = 0; i < WORDS; i++) {
        speaker->tensors[0][i] = value;
        speaker->tensors[1][i] = value;
    }
}

static tdm_status speaker_create(struct speaker *speaker, tdm_runtime *where, const char *prefix,
                                 enum tdm_weights_scheme scheme, const uint32_t counts[2])
{
    struct tdm_weights_sender_options options[2];
    struct tdm_weights_tensor tensors[2];
    char models[2][64];

    for (int i = 0; i < 2; i++) {
        (void)snprintf(models[i], sizeof(models[i]), "%s.%s", prefix, kinds[i]);
        tensors[i] =
            (struct tdm_weights_tensor){.info = info_of(i), .address = speaker->tensors[i]};
        options[i] = (struct tdm_weights_sender_options){.model = models[i],
                                                         .scheme = scheme,
                                                         .tensors = &tensors[i],
                                                         .tensors_count = 1,
                                                         .receivers_count = counts[i],
                                                         .timeout_ms = TIMEOUT_MS,
                                                         .bucket_bytes = BUCKET_BYTES};
    }
    return tdm_weights_sender_create_set(where, options, 2, &speaker->sender);
}

/* open(prefix, receivers of the actor, receivers of the critic) */
static tdm_status speaker_open(tdm_call *call, void *self)
{
    const char *prefix;
    uint64_t counts[2];

    TDM_TRY(tdm_call_unpack(call, "suu", &prefix, &counts[0], &counts[1]));
    return speaker_create(self, tdm_runtime_current(), prefix, TDM_WEIGHTS_SHARED,
                          (const uint32_t[2]){(uint32_t)counts[0], (uint32_t)counts[1]});
}

/* send(value): connects at first, then sends. */
static tdm_status speaker_send(tdm_call *call, void *self)
{
    struct speaker *speaker = self;
    int64_t value;

    TDM_TRY(tdm_call_unpack(call, "i", &value));
    speaker_fill(speaker, value);
    return value == 1 ? tdm_weights_sender_connect(speaker->sender)
                      : tdm_weights_send(speaker->sender, NULL);
}

static void speaker_end(void *self)
{
    struct speaker *speaker = self;

    tdm_weights_sender_shutdown(speaker->sender);
}

TDM_ACTOR_CLASS(speaker, .state_bytes = sizeof(struct speaker), .destruct = speaker_end,
                .methods = {{"open", speaker_open}, {"send", speaker_send}});

/* ---- the driver ---------------------------------------------------------------------- */

static void mark_file(const char *name, char file[128])
{
    (void)snprintf(file, 128, "/tmp/tandem-set-%d-%s", (int)getpid(), name);
}

/* Creates an actor that kills itself when it passes the failpoint for the count-th time; `step` may
 * be NULL. */
static tdm_actor *actor_create(const char *class_name, const char *step, int count, char name[64])
{
    char file[128];
    char variable[320];
    struct tdm_actor_options options = {.name = name};
    tdm_actor *actor;

    (void)snprintf(name, 64, "set-%u", worlds_count++);
    mark_file(name, file);
    if (step != NULL) {
        (void)snprintf(variable, sizeof(variable), "TANDEM_FAILPOINT=%s %s %d kill %s", name, step,
                       count, file);
        options.environment[0] = variable;
    }
    TRY(tdm_actor_create(runtime, class_name, &options, &actor, ""));
    return actor;
}

static void remove_mark(const char *name)
{
    char file[128];

    mark_file(name, file);
    assert_int_equal(unlink(file), 0); /* The file exists if the failpoint was passed. */
}

static tdm_status end(tdm_ref *ref, uint64_t *version_out)
{
    const tdm_value *value;
    tdm_status status = tdm_get_value(ref, 2 * TIMEOUT_MS, &value);

    if (status == TDM_OK && version_out != NULL) {
        *version_out = tdm_value_uint(tdm_value_at(value, 0), 0);
    }
    tdm_ref_release(ref);
    return status;
}

static tdm_ref *call(tdm_actor *actor, const char *method)
{
    tdm_ref *ref;

    TRY(tdm_actor_call(actor, method, &ref, ""));
    return ref;
}

static tdm_ref *receive(tdm_actor *actor)
{
    tdm_ref *ref;

    TRY(tdm_actor_call(actor, "receive", &ref, "i", (int64_t)SOON_MS));
    return ref;
}

static tdm_actor *listener_at(const char *prefix, uint64_t wanted, uint64_t flags, const char *step,
                              int count, char name[64])
{
    tdm_actor *actor = actor_create("listener", step, count, name);
    tdm_ref *ref;

    TRY(tdm_actor_call(actor, "open", &ref, "suu", prefix, wanted, flags));
    TRY(end(ref, NULL));
    return actor;
}

/* Asserts that a listener reads this version, and that its models have this value. */
static void assert_reads(tdm_actor *actor, uint64_t wanted, uint64_t version, int64_t value)
{
    tdm_ref *ref = call(actor, "look");
    int64_t values[2];
    uint64_t found;

    TRY(tdm_get(ref, SOON_MS, "uii", &found, &values[0], &values[1]));
    tdm_ref_release(ref);
    assert_true(found == version);
    assert_true(values[0] == ((wanted & ACTOR) != 0 ? value : -2));
    assert_true(values[1] == ((wanted & CRITIC) != 0 ? value : -2));
}

/* One sender, a listener of both models and one of the critic. */
struct world {
    char prefix[32];
    struct speaker speaker;
    tdm_actor *listeners[2];
};

static const uint64_t wanted_by[2] = {BOTH, CRITIC};

static void world_open(struct world *world, enum tdm_weights_scheme scheme, uint64_t flags)
{
    char name[64];
    tdm_ref *refs[2];

    (void)snprintf(world->prefix, sizeof(world->prefix), "w%u", worlds_count++);
    TRY(speaker_create(&world->speaker, runtime, world->prefix, scheme, (const uint32_t[2]){1, 2}));
    for (int i = 0; i < 2; i++) {
        world->listeners[i] = listener_at(world->prefix, wanted_by[i], flags, NULL, 0, name);
        refs[i] = call(world->listeners[i], "connect");
    }
    speaker_fill(&world->speaker, 1);
    TRY(tdm_weights_sender_connect(world->speaker.sender));
    for (int i = 0; i < 2; i++) {
        TRY(end(refs[i], NULL));
    }
}

static void world_close(struct world *world)
{
    tdm_weights_sender_shutdown(world->speaker.sender);
    for (int i = 0; i < 2; i++) {
        tdm_actor_destroy(world->listeners[i]);
    }
}

/* ---- versions ------------------------------------------------------------------------ */

static void set_goes_live_together_by_every_scheme(void **state)
{
    static const enum tdm_weights_scheme schemes[] = {TDM_WEIGHTS_SHARED, TDM_WEIGHTS_PROCESSES,
                                                      TDM_WEIGHTS_DISTRIBUTED};

    (void)state;
    for (size_t s = 0; s < sizeof(schemes) / sizeof(schemes[0]); s++) {
        struct world world;
        uint64_t version = 0;
        tdm_ref *refs[2];

        world_open(&world, schemes[s], 0);
        for (int64_t value = 2; value <= 4; value++) {
            for (int i = 0; i < 2; i++) {
                refs[i] = receive(world.listeners[i]);
            }
            speaker_fill(&world.speaker, value);
            if (value == 4) {
                TRY(tdm_weights_send_async(world.speaker.sender));
                TRY(tdm_weights_wait(world.speaker.sender, SOON_MS, &version));
            } else {
                TRY(tdm_weights_send(world.speaker.sender, &version));
            }
            assert_true(version == (uint64_t)value);
            for (int i = 0; i < 2; i++) {
                TRY(end(refs[i], &version));
                assert_true(version == (uint64_t)value);
                assert_reads(world.listeners[i], wanted_by[i], version, value);
            }
        }
        assert_int_equal(tdm_weights_receivers_count(world.speaker.sender), 3);
        world_close(&world);
    }
}

static void attached_bytes_and_callbacks_come_with_each_model(void **state)
{
    struct world world;
    uint64_t told[2];
    tdm_ref *refs[2];
    tdm_ref *ref;

    (void)state;
    world_open(&world, TDM_WEIGHTS_SHARED, 0);
    for (int i = 0; i < 2; i++) {
        refs[i] = receive(world.listeners[i]);
    }
    TRY(tdm_weights_attach(world.speaker.sender, (struct tdm_bytes){"two", 3}));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(world.speaker.sender->set[i]->attached.size_bytes, 3);
    }
    TRY(tdm_weights_send(world.speaker.sender, NULL));
    for (int i = 0; i < 2; i++) {
        TRY(end(refs[i], NULL));
    }
    ref = call(world.listeners[0], "told");
    TRY(tdm_get(ref, SOON_MS, "uu", &told[0], &told[1]));
    tdm_ref_release(ref);
    assert_true(told[0] == 2 && told[1] == 2);
    world_close(&world);
}

/* ---- readers under load -------------------------------------------------------------- */

static void readers_of_all_processes_see_one_version_under_load(void **state)
{
    struct world world;
    uint64_t counts[2];
    char file[128];
    tdm_ref *ref;
    int fd;

    (void)state;
    mark_file("board", file);
    fd = open(file, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(ftruncate(fd, sizeof(struct board)), 0);
    (void)close(fd);
    world_open(&world, TDM_WEIGHTS_SHARED, 1);
    for (uint64_t i = 0; i < 2; i++) {
        TRY(tdm_actor_call(world.listeners[i], "read", &ref, "su", file, i * READERS));
        TRY(end(ref, NULL));
    }
    for (int64_t value = 2; value < 2 + LOAD_SENDS; value++) {
        uint64_t version;

        speaker_fill(&world.speaker, value);
        TRY(tdm_weights_send(world.speaker.sender, &version));
        assert_true(version == (uint64_t)value);
    }
    for (int i = 0; i < 2; i++) {
        ref = call(world.listeners[i], "stop");
        TRY(tdm_get(ref, SOON_MS, "uu", &counts[0], &counts[1]));
        tdm_ref_release(ref);
        printf("%llu reads, %llu of them wrong\n", (unsigned long long)counts[0],
               (unsigned long long)counts[1]);
        assert_true(counts[0] > LOAD_SENDS && counts[1] == 0);
    }
    assert_int_equal(unlink(file), 0);
    world_close(&world);
}

/* ---- failures ------------------------------------------------------------------------ */

static const struct tdm__weight_transport *honest;
static struct tdm__weight_transport damaging;

static tdm_status send_damaged(const struct tdm__transport_context *context,
                               const struct tdm__outgoing_bucket *bucket)
{
    ((uint8_t *)bucket->image)[0] ^= 1;
    return honest->send_bucket(context, bucket);
}

static void wrong_byte_of_one_model_keeps_the_other_at_its_version(void **state)
{
    static const enum tdm_weights_scheme schemes[] = {TDM_WEIGHTS_SHARED, TDM_WEIGHTS_DISTRIBUTED};

    (void)state;
    for (int s = 0; s < 2; s++) {
        for (int damaged = 0; damaged < 2; damaged++) {
            struct world world;
            tdm_ref *refs[2];
            uint64_t version;

            world_open(&world, schemes[s], 0);
            honest = world.speaker.sender->set[damaged]->transport;
            damaging = *honest;
            damaging.send_bucket = send_damaged;
            world.speaker.sender->set[damaged]->transport = &damaging;
            for (int i = 0; i < 2; i++) {
                refs[i] = receive(world.listeners[i]);
            }
            speaker_fill(&world.speaker, 2);
            assert_int_equal(tdm_weights_send(world.speaker.sender, NULL), TDM_E_CHECKSUM);
            assert_non_null(strstr(tdm_error_detail(), damaged == 0 ? "policy" : "value"));
            for (int i = 0; i < 2; i++) {
                assert_int_not_equal(end(refs[i], NULL), TDM_OK);
                assert_reads(world.listeners[i], wanted_by[i], 1, 1);
                refs[i] = receive(world.listeners[i]);
            }
            world.speaker.sender->set[damaged]->transport = honest;
            TRY(tdm_weights_send(world.speaker.sender, &version));
            for (int i = 0; i < 2; i++) {
                TRY(end(refs[i], NULL));
                assert_reads(world.listeners[i], wanted_by[i], version, 2);
            }
            world_close(&world);
        }
    }
}

/* Sends the second version to a listener that survives and to one that does not. */
static void send_to_doomed(uint64_t survives, uint64_t dies, const char *step, int count)
{
    char prefix[32];
    char names[2][64];
    struct speaker speaker;
    tdm_actor *actors[2];
    tdm_ref *refs[2];
    tdm_status status;
    uint64_t version = 0;

    (void)snprintf(prefix, sizeof(prefix), "d%u", worlds_count++);
    TRY(speaker_create(&speaker, runtime, prefix, TDM_WEIGHTS_SHARED,
                       (const uint32_t[2]){(uint32_t)((survives & 1) + (dies & 1)),
                                           (uint32_t)((survives >> 1) + (dies >> 1))}));
    actors[0] = listener_at(prefix, survives, 0, NULL, 0, names[0]);
    actors[1] = listener_at(prefix, dies, 0, step, count, names[1]);
    for (int i = 0; i < 2; i++) {
        refs[i] = call(actors[i], "connect");
    }
    speaker_fill(&speaker, 1);
    TRY(tdm_weights_sender_connect(speaker.sender));
    for (int i = 0; i < 2; i++) {
        TRY(end(refs[i], NULL));
        refs[i] = receive(actors[i]);
    }
    speaker_fill(&speaker, 2);
    status = tdm_weights_send(speaker.sender, &version);
    assert_true(status == TDM_OK || status == TDM_E_ACTOR_DIED);
    assert_int_not_equal(end(refs[1], NULL), TDM_OK);
    assert_int_equal(end(refs[0], NULL), status == TDM_OK ? TDM_OK : TDM_E_ABORTED);
    assert_reads(actors[0], survives, status == TDM_OK ? version : 1, status == TDM_OK ? 2 : 1);
    refs[0] = receive(actors[0]);
    speaker_fill(&speaker, 3);
    TRY(tdm_weights_send(speaker.sender, &version));
    TRY(end(refs[0], NULL));
    assert_reads(actors[0], survives, version, 3);
    remove_mark(names[1]);
    tdm_weights_sender_shutdown(speaker.sender);
    tdm_actor_destroy(actors[0]);
    tdm_actor_destroy(actors[1]);
}

/* A listener of both models passes each step of a version twice, once for each model. */
static void receiver_that_dies_at_any_step_is_left_out(void **state)
{
    (void)state;
    for (int count = 3; count <= 4; count++) {
        send_to_doomed(BOTH, BOTH, "weights.bucket_received", count);
        send_to_doomed(BOTH, BOTH, "weights.vote", count);
        send_to_doomed(BOTH, BOTH, "weights.voted", count);
        send_to_doomed(BOTH, BOTH, "weights.flip", count);
    }
    send_to_doomed(BOTH, ACTOR, "weights.voted", 2);
    send_to_doomed(BOTH, CRITIC, "weights.vote", 2);
    send_to_doomed(BOTH, CRITIC, "weights.flip", 2);
}

/* A sender dies at a step of the second version. */
static void send_from_doomed(const char *step, int count)
{
    char prefix[32];
    char names[3][64];
    tdm_actor *sender = actor_create("speaker", step, count, names[0]);
    tdm_actor *actors[2];
    tdm_status got[2];
    tdm_ref *refs[2];
    tdm_ref *ref;

    (void)snprintf(prefix, sizeof(prefix), "s%u", worlds_count++);
    TRY(tdm_actor_call(sender, "open", &ref, "suu", prefix, (uint64_t)1, (uint64_t)2));
    TRY(end(ref, NULL));
    for (int i = 0; i < 2; i++) {
        actors[i] = listener_at(prefix, wanted_by[i], 0, NULL, 0, names[1 + i]);
        refs[i] = call(actors[i], "connect");
    }
    TRY(tdm_actor_call(sender, "send", &ref, "i", (int64_t)1));
    TRY(end(ref, NULL));
    for (int i = 0; i < 2; i++) {
        TRY(end(refs[i], NULL));
        refs[i] = receive(actors[i]);
    }
    TRY(tdm_actor_call(sender, "send", &ref, "i", (int64_t)2));
    assert_int_equal(end(ref, NULL), TDM_E_ACTOR_DIED);
    for (int i = 0; i < 2; i++) {
        got[i] = end(refs[i], NULL);
        assert_true(got[i] == TDM_OK || got[i] == TDM_E_ABORTED || got[i] == TDM_E_END);
    }
    /* Either all models have the version everywhere or none has it anywhere. */
    assert_int_equal(got[0] == TDM_OK, got[1] == TDM_OK);
    for (int i = 0; i < 2; i++) {
        assert_reads(actors[i], wanted_by[i], got[0] == TDM_OK ? 2 : 1, got[0] == TDM_OK ? 2 : 1);
        assert_int_equal(end(receive(actors[i]), NULL), TDM_E_END);
        tdm_actor_destroy(actors[i]);
    }
    printf("the sender died at %s (%d): %s\n", step, count,
           got[0] == TDM_OK ? "committed" : "aborted");
    remove_mark(names[0]);
    tdm_actor_destroy(sender);
}

static void sender_that_dies_at_any_step_leaves_one_version(void **state)
{
    (void)state;
    send_from_doomed("weights.bucket_sent", 3);
    send_from_doomed("weights.bucket_sent", 4);
    send_from_doomed("weights.decide", 2);
    send_from_doomed("weights.decided", 2);
    send_from_doomed("weights.outcome_published", 3);
}

/* ---- who belongs to a set ------------------------------------------------------------ */

static void receiver_of_a_set_may_join_later(void **state)
{
    struct world world;
    char name[64];
    tdm_actor *late;
    tdm_ref *refs[3];
    uint64_t version;

    (void)state;
    world_open(&world, TDM_WEIGHTS_SHARED, 1);
    late = listener_at(world.prefix, BOTH, 0, NULL, 0, name);
    refs[0] = call(late, "connect");
    /* It joins while versions are sent.  After the first that it has of both models it receives no
     * more, so that no other one may be sent until it is called. */
    for (int64_t value = 2; tdm_weights_receivers_count(world.speaker.sender) < 5; value++) {
        speaker_fill(&world.speaker, value);
        TRY(tdm_weights_send(world.speaker.sender, &version));
    }
    TRY(end(refs[0], NULL));
    refs[0] = receive(late);
    speaker_fill(&world.speaker, 500);
    TRY(tdm_weights_send(world.speaker.sender, &version));
    TRY(end(refs[0], NULL));
    assert_reads(late, BOTH, version, 500);
    assert_int_equal(tdm_weights_receivers_count(world.speaker.sender), 5);
    TRY(end(call(late, "close"), NULL));
    TRY(tdm_weights_send(world.speaker.sender, &version));
    assert_int_equal(tdm_weights_receivers_count(world.speaker.sender), 3);
    tdm_actor_destroy(late);
    world_close(&world);
}

static void models_that_are_sent_apart_are_no_set(void **state)
{
    struct tdm_weights_tensor tensors[2];
    int64_t values[2][WORDS] = {{0}};
    tdm_weights_sender *senders[2];
    char name[64];
    tdm_actor *listener = listener_at("apart", BOTH, 0, NULL, 0, name);
    tdm_ref *ref = call(listener, "connect");

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct tdm_weights_sender_options options = {.tensors = &tensors[i],
                                                     .tensors_count = 1,
                                                     .scheme = TDM_WEIGHTS_SHARED,
                                                     .timeout_ms = SHORT_MS};

        tensors[i] = (struct tdm_weights_tensor){.info = info_of(i), .address = values[i]};
        options.model = i == 0 ? "apart.actor" : "apart.critic";
        TRY(tdm_weights_sender_create(runtime, &options, &senders[i]));
        assert_int_equal(tdm_weights_sender_connect(senders[i]), TDM_E_TIMEOUT);
    }
    assert_int_equal(end(ref, NULL), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "is not sent together with"));
    for (int i = 0; i < 2; i++) {
        tdm_weights_sender_shutdown(senders[i]);
    }
    tdm_actor_destroy(listener);
}

static void options_that_make_no_set_are_refused(void **state)
{
    int64_t values[WORDS] = {0};
    const struct tdm_weights_tensor tensor = {.info = info_of(0), .address = values};
    struct tdm_weights_sender_options options[2] = {
        {.model = "same", .scheme = TDM_WEIGHTS_SHARED, .tensors = &tensor, .tensors_count = 1},
        {.model = "same", .scheme = TDM_WEIGHTS_SHARED, .tensors = &tensor, .tensors_count = 1}};
    tdm_weights_sender *sender;

    (void)state;
    assert_int_equal(tdm_weights_sender_create_set(runtime, options, 2, &sender), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "same is in the set twice"));
    assert_null(sender);
    options[1].model = "other";
    options[1].scheme = TDM_WEIGHTS_MODULE;
    assert_int_equal(tdm_weights_sender_create_set(runtime, options, 2, &sender), TDM_E_INVAL);
    assert_non_null(strstr(tdm_error_detail(), "module"));
    assert_int_equal(
        tdm_weights_sender_create_set(runtime, options, TDM_WEIGHTS_SET_MAX + 1, &sender),
        TDM_E_INVAL);
    assert_int_equal(tdm_weights_sender_create_set(runtime, options, 0, &sender), TDM_E_INVAL);
    assert_null(sender);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_goes_live_together_by_every_scheme),
        cmocka_unit_test(attached_bytes_and_callbacks_come_with_each_model),
        cmocka_unit_test(readers_of_all_processes_see_one_version_under_load),
        cmocka_unit_test(wrong_byte_of_one_model_keeps_the_other_at_its_version),
        cmocka_unit_test(receiver_that_dies_at_any_step_is_left_out),
        cmocka_unit_test(sender_that_dies_at_any_step_leaves_one_version),
        cmocka_unit_test(receiver_of_a_set_may_join_later),
        cmocka_unit_test(models_that_are_sent_apart_are_no_set),
        cmocka_unit_test(options_that_make_no_set_are_refused),
    };
    int failed;

    runtime = one_node_start((uint64_t)16 << 20);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
