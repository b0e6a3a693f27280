/* model.c - the example's model on a GPU: golden logits, and gradients as on the host. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/network.h"
#include "examples/colocated_rl/random.h"
#include "examples/colocated_rl/tests/support/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Prints one JSON object; exit status 0 if all differences are as small as those of sums of
 * floats in another order, 1 if not.  model FOLDER: that of the golden files. */

enum { GOLDEN_TOKENS = 12, PASS_ROWS = 512, SEQUENCE = 8, PASSES = 20, PATH_BYTES = 512 };

static const double logits_tolerance = 1e-4;   /* of numbers up to 10 */
static const double gradient_tolerance = 1e-4; /* of the gradient's length */

/* The sizes in golden/config.json. */
static const struct model_shape golden_shape = {
    .vocab_size = 15,
    .hidden_size = 16,
    .num_hidden_layers = 2,
    .num_attention_heads = 4,
    .num_key_value_heads = 2,
    .head_dim = 6,
    .intermediate_size = 24,
    .max_position_embeddings = 32,
    .tie_word_embeddings = 1,
    .rope_theta = 5000.0F,
    .rms_norm_eps = 1e-6F,
};

/* The sizes in job.yaml. */
static const struct model_shape job_shape = {
    .vocab_size = 15,
    .hidden_size = 64,
    .num_hidden_layers = 2,
    .num_attention_heads = 8,
    .num_key_value_heads = 4,
    .head_dim = 16,
    .intermediate_size = 192,
    .max_position_embeddings = 64,
    .tie_word_embeddings = 1,
    .rope_theta = 1e4F,
    .rms_norm_eps = 1e-6F,
};

/* A model on a machine; the pointers after the network are places there. */
struct place {
    struct machine *machine;
    struct model model;
    struct network network;
    size_t rows_max;
    float *weights, *values, *cache, *logits, *slopes, *gradients, *scratch;
};

static void must(int good, const char *what)
{
    if (!good) {
        (void)fprintf(stderr, "%s: %s\n", what, tdm_error_detail());
        exit(1);
    }
}

static float *host_floats(size_t count)
{
    float *floats = calloc(count, sizeof(float));

    must(floats != NULL, "memory");
    return floats;
}

static float *floats_of(const struct place *place, size_t count)
{
    return memory_take(place->machine, count * sizeof(float));
}

/* They stay until the program ends. */
static void open_place(struct place *place, const char *machine, const struct model_shape *shape,
                       size_t rows_max)
{
    *place = (struct place){.machine = memory_machine(machine), .rows_max = rows_max};
    must(model_init(&place->model, shape, 1) == TDM_OK, "the model");
    place->network = (struct network){
        .model = &place->model, .rows_max = rows_max, .slots_max = rows_max, .keeps_layers = 1};
    must(network_init(&place->network) == TDM_OK, "the network");
    place->weights = floats_of(place, place->model.elements);
    place->values = floats_of(place, network_values_floats(&place->model, rows_max, 1));
    place->cache = floats_of(place, network_cache_floats(&place->model, rows_max));
    place->logits = floats_of(place, rows_max * shape->vocab_size);
    place->slopes = floats_of(place, rows_max * shape->vocab_size);
    place->gradients = floats_of(place, place->model.elements);
    place->scratch = floats_of(place, network_backward_floats(&place->model, rows_max));
    network_bind_memory(&place->network, place->machine, place->values, place->cache);
    place->network.weights = place->weights;
}

static void close_place(struct place *place)
{
    float *const memory[] = {place->weights, place->values,    place->cache,  place->logits,
                             place->slopes,  place->gradients, place->scratch};

    for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++) {
        memory_give(place->machine, memory[i]);
    }
    network_fini(&place->network);
    model_fini(&place->model);
}

/* ---- against transformers --------------------------------------------------------------- */

static char *read_file(const char *folder, const char *name, size_t *bytes_out)
{
    char path[PATH_BYTES];
    FILE *file;
    char *text;
    long bytes;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "rbe");
    must(file != NULL && fseek(file, 0, SEEK_END) == 0, path);
    bytes = ftell(file);
    must(bytes > 0 && fseek(file, 0, SEEK_SET) == 0, path);
    text = calloc(1, (size_t)bytes + 1);
    must(text != NULL && fread(text, 1, (size_t)bytes, file) == (size_t)bytes, path);
    (void)fclose(file);
    *bytes_out = (size_t)bytes;
    return text;
}

/* Where a tensor's data begins behind the header of our own, known file. */
static size_t offset_of(const char *header, const char *name)
{
    char quoted[PATH_BYTES];
    const char *at;

    (void)snprintf(quoted, sizeof(quoted), "\"%s\"", name);
    at = strstr(header, quoted);
    at = at != NULL ? strstr(at, "data_offsets") : NULL;
    at = at != NULL ? strchr(at, '[') : NULL;
    must(at != NULL, name);
    return strtoul(at + 1, NULL, 10);
}

static void write_golden_weights(const struct place *place, const char *folder)
{
    size_t bytes;
    char *file = read_file(folder, "model.safetensors", &bytes);
    uint64_t header_bytes;

    memcpy(&header_bytes, file, sizeof(header_bytes));
    must(header_bytes < bytes - sizeof(header_bytes), "the header");
    for (uint32_t i = 0; i < place->model.tensors_count; i++) {
        const struct tdm_tensor_info *info = &place->model.tensors[i];
        size_t offset = sizeof(header_bytes) + header_bytes +
                        offset_of(file + sizeof(header_bytes), info->name);

        must(offset + tdm_tensor_bytes(info) <= bytes, info->name);
        memory_write(place->machine, place->weights + place->model.offsets[i], file + offset,
                     tdm_tensor_bytes(info));
    }
    free(file);
}

