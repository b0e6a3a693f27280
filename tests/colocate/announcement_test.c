/* announcement_test.c - what trainer ranks describe reaches the engine through the gather group, in
 * every mode of updates, and a changed description is refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/announcement.h"

#include "actors/worker.h"
#include "colocate/job/controller.h"
#include "runtime/messages/messages.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/tandem.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { TEXT_BYTES = 1024, RANKS = 4, GROUPS = 2 };

static const char model[] =
    "{\"model_type\": \"qwen3\", \"num_hidden_layers\": 3, \"hidden_size\": 32,"
    " \"intermediate_size\": 48, \"num_attention_heads\": 8, \"num_key_value_heads\": 4,"
    " \"head_dim\": 8, \"vocab_size\": 101, \"tie_word_embeddings\": true,"
    " \"torch_dtype\": \"bfloat16\"}";

/* Four trainer ranks and two engines of two ranks each. */
static const char job_file[] =
    "job: {name: announced, library: " TDM_TEST_BUILD_DIR "/tests/%s_job_library.so}\n"
    "cluster: {num_gpus: %u, gpu_bytes: 32 MiB, cpus: 8}\n"
    "%strainer: {num_ranks: 4%s, step_timeout_ms: 60000}\n"
    "engine: {num_engines: 2, rollout_num_gpus_per_engine: 2%s}\n"
    "update: {update_weight_buffer_size: %s, mode: %s, timeout_ms: 60000}\n"
    "data: {train: none, unseen: none}\n";

/* A way in which weights come to engines. */
struct way {
    const char *mode;  /* update.mode */
    const char *bytes; /* update.update_weight_buffer_size */
    bool are_remote;   /* True if engines have GPUs of their own. */
    bool are_by_name;  /* True if engines get whole tensors by name. */
    /* True if each trainer rank has all weights. Otherwise they are sharded over all ranks, so that
     * each rank writes for each engine, unless `are_by_name`. */
    bool are_full;
};

