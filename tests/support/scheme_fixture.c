/* scheme_fixture.c - a small model, and an actor that receives it by whatever scheme. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/scheme_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MODELS_MAX = 4, BUCKET_BYTES = 8192, TIMEOUT_MS = 15000 };

/* One larger than what travels inside messages, one of odd size, a scalar, and "head". */
static const struct tdm_tensor_info infos[SCHEME_TENSORS] = {
    {.name = "embed", .dtype = TDM_F32, .dims_count = 2, .shape = {512, 100}},
    {.name = "norm", .dtype = TDM_BF16, .dims_count = 1, .shape = {33}},
    {.name = "scale", .dtype = TDM_F64, .dims_count = 0},
    {.name = "head", .dtype = TDM_F32, .dims_count = 2, .shape = {12, 64}},
};

static uint8_t byte_of(uint64_t seed, uint32_t tensor, size_t index)
{
    uint64_t mixed = (seed * 0x9e3779b97f4a7c15u) ^ ((index + 1) * 0xbf58476d1ce4e5b9u) ^ tensor;

    return (uint8_t)(mixed >> 29);
}

void scheme_model_init(struct scheme_model *model)
{
    for (uint32_t i = 0; i < SCHEME_TENSORS; i++) {
        model->tensors[i] = (struct tdm_weights_tensor){
            .info = infos[i], .address = calloc(1, tdm_tensor_bytes(&infos[i]))};
        assert_non_null(model->tensors[i].address);
    }
}

void scheme_model_fini(struct scheme_model *model)
{
    for (uint32_t i = 0; i < SCHEME_TENSORS; i++) {
        free(model->tensors[i].address);
    }
}

void scheme_model_fill(struct scheme_model *model, uint64_t seed)
{
    for (uint32_t i = 0; i < SCHEME_TENSORS; i++) {
        uint8_t *bytes = model->tensors[i].address;

        for (size_t k = 0; k < tdm_tensor_bytes(&infos[i]); k++) {
            bytes[k] = byte_of(seed, i, k);
        }
    }
}

/* ---- the actor -------------------------------------------------------------------------- */

struct lesson {
    char model[64];
    struct tdm_weights_tensor tensors[SCHEME_TENSORS];
    uint32_t tensors_count;
    uint32_t which[SCHEME_TENSORS]; /* Indexes into the tensors of the fixture. */
    tdm_weights_receiver *receiver;
    tdm_weights_sender *relay;
    int connected;
    uint64_t told_count;
    uint64_t told_last;
};

struct pupil {
    struct lesson lessons[MODELS_MAX];
};

static struct lesson *lesson_of(struct pupil *pupil, const char *model)
{
    for (uint32_t i = 0; i < MODELS_MAX; i++) {
        if (strcmp(pupil->lessons[i].model, model) == 0) {
            return &pupil->lessons[i];
        }
    }
    return NULL;
}

static void on_version(void *arg, uint64_t version)
{
    struct lesson *lesson = arg;

    lesson->told_count++;
    lesson->told_last = version;
}

/* Lists the receiver's tensors in another order than the sender does; with PUPIL_PARTIAL it lists
 * two tensors only. */
static void list_tensors(struct lesson *lesson, uint64_t flags, uint32_t shards_count)
{
    lesson->tensors_count = (flags & PUPIL_PARTIAL) != 0 ? 2 : SCHEME_TENSORS;
    for (uint32_t i = 0; i < lesson->tensors_count; i++) {
        uint32_t which = SCHEME_TENSORS - 1 - i;
        struct tdm_weights_tensor *tensor = &lesson->tensors[i];

        *tensor = (struct tdm_weights_tensor){.info = infos[which]};
        lesson->which[i] = which;
        if ((flags & PUPIL_KEEPS) == 0) {
            tensor->address = calloc(1, tdm_tensor_bytes(&infos[which]));
        }
        if (i == 0 && shards_count > 0) {
            tensor->shard = 1;
            tensor->shards_count = shards_count;
        }
    }
}

static tdm_status pupil_open(tdm_call *call, void *self)
{
    struct tdm_weights_receiver_options options = {.timeout_ms = TIMEOUT_MS};
    struct lesson *lesson = lesson_of(self, "");
    uint64_t shards_count;
    uint64_t flags;

    TDM_TRY(tdm_call_unpack(call, "suu", &options.model, &flags, &shards_count));
    if (lesson_of(self, options.model) == NULL) {
        list_tensors(lesson, flags, (uint32_t)shards_count);
    }
    options.tensors = lesson->tensors;
    options.tensors_count = lesson->tensors_count == 0 ? 1 : lesson->tensors_count;
    options.background = (flags & PUPIL_BACKGROUND) != 0;
    options.on_version = on_version;
    options.arg = lesson;
    TDM_TRY(tdm_weights_receiver_create(tdm_runtime_current(), &options, &lesson->receiver));
    (void)strncpy(lesson->model, options.model, sizeof(lesson->model) - 1);
    return TDM_OK;
}