static void forward(struct place *place, const struct row *rows, size_t count)
{
    must(network_forward(&place->network, rows, count) == TDM_OK, "a pass");
    network_head(&place->network, place->network.hidden, count, place->logits);
}

/* The largest difference of a logit from transformers'. */
static double golden_difference(const char *machine, const char *folder)
{
    struct row rows[GOLDEN_TOKENS] = {{0}};
    size_t count = (size_t)GOLDEN_TOKENS * golden_shape.vocab_size;
    float *logits = host_floats(count);
    size_t bytes;
    char *text = read_file(folder, "logits.txt", &bytes);
    char *at = text;
    double largest = 0.0;
    struct place place;

    for (uint32_t i = 0; i < GOLDEN_TOKENS; i++) {
        rows[i] = (struct row){.token = (int32_t)strtol(at, &at, 10), .slot = i};
    }
    open_place(&place, machine, &golden_shape, GOLDEN_TOKENS);
    write_golden_weights(&place, folder);
    forward(&place, rows, GOLDEN_TOKENS);
    memory_read(place.machine, logits, place.logits, count * sizeof(float));
    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs(strtod(at, &at) - (double)logits[i]));
    }
    close_place(&place);
    free(text);
    free(logits);
    return largest;
}

/* ---- against the host ------------------------------------------------------------------- */

/* Random weights and a full pass of short sequences, and back; returns the host's copy of the
 * gradients.  The same numbers for every machine. */
static float *compute_gradients(struct place *place, const struct row *rows)
{
    size_t elements = place->model.elements;
    size_t slopes_count = place->rows_max * place->model.shape.vocab_size;
    float *weights = host_floats(elements);
    float *slopes = host_floats(slopes_count);

    for (size_t i = 0; i < elements; i++) {
        weights[i] = (float)(0.1 * random_normal(1, i));
    }
    for (size_t i = 0; i < slopes_count; i++) {
        slopes[i] = (float)(0.01 * random_normal(2, i));
    }
    memory_write(place->machine, place->weights, weights, elements * sizeof(float));
    memory_write(place->machine, place->slopes, slopes, slopes_count * sizeof(float));
    forward(place, rows, place->rows_max);
    network_backward(&place->network, place->rows_max, place->slopes, place->gradients,
                     place->scratch);
    memory_read(place->machine, weights, place->gradients, elements * sizeof(float));
    free(slopes);
    return weights;
}

static double distance(const float *a, const float *b, size_t count)
{
    double squares = 0.0;

    for (size_t i = 0; i < count; i++) {
        double difference = (double)a[i] - (b != NULL ? (double)b[i] : 0.0);

        squares += difference * difference;
    }
    return sqrt(squares);
}

/* Milliseconds of a pass there and back, launches and all. */
static double time_passes(struct place *place, const struct row *rows)
{
    struct timespec begin;
    struct timespec end;

    (void)clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < PASSES; i++) {
        forward(place, rows, place->rows_max);
        network_backward(&place->network, place->rows_max, place->slopes, place->gradients,
                         place->scratch);
    }
    must(place->machine->ops->finish(place->machine) == TDM_OK, "the passes");
    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    return ((double)(end.tv_sec - begin.tv_sec) * 1e3 +
            (double)(end.tv_nsec - begin.tv_nsec) / 1e6) /
           PASSES;
}

int main(int count, char **words)
{
    static struct row rows[PASS_ROWS];
    struct place host;
    struct place cuda;
    float *expected;
    float *found;
    float *again;
    double golden;
    double relative;
    int same;

    must(count == 2, "model FOLDER");
    for (uint32_t i = 0; i < PASS_ROWS; i++) {
        rows[i] = (struct row){.token = (int32_t)(random_uniform(3, i) * job_shape.vocab_size),
                               .slot = i,
                               .first = i / SEQUENCE * SEQUENCE};
    }
    golden = golden_difference("cuda", words[1]);
    open_place(&host, "host", &job_shape, PASS_ROWS);
    open_place(&cuda, "cuda", &job_shape, PASS_ROWS);
    expected = compute_gradients(&host, rows);
    found = compute_gradients(&cuda, rows);
    relative = distance(found, expected, host.model.elements) /
               distance(expected, NULL, host.model.elements);
    cuda.machine->ops->zero(cuda.machine,
                            &(const struct filling){cuda.gradients, cuda.model.elements});
    again = compute_gradients(&cuda, rows);
    same = memcmp(found, again, cuda.model.elements * sizeof(float)) == 0;
    (void)printf("{\"golden_difference\":%.3g,\"golden_difference_host\":%.3g,"
                 "\"gradient_difference\":%.3g,\"gradients_repeat\":%s,"
                 "\"ms_pass_of_%d_rows\":%.3f}\n",
                 golden, golden_difference("host", words[1]), relative, same ? "true" : "false",
                 PASS_ROWS, time_passes(&cuda, rows));
    close_place(&host);
    close_place(&cuda);
    free(expected);
    free(found);
    free(again);
    return golden < logits_tolerance && relative < gradient_tolerance && same ? 0 : 1;
}