static const struct way ways[] = {
    {"donate", "16 KiB", false, false, false}, {"copy", "8 KiB", false, false, false},
    {"names", "4 KiB", false, true, false},    {"bucket", "8 KiB", false, false, false},
    {"copy", "8 KiB", true, false, false},     {"copy", "8 KiB", false, false, true},
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

static char folder[] = "/tmp/announced-XXXXXX";
static char model_path[64];
static char broken_path[64];
static char attached_path[64];

static struct tdm__job_spec spec;
static struct tdm__controller controller;

/* ---- without processes ------------------------------------------------------------------ */

static void call_to_the_engine_has_what_was_gathered_and_nothing_else(void **state)
{
    uint64_t sizes[3] = {5, 0, 2};
    char bytes[] = "own..first.....last.";
    struct tdm__gathered gathered = {.sizes = sizes, .bytes = bytes, .part_bytes = 5};
    struct tdm__stage_bucket_message message;
    tdm_document *document;
    tdm_writer *writer;

    (void)state;
    TRY(tdm_writer_create(&writer));
    TRY(tdm__announcement_encode(&gathered, 3, writer));
    TRY(tdm_document_parse(tdm_writer_bytes(writer), &document));
    TRY(tdm__stage_bucket_decode(tdm_document_root(document), &message));
    assert_int_equal(tdm_value_count(tdm_document_root(document)), 1);
    assert_int_equal(message.gathered.count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        struct tdm_bytes part = tdm__gathered_part(&gathered, i);
        struct tdm_bytes sent;

        tdm__message_list_read(&message.gathered, i, &sent, sizeof(sent));
        assert_int_equal(sent.size_bytes, sizes[i]);
        assert_int_equal(part.size_bytes, sizes[i]);
        assert_true(part.size_bytes == 0 || memcmp(sent.data, part.data, part.size_bytes) == 0);
    }
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
}

/* ---- jobs ------------------------------------------------------------------------------- */

static void print_way(const struct way *way)
{
    print_message("%s%s%s\n", way->mode, way->are_remote ? ", other GPUs" : "",
                  way->are_full ? ", each trainer rank has all weights" : "");
}

/* Reads the job file of a way into `spec`. */
static void spec_of(const struct way *way)
{
    char text[TEXT_BYTES];
    char models[128];
    tdm_config *config;

    (void)snprintf(models, sizeof(models), "model: {config: %s}\n", model_path);
    (void)snprintf(text, sizeof(text), job_file, way->are_by_name ? "tiny" : "named",
                   way->are_remote ? 2 * RANKS : RANKS, way->are_by_name ? "" : models,
                   way->are_by_name ? ""
                   : way->are_full  ? ", layout: {layout: fsdp, state: full, dtype: F32}"
                                    : ", layout: {layout: fsdp, state: sharded, dtype: F32}",
                   way->are_by_name  ? ""
                   : way->are_remote ? ", layout: {layout: engine, tp: 2}, colocate: false"
                                     : ", layout: {layout: engine, tp: 2}",
                   way->bytes, way->mode);
    TRY(tdm_config_parse(text, strlen(text), "job.yaml", &config));
    if (tdm__job_spec_from_config(config, "", &spec) != TDM_OK) {
        fail_msg("%s", tdm_error_detail());
    }
}

/* Starts the actors of the job that `spec` describes. */
static void start_job(tdm_runtime *runtime)
{
    static const struct tdm__job_run_options run = {.program = "test"};

    controller = (struct tdm__controller){.spec = &spec, .options = &run, .runtime = runtime};
    if (tdm__worker_group_start(&controller.workers, controller.runtime, &spec,
                                &(struct tdm__worker_group_options){.names_ms = 0}) != TDM_OK) {
        fail_msg("%s", tdm_error_detail());
    }
    TRY(tdm__controller_resume_trainer(&controller));
    TRY(tdm__controller_pause_trainer(&controller));
    TRY(tdm__controller_resume_weights(&controller));
}

/* Starts a job whose processes read `failpoint` from their environment; NULL for none. */
static void open_job(const struct way *way, const char *failpoint)
{
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    tdm_runtime *runtime;

    if (failpoint != NULL) {
        (void)setenv("TANDEM_FAILPOINT", failpoint, 1);
    }
    spec_of(way);
    options.cpus = 16;
    options.gpus = spec.num_gpus;
    options.gpu_bytes = spec.gpu_bytes;
    TRY(tdm_runtime_start(&options, &runtime));
    start_job(runtime);
    (void)unsetenv("TANDEM_FAILPOINT");
}

static void close_job(void)
{
    tdm__worker_group_fini(&controller.workers);
    tdm_runtime_stop(controller.runtime);
    tdm__job_spec_fini(&spec);
}

static void update_commits(void)
{
    if (tdm__controller_update(&controller) != TDM_OK) {
        fail_msg("%s", tdm_error_detail());
    }
    controller.phase.committed_version = controller.update.version;
    TRY(tdm__controller_flush(&controller));
}

/* What a rank's spans say about announcements. */
struct counts {
    uint32_t chunks;   /* Number of buckets or chunks that this rank has written. */
    uint32_t gathers;  /* Number of gathers whose result this rank had. */
    uint32_t calls;    /* Number of calls that this rank got with gathered descriptions. */
    uint64_t bytes;    /* Number of bytes that were gathered, or that the calls had. */
    unsigned of_all;   /* Number of collective operations of all trainer ranks. */
    unsigned of_group; /* Number of collective operations of the rank's gather group. */
};

/* Fetches the spans of an actor and counts those of announcements. */
static struct counts counts_of(tdm_actor *actor)
{
    struct counts counts = {.gathers = 0};
    struct tdm__span span;
    const tdm_value *value;
    tdm_ref *ref;

    TRY(tdm_actor_call(actor, "trace", &ref, ""));
    TRY(tdm_get_value(ref, 60000, &value));
    for (uint32_t i = 0; tdm__span_read(value, i, &span) != 0; i++) {
        bool is_gather = strncmp(span.name, "gather bucket", strlen("gather bucket")) == 0;
        unsigned chunk;
        bool is_call = strcmp(span.name, "stage gathered") == 0;

        if (sscanf(span.name, "write bucket %u", &chunk) == 1) {
            counts.chunks = chunk + 1 > counts.chunks ? chunk + 1 : counts.chunks;
        }
        (void)sscanf(span.name, "collectives %u, host %u", &counts.of_all, &counts.of_group);
        counts.gathers += is_gather ? 1 : 0;
        counts.calls += is_call ? 1 : 0;
        counts.bytes += is_gather || is_call ? span.bytes : 0;
    }
    tdm_ref_release(ref);
    return counts;
}

static void every_chunk_is_gathered_once_for_each_engine(void **state)
{
    (void)state;
    for (uint32_t w = 0; w < WAYS; w++) {
        struct counts trainers[RANKS];
        struct counts engines[RANKS];
        uint32_t chunks = 0;

        print_way(&ways[w]);
        open_job(&ways[w], NULL);
        update_commits();
        for (uint32_t i = 0; i < RANKS; i++) {
            trainers[i] = counts_of(controller.workers.trainers[i]);
            engines[i] = counts_of(controller.workers.engines[i]);
            chunks = trainers[i].chunks > chunks ? trainers[i].chunks : chunks;
        }
        for (uint32_t i = 0; i < RANKS; i++) {
            bool calls = i % (RANKS / GROUPS) == 0;

            assert_int_equal(trainers[i].gathers, calls ? chunks : 0);
            assert_int_equal(engines[i].calls, calls ? chunks : 0);
            assert_int_equal(trainers[i].bytes > 0, calls);
            assert_int_equal(engines[i].bytes, trainers[i].bytes);
        }
        if (strcmp(ways[w].mode, "donate") == 0) {
            assert_int_equal(chunks, 1); /* An image is one chunk. */
        } else {
            assert_true(chunks > 1);
        }
        close_job();
    }
}

static void update_has_no_other_collectives_than_agreements_and_gathers(void **state)
{
    (void)state;
    for (uint32_t w = 0; w < WAYS; w++) {
        uint32_t chunks;

        print_way(&ways[w]);
        open_job(&ways[w], NULL);
        update_commits();
        chunks = counts_of(controller.workers.engines[0]).calls;
        assert_true(chunks > 0);
        for (uint32_t i = 0; i < RANKS; i++) {
            struct counts counts = counts_of(controller.workers.trainers[i]);

            assert_int_equal(counts.of_group, 2 * chunks); /* Sizes and announcements. */
            /* One before the first chunk, one for each, one at the end; by names one more for each
             * chunk but the first, whose buckets have one half. */
            assert_int_equal(counts.of_all, ways[w].are_by_name ? 2 * chunks + 1 : chunks + 2);
        }
        close_job();
    }
}

static void create_file(const char *path)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

/* A description that one trainer rank makes. */
struct description {
    const char *failpoint; /* The step at which it is made. */
    uint32_t writer;       /* Number of the rank that makes it. */
    uint32_t engine;       /* The engine that it is for. */
};

/* Changes one byte of a description on its way. The update is refused with the writer's rank, and
 * the same update with right descriptions is committed. */
static void changed_description_is_refused(const struct way *way,
                                           const struct description *description)
{
    char failpoint[128];
    char name[64];

    print_way(way);
    print_message("%s of rank %u for engine %u\n", description->failpoint, description->writer,
                  description->engine);
    (void)unlink(broken_path);
    (void)snprintf(failpoint, sizeof(failpoint), "trainer/%u %s 1 change %s", description->writer,
                   description->failpoint, broken_path);
    (void)snprintf(name, sizeof(name), "what trainer rank %u described", description->writer);
    open_job(way, failpoint);
    assert_int_equal(tdm__controller_update(&controller), TDM_E_CHECKSUM);
    if (strstr(tdm_error_detail(), name) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", tdm_error_detail(), name);
    }
    assert_false(controller.update.committed);
    assert_int_equal(access(broken_path, F_OK), 0);
    TRY(tdm__controller_flush(&controller));
    update_commits();
    close_job();
}

static void changed_description_is_refused_with_its_writer(void **state)
{
    /* The last of its group and the one that calls, in turn; for the own engine, and for the other
     * one. */
    static const struct description descriptions[] = {{"trainer.described", 3, 1},
                                                      {"trainer.described", 2, 1},
                                                      {"trainer.described_for_others", 3, 0},
                                                      {"trainer.described_for_others", 0, 1}};

    (void)state;
    for (uint32_t w = 0; w < WAYS; w++) {
        uint32_t count = sizeof(descriptions) / sizeof(descriptions[0]);

        for (uint32_t i = w % 2; i < count; i += 2) {
            bool crosses = descriptions[i].engine != descriptions[i].writer / 2;

            if (!crosses || (!ways[w].are_by_name && !ways[w].are_full)) {
                changed_description_is_refused(&ways[w], &descriptions[i]);
            }
        }
    }
}

/* Nothing is told to engine 1, so that nothing arrives there. */
/* Nothing is told to engine 1, so that nothing arrives there, and it does not vote. */
static void update_fails_without_the_gather(void **state)
{
    char failpoint[160];

    (void)state;
    (void)snprintf(failpoint, sizeof(failpoint),
                   "trainer/2 trainer.gather_lists 1 skip %s;"
                   "trainer/3 trainer.gather_lists 1 skip %s",
                   broken_path, broken_path);
    for (uint32_t w = 0; w < WAYS; w++) {
        print_way(&ways[w]);
        (void)unlink(broken_path);
        open_job(&ways[w], failpoint);
        assert_int_equal(tdm__controller_update(&controller), TDM_E_STATE);
        if (strstr(tdm_error_detail(), "no bucket of this update has arrived") == NULL) {
            fail_msg("%s: %s", ways[w].mode, tdm_error_detail());
        }
        assert_false(controller.update.committed);
        TRY(tdm__controller_flush(&controller));
        create_file(broken_path); /* From now on they gather. */
        update_commits();
        close_job();
    }
}

/* ---- attached bytes ---------------------------------------------------------------------- */

/* Opens a job of the tiny library whose trainer ranks, except for number `none_on`, attach `bytes`
 * bytes to each bucket of an update of the given mode. */
static void open_attaching_job(const char *mode, int bytes, int none_on)
{
    static const char file[] =
        "job: {name: attached, library: " TDM_TEST_BUILD_DIR "/tests/tiny_job_library.so}\n"
        "cluster: {num_gpus: 4, gpu_bytes: 32 MiB, cpus: 8}\n"
        "trainer: {num_ranks: 4, step_timeout_ms: 60000, attach_bytes: %d,"
        " attach_none_on_rank: %d}\n"
        "engine: {num_engines: 2, rollout_num_gpus_per_engine: 2, attached_log: %s}\n"
        "update: {update_weight_buffer_size: 8 KiB, mode: %s, timeout_ms: 60000}\n"
        "data: {train: none, unseen: none}\n";
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    char text[TEXT_BYTES];
    tdm_runtime *runtime;
    tdm_config *config;

    (void)unlink(attached_path);
    (void)snprintf(text, sizeof(text), file, bytes, none_on, attached_path, mode);
    TRY(tdm_config_parse(text, strlen(text), "job.yaml", &config));
    if (tdm__job_spec_from_config(config, "", &spec) != TDM_OK) {
        fail_msg("%s", tdm_error_detail());
    }
    options.cpus = 16;
    options.gpus = spec.num_gpus;
    options.gpu_bytes = spec.gpu_bytes;
    TRY(tdm_runtime_start(&options, &runtime));
    start_job(runtime);
}

/* Reads the log of the engines: counts the buckets whose bytes a function of the library has got,
 * for each rank. Fails if it got another number of bytes. */
static void read_attached(const char *function, size_t bytes, uint32_t counts[RANKS],
                          uint32_t *buckets_count_out)
{
    FILE *file = fopen(attached_path, "r");
    unsigned rank;
    unsigned bucket;
    size_t size_bytes;
    char found[16];

    memset(counts, 0, RANKS * sizeof(counts[0]));
    assert_non_null(file);
    while (fscanf(file, "%15s %u %u %u %zu", found, &rank, &bucket, buckets_count_out,
                  &size_bytes) == 5) {
        assert_true(rank < RANKS && bucket < *buckets_count_out);
        assert_int_equal(size_bytes, bytes);
        counts[rank] += strcmp(found, function) == 0 ? 1 : 0;
    }
    (void)fclose(file);
}

static void attached_bytes_reach_the_engine_rank_of_the_same_number(void **state)
{
    static const char *const modes[] = {"donate", "copy", "bucket", "names"};

    (void)state;
    for (uint32_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
        uint32_t counts[RANKS];
        uint32_t buckets_count = 0;

        print_message("%s\n", modes[m]);
        open_attaching_job(modes[m], 1000, 2); /* Rank 2 attaches nothing. */
        update_commits();
        /* Each rank gets its own bytes, and the first rank of the engine those of all. */
        for (uint32_t f = 0; f < 2; f++) {
            read_attached(f == 0 ? "attached" : "gathered", 1000, counts, &buckets_count);
            for (uint32_t i = 0; i < RANKS; i++) {
                assert_int_equal(counts[i], i == 2 ? 0 : buckets_count);
            }
        }
        close_job();
    }
}

/* All ranks attach, and the description of rank 3 is refused. Neither its own engine rank nor rank
 * 0 of the engine gets its bytes before the next update. */
static void bytes_of_a_refused_description_do_not_reach_the_library(void **state)
{
    uint32_t counts[RANKS];
    uint32_t buckets_count = 0;
    char failpoint[128];

    (void)state;
    (void)unlink(broken_path);
    (void)snprintf(failpoint, sizeof(failpoint), "trainer/3 trainer.described 1 change %s",
                   broken_path);
    (void)setenv("TANDEM_FAILPOINT", failpoint, 1);
    open_attaching_job("donate", 1000, -1);
    (void)unsetenv("TANDEM_FAILPOINT");
    assert_int_equal(tdm__controller_update(&controller), TDM_E_CHECKSUM);
    assert_int_equal(access(broken_path, F_OK), 0);
    for (uint32_t f = 0; f < 2; f++) {
        read_attached(f == 0 ? "attached" : "gathered", 1000, counts, &buckets_count);
        assert_int_equal(counts[3], 0);
    }
    TRY(tdm__controller_flush(&controller));
    update_commits();
    for (uint32_t f = 0; f < 2; f++) {
        read_attached(f == 0 ? "attached" : "gathered", 1000, counts, &buckets_count);
        assert_int_equal(counts[3], 1);
    }
    close_job();
}

static void too_many_attached_bytes_are_refused_with_both_numbers(void **state)
{
    static const char wanted[] = "attaches 4194305 bytes to a bucket, at most 4194304";
    uint32_t counts[RANKS];
    uint32_t buckets_count = 0;

    (void)state;
    open_attaching_job("copy", TDM_ATTACHED_BYTES_MAX + 1, -1);
    assert_int_equal(tdm__controller_update(&controller), TDM_E_LIMIT);
    if (strstr(tdm_error_detail(), wanted) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", tdm_error_detail(), wanted);
    }
    assert_false(controller.update.committed);
    close_job();
    open_attaching_job("names", TDM_ATTACHED_BYTES_MAX, -1);
    update_commits();
    read_attached("attached", TDM_ATTACHED_BYTES_MAX, counts, &buckets_count);
    assert_int_equal(counts[3], buckets_count);
    close_job();
}

/* ---- two jobs ---------------------------------------------------------------------------- */

/* A member of a gather group with a name that another job might use. */
struct stranger {
    tdm_runtime *runtime;
    const char *name; /* Name of the group. */
    pthread_t thread;
    tdm_status status; /* Whether it has joined. */
};

static void *join_as_another_job(void *arg)
{
    struct stranger *stranger = arg;
    const struct tdm_collective_options options = {
        .name = stranger->name, .rank = 1, .ranks_count = 2, .timeout_ms = 1500};
    tdm_collective_group *group;

    stranger->status = tdm_collective_join(stranger->runtime, &options, &group);
    tdm_collective_leave(group);
    return NULL;
}

/* Starts a second job of the same name and model on the same node: its actors have the same names,
 * and it is refused. */
static void start_the_same_job_again(tdm_runtime *runtime)
{
    static struct tdm__worker_group workers;

    assert_int_equal(tdm__worker_group_start(&workers, runtime, &spec,
                                             &(struct tdm__worker_group_options){.names_ms = 0}),
                     TDM_E_EXISTS);
    tdm__worker_group_fini(&workers);
}

/* Neither the job's name nor its model distinguishes its gather groups from those of another job,
 * or of the same one before a restart. */
static void another_job_does_not_join_the_gather_group(void **state)
{
    struct stranger strangers[] = {
        {.name = "gather/0"}, {.name = "gather/announced/policy/0"}, {.name = "trainers/gather/0"}};
    enum { STRANGERS = sizeof(strangers) / sizeof(strangers[0]) };
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    tdm_runtime *runtime;

    (void)state;
    spec_of(&ways[0]);
    options.cpus = 32;
    options.gpus = 2 * spec.num_gpus;
    options.gpu_bytes = spec.gpu_bytes;
    TRY(tdm_runtime_start(&options, &runtime));
    for (uint32_t i = 0; i < STRANGERS; i++) {
        strangers[i].runtime = runtime;
        assert_int_equal(
            pthread_create(&strangers[i].thread, NULL, join_as_another_job, &strangers[i]), 0);
    }
    start_job(runtime);
    start_the_same_job_again(runtime);
    update_commits();
    for (uint32_t i = 0; i < STRANGERS; i++) {
        assert_int_equal(pthread_join(strangers[i].thread, NULL), 0);
        assert_int_equal(strangers[i].status, TDM_E_TIMEOUT);
    }
    close_job();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(call_to_the_engine_has_what_was_gathered_and_nothing_else),
        cmocka_unit_test(every_chunk_is_gathered_once_for_each_engine),
        cmocka_unit_test(update_has_no_other_collectives_than_agreements_and_gathers),
        cmocka_unit_test(changed_description_is_refused_with_its_writer),
        cmocka_unit_test(update_fails_without_the_gather),
        cmocka_unit_test(attached_bytes_reach_the_engine_rank_of_the_same_number),
        cmocka_unit_test(bytes_of_a_refused_description_do_not_reach_the_library),
        cmocka_unit_test(too_many_attached_bytes_are_refused_with_both_numbers),
        cmocka_unit_test(another_job_does_not_join_the_gather_group),
    };
    FILE *file;
    int failed;

    tdm__worker_run_if_one(); /* In the process of an actor this call does not return. */
    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    (void)snprintf(model_path, sizeof(model_path), "%s/config.json", folder);
    (void)snprintf(broken_path, sizeof(broken_path), "%s/broken", folder);
    (void)snprintf(attached_path, sizeof(attached_path), "%s/attached", folder);
    file = fopen(model_path, "w");
    if (file == NULL || fputs(model, file) < 0 || fclose(file) != 0) {
        return 1;
    }
    (void)setenv("TANDEM_DAEMON", TDM_TEST_BUILD_DIR "/tandemd", 1);
    (void)unsetenv("TANDEM_ADDRESS");
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(model_path);
    (void)unlink(broken_path);
    (void)unlink(attached_path);
    (void)rmdir(folder);
    return failed;
}