static tdm_status find(tdm_call *call, struct pupil *pupil, struct lesson **lesson_out)
{
    const char *model = tdm_value_string(tdm_value_at(tdm_call_arguments(call), 0), "no text");

    *lesson_out = lesson_of(pupil, model);
    return *lesson_out == NULL ? tdm_fail(TDM_E_NOT_FOUND, "no lesson of %s", model) : TDM_OK;
}

static tdm_status pupil_connect(tdm_call *call, void *self)
{
    struct lesson *lesson;

    TDM_TRY(find(call, self, &lesson));
    TDM_TRY(tdm_weights_receiver_connect(lesson->receiver));
    return tdm_call_reply(call, "u", lesson->told_last);
}

static tdm_status pupil_receive(tdm_call *call, void *self)
{
    struct lesson *lesson;
    const char *model;
    int64_t timeout_ms;
    uint64_t version;

    TDM_TRY(find(call, self, &lesson));
    TDM_TRY(tdm_call_unpack(call, "si", &model, &timeout_ms));
    TDM_TRY(tdm_weights_receive(lesson->receiver, timeout_ms, &version));
    return tdm_call_reply(call, "u", version);
}

static tdm_status check_tensor(const struct lesson *lesson, uint32_t index, uint64_t seed)
{
    const struct tdm_weights_tensor *tensor = &lesson->tensors[index];
    const uint8_t *bytes = tdm_weights_data(lesson->receiver, index);
    uint32_t shards_count = tensor->shards_count == 0 ? 1 : tensor->shards_count;
    size_t count = tdm_tensor_bytes(&tensor->info) / shards_count;
    size_t first = tensor->shard * count;

    if (tensor->address != NULL && bytes != tensor->address) {
        return tdm_fail(TDM_E_METHOD, "tensor %s is elsewhere", tensor->info.name);
    }
    if ((uintptr_t)bytes % tdm_dtype_bytes(tensor->info.dtype) != 0) {
        return tdm_fail(TDM_E_METHOD, "tensor %s lies at %p", tensor->info.name,
                        (const void *)bytes);
    }
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != byte_of(seed, lesson->which[index], first + i)) {
            return tdm_fail(TDM_E_METHOD, "tensor %s, byte %zu: not that of seed %llu",
                            tensor->info.name, i, (unsigned long long)seed);
        }
    }
    return TDM_OK;
}

static tdm_status pupil_check(tdm_call *call, void *self)
{
    struct lesson *lesson;
    const char *model;
    uint64_t version;
    uint64_t seed;
    tdm_status status = TDM_OK;

    TDM_TRY(find(call, self, &lesson));
    TDM_TRY(tdm_call_unpack(call, "su", &model, &seed));
    TDM_TRY(tdm_weights_read_begin(lesson->receiver, &version));
    for (uint32_t i = 0; i < lesson->tensors_count && status == TDM_OK; i++) {
        status = check_tensor(lesson, i, seed);
    }
    tdm_weights_read_end(lesson->receiver);
    TDM_TRY(status);
    return tdm_call_reply(call, "u", version);
}

static tdm_status pupil_attached(tdm_call *call, void *self)
{
    struct lesson *lesson;
    struct tdm_bytes attached;
    tdm_status status;

    TDM_TRY(find(call, self, &lesson));
    TDM_TRY(tdm_weights_read_begin(lesson->receiver, NULL));
    attached = tdm_weights_attached(lesson->receiver);
    status = tdm_call_reply(call, "b", attached.data, attached.size_bytes);
    tdm_weights_read_end(lesson->receiver);
    return status;
}

static tdm_status pupil_told(tdm_call *call, void *self)
{
    struct lesson *lesson;

    TDM_TRY(find(call, self, &lesson));
    return tdm_call_reply(call, "uu", lesson->told_count, lesson->told_last);
}

static void forget(struct lesson *lesson)
{
    tdm_weights_sender_shutdown(lesson->relay);
    tdm_weights_receiver_shutdown(lesson->receiver);
    for (uint32_t i = 0; i < lesson->tensors_count; i++) {
        free(lesson->tensors[i].address);
    }
    *lesson = (struct lesson){.receiver = NULL};
}

static tdm_status pupil_close(tdm_call *call, void *self)
{
    struct lesson *lesson;

    TDM_TRY(find(call, self, &lesson));
    forget(lesson);
    return TDM_OK;
}

static tdm_status pupil_relay(tdm_call *call, void *self)
{
    struct tdm_weights_sender_options options = {.scheme = TDM_WEIGHTS_ACTORS,
                                                 .timeout_ms = TIMEOUT_MS};
    struct lesson *lesson;
    const char *model;
    uint64_t count;

    TDM_TRY(find(call, self, &lesson));
    TDM_TRY(tdm_call_unpack(call, "ssu", &model, &options.model, &count));
    options.receivers_count = (uint32_t)count;
    options.relay_of = lesson->receiver;
    return tdm_weights_sender_create(tdm_runtime_current(), &options, &lesson->relay);
}

static tdm_status pupil_send(tdm_call *call, void *self)
{
    struct lesson *lesson;
    uint64_t version = 0;

    TDM_TRY(find(call, self, &lesson));
    if (!lesson->connected) {
        TDM_TRY(tdm_weights_sender_connect(lesson->relay));
        lesson->connected = 1;
    } else {
        TDM_TRY(tdm_weights_send(lesson->relay, &version));
    }
    return tdm_call_reply(call, "u", version);
}

static void pupil_end(void *self)
{
    struct pupil *pupil = self;

    for (uint32_t i = 0; i < MODELS_MAX; i++) {
        forget(&pupil->lessons[i]);
    }
}

TDM_ACTOR_CLASS(pupil, .state_bytes = sizeof(struct pupil), .destruct = pupil_end,
                .methods = {{"open", pupil_open},
                            {"connect", pupil_connect},
                            {"receive", pupil_receive},
                            {"check", pupil_check},
                            {"attached", pupil_attached},
                            {"told", pupil_told},
                            {"close", pupil_close},
                            {"relay", pupil_relay},
                            {"send", pupil_send},
                            {TDM_WEIGHTS_METHOD, tdm_weights_serve}});

/* ---- the driver ------------------------------------------------------------------------- */

tdm_actor *scheme_pupil(tdm_runtime *runtime, const char *model, uint64_t flags)
{
    tdm_actor *pupil;
    tdm_ref *ref;

    TDM_CHECK(tdm_actor_create(runtime, "pupil", NULL, &pupil, ""));
    TDM_CHECK(tdm_actor_call(pupil, "open", &ref, "suu", model, flags, (uint64_t)0));
    TDM_CHECK(tdm_get(ref, SCHEME_TIMEOUT_MS, ""));
    tdm_ref_release(ref);
    return pupil;
}

tdm_ref *scheme_call(tdm_actor *pupil, const char *method, const char *model)
{
    tdm_ref *ref;

    TDM_CHECK(tdm_actor_call(pupil, method, &ref, "s", model));
    return ref;
}

tdm_ref *scheme_receive(tdm_actor *pupil, const char *model, int64_t timeout_ms)
{
    tdm_ref *ref;

    TDM_CHECK(tdm_actor_call(pupil, "receive", &ref, "si", model, timeout_ms));
    return ref;
}

tdm_status scheme_end(tdm_ref *ref, uint64_t *version_out)
{
    const tdm_value *value;
    tdm_status status = tdm_get_value(ref, SCHEME_TIMEOUT_MS, &value);

    if (status == TDM_OK && version_out != NULL) {
        *version_out = tdm_value_uint(tdm_value_at(value, 0), 0);
    }
    tdm_ref_release(ref);
    return status;
}

tdm_status scheme_check(tdm_actor *pupil, const char *model, uint64_t seed, uint64_t version)
{
    uint64_t found;
    tdm_ref *ref;

    TDM_TRY(tdm_actor_call(pupil, "check", &ref, "su", model, seed));
    TDM_TRY(scheme_end(ref, &found));
    return found == version ? TDM_OK
                            : tdm_fail(TDM_E_METHOD, "version %llu is served, not %llu",
                                       (unsigned long long)found, (unsigned long long)version);
}

tdm_status scheme_check_attached(tdm_actor *pupil, const char *model, struct tdm_bytes expected)
{
    tdm_ref *ref = scheme_call(pupil, "attached", model);
    const void *found;
    size_t size_bytes;
    tdm_status status = tdm_get(ref, SCHEME_TIMEOUT_MS, "b", &found, &size_bytes);

    if (status == TDM_OK && (size_bytes != expected.size_bytes ||
                             (size_bytes > 0 && memcmp(found, expected.data, size_bytes) != 0))) {
        status = tdm_fail(TDM_E_METHOD, "%zu other bytes are attached, not the %zu expected ones",
                          size_bytes, expected.size_bytes);
    }
    tdm_ref_release(ref);
    return status;
}

tdm_weights_sender *scheme_sender(tdm_runtime *runtime, const char *name,
                                  enum tdm_weights_scheme scheme, const struct scheme_model *model,
                                  uint32_t receivers_count)
{
    const struct tdm_weights_sender_options options = {.model = name,
                                                       .scheme = scheme,
                                                       .tensors = model->tensors,
                                                       .tensors_count = SCHEME_TENSORS,
                                                       .receivers_count = receivers_count,
                                                       .timeout_ms = TIMEOUT_MS,
                                                       .bucket_bytes = BUCKET_BYTES};
    tdm_weights_sender *sender = NULL;

    TDM_CHECK(tdm_weights_sender_create(runtime, &options, &sender));
    return sender;
}
