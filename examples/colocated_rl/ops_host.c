/* ops_host.c - the arithmetic of a transformer on the processor. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The host machine. Its operations run at once, in one thread, on the memory of regions of the
 * device "host". Matrix products use OpenBLAS with one thread, because ranks share the cores
 * already and the order of sums must not depend on the number of threads. Results are the same in
 * every run. */
#include "examples/colocated_rl/ops.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

/* ---- copying ---------------------------------------------------------------------------- */

static void host_close(struct machine *machine)
{
    (void)machine;
}

/* Copies memory; read() and write() are the same on the host. */
static tdm_status host_move(struct machine *machine, void *to, const void *from, size_t size_bytes)
{
    (void)machine;
    memcpy(to, from, size_bytes);
    return TDM_OK;
}

static tdm_status host_finish(struct machine *machine)
{
    (void)machine;
    return TDM_OK;
}

static tdm_status host_all_reduce(struct machine *machine, tdm_collective_group *group, float *data,
                                  size_t count)
{
    (void)machine;
    return tdm_collective_all_reduce(group, data, count, TDM_SUM);
}

static tdm_status host_all_gather(struct machine *machine, tdm_collective_group *group,
                                  const float *in, size_t count, float *out)
{
    (void)machine;
    return tdm_collective_all_gather(group, in, count * sizeof(float), out);
}

static tdm_status host_reduce_scatter(struct machine *machine, tdm_collective_group *group,
                                      const float *in, size_t count, float *out)
{
    (void)machine;
    return tdm_collective_reduce_scatter(group, in, count, out);
}

/* Copies rows, by slot if the rows are given. */
static void host_transfer(struct machine *machine, const struct transfer *work)
{
    (void)machine;
    for (size_t i = 0; i < work->count; i++) {
        size_t place = work->rows != NULL ? work->rows[i].slot : i;

        memcpy(work->to + place * work->to_pitch, work->from + i * work->from_pitch,
               work->width * sizeof(float));
    }
}

/* ---- vectors ---------------------------------------------------------------------------- */

static float dot(const float *a, const float *b, size_t count)
{
    float sum = 0.0F;

#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < count; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* Computes y += scale · x. */
static void add_scaled(float *y, float scale, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        y[i] += scale * x[i];
    }
}

/* Computes y += x. */
static void add(float *y, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        y[i] += x[i];
    }
}

static void host_zero(struct machine *machine, const struct filling *work)
{
    (void)machine;
    memset(work->to, 0, work->count * sizeof(float));
}

static void host_add(struct machine *machine, const struct sum *work)
{
    (void)machine;
    add(work->to, work->from, work->count);
}

static void host_scale(struct machine *machine, const struct scaling *work)
{
    (void)machine;
    for (size_t i = 0; i < work->count; i++) {
        work->values[i] *= work->factor;
    }
}

static tdm_status host_squares(struct machine *machine, const float *values, size_t count,
                               double *sum_out)
{
    double squares = 0.0;

    (void)machine;
    for (size_t i = 0; i < count; i++) {
        squares += (double)values[i] * (double)values[i];
    }
    *sum_out = squares;
    return TDM_OK;
}

/* ---- matrices --------------------------------------------------------------------------- */

static void host_linear(struct machine *machine, const struct product *work)
{
    int rows = (int)work->rows;
    int inputs = (int)work->inputs;
    int outputs = (int)work->outputs;

    (void)machine;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, outputs, inputs, 1.0F, work->a,
                inputs, work->b, inputs, 0.0F, work->to, outputs);
}

static void host_linear_back_input(struct machine *machine, const struct product *work)
{
    int rows = (int)work->rows;
    int inputs = (int)work->inputs;
    int outputs = (int)work->outputs;

    (void)machine;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, inputs, outputs, 1.0F, work->a,
                outputs, work->b, inputs, 0.0F, work->to, inputs);
}

static void host_linear_back_weight(struct machine *machine, const struct product *work)
{
    int rows = (int)work->rows;
    int inputs = (int)work->inputs;
    int outputs = (int)work->outputs;

    (void)machine;
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, outputs, inputs, rows, 1.0F, work->a,
                outputs, work->b, inputs, 1.0F, work->to, inputs);
}

/* ---- embedding -------------------------------------------------------------------------- */

static void host_embed(struct machine *machine, const struct embedding *work)
{
    (void)machine;
    for (size_t i = 0; i < work->count; i++) {
        memcpy(work->values + i * work->width,
               work->table + (size_t)work->rows[i].token * work->width,
               work->width * sizeof(float));
    }
}

static void host_embed_back(struct machine *machine, const struct embedding_back *work)
{
    (void)machine;
    for (size_t i = 0; i < work->count; i++) {
        add(work->dtable + (size_t)work->rows[i].token * work->width,
            work->dvalues + i * work->width, work->width);
    }
}

/* ---- norms ------------------------------------------------------------------------------ */

/* Returns 1 / sqrt(mean(x²) + epsilon). */
static float inverse_rms(const struct rms_norm *norm, const float *x)
{
    return 1.0F / sqrtf(dot(x, x, norm->width) / (float)norm->width + norm->epsilon);
}

static void norm_vector(const struct rms_norm *norm, float *y, const float *x)
{
    const float *weights = norm->weights;
    float inverse = inverse_rms(norm, x);

    for (size_t i = 0; i < norm->width; i++) {
        y[i] = weights[i] * (x[i] * inverse);
    }
}

static void host_norm(struct machine *machine, const struct norm *work)
{
    size_t width = work->norm.width;

    (void)machine;
    for (size_t i = 0; i < work->count; i++) {
        size_t place = work->rows != NULL ? work->rows[i].slot : i;

        for (size_t head = 0; head < work->heads; head++) {
            norm_vector(&work->norm, work->y + place * work->y_pitch + head * width,
                        work->x + i * work->x_pitch + head * width);
        }
    }
}

/* Backward through one vector's norm. */
static void norm_vector_back(const struct norm_back *work, float *dx, const float *dy,
                             const float *x)
{
    const float *weights = work->norm.weights;
    size_t width = work->norm.width;
    float inverse = inverse_rms(&work->norm, x);
    float along = 0.0F; /* Component of the gradient along x, which the norm removes. */

#pragma omp simd reduction(+ : along)
    for (size_t i = 0; i < width; i++) {
        along += weights[i] * dy[i] * x[i];
    }
    along *= inverse * inverse / (float)width;
    for (size_t i = 0; i < width; i++) {
        float gradient = dy[i];

        work->dweights[i] += gradient * x[i] * inverse;
        dx[i] = inverse * (weights[i] * gradient - along * x[i]);
    }
}

static void host_norm_back(struct machine *machine, const struct norm_back *work)
{
    size_t width = work->norm.width;

    (void)machine;
    for (size_t i = 0; i < work->count; i++) {
        for (size_t head = 0; head < work->heads; head++) {
            norm_vector_back(work, work->dx + i * work->dx_pitch + head * width,
                             work->dy + (i * work->heads + head) * width,
                             work->x + i * work->x_pitch + head * width);
        }
    }
}

size_t norm_scratch_floats(size_t vectors, size_t width)
{
    return vectors + (vectors + NORM_VECTORS - 1) / NORM_VECTORS * width;
}

/* ---- rotations -------------------------------------------------------------------------- */

/* Rotates one head. cosine[0 … half) are cosines, followed by as many sines. */
static void rotate_head(float *head, const float *cosine, size_t half)
{
    const float *sine = cosine + half;

    for (size_t i = 0; i < half; i++) {
        float low = head[i];
        float high = head[i + half];

        head[i] = low * cosine[i] - high * sine[i];
        head[i + half] = high * cosine[i] + low * sine[i];
    }
}

/* Rotates one head in the opposite direction. */
static void rotate_head_back(float *head, const float *cosine, size_t half)
{
    const float *sine = cosine + half;

    for (size_t i = 0; i < half; i++) {
        float low = head[i];
        float high = head[i + half];

        head[i] = low * cosine[i] + high * sine[i];
        head[i + half] = high * cosine[i] - low * sine[i];
    }
}

static void host_rotate(struct machine *machine, const struct rotation *work)
{
    void (*turn)(float *, const float *, size_t) = work->back ? rotate_head_back : rotate_head;

    (void)machine;
    for (size_t i = 0; i < work->count; i++) {
        const struct row *row = &work->rows[i];
        float *heads = work->values + (work->by_slot ? row->slot : i) * work->pitch;
        const float *cosine = work->rotations + (row_context(row) - 1) * work->width;

        for (size_t head = 0; head < work->heads; head++) {
            turn(heads + head * work->width, cosine, work->width / 2);
        }
    }
}

/* ---- attention -------------------------------------------------------------------------- */

/* Computes the attention of one head of one row. Returns the logarithm of the sum of the
 * exponentials of the scores. */
static float attend_head(const struct attention *work, const struct row *row, const float *query,
                         size_t key_head, float *out)
{
    const float *keys = work->keys + key_head * work->width;
    const float *values = work->values + key_head * work->width;
    size_t width = work->width;
    size_t stride = work->key_heads * width;
    size_t context = row_context(row);
    float scale = 1.0F / sqrtf((float)width);
    float *scores = work->scores;
    float largest = -INFINITY;
    float sum = 0.0F;

    for (size_t i = 0; i < context; i++) {
        scores[i] = scale * dot(query, keys + row_slot(row, i) * stride, width);
        largest = scores[i] > largest ? scores[i] : largest;
    }
    for (size_t i = 0; i < context; i++) {
        scores[i] = expf(scores[i] - largest);
        sum += scores[i];
    }
    memset(out, 0, width * sizeof(float));
    for (size_t i = 0; i < context; i++) {
        add_scaled(out, scores[i] / sum, values + row_slot(row, i) * stride, width);
    }
    return largest + logf(sum);
}

static void host_attend(struct machine *machine, const struct attention *work)
{
    (void)machine;
    for (size_t i = 0; i < work->count; i++) {
        for (size_t head = 0; head < work->heads; head++) {
            size_t at = i * work->heads + head;

            work->log_sums[at] = attend_head(work, &work->rows[i], work->queries + at * work->width,
                                             head * work->key_heads / work->heads,
                                             work->attended + at * work->width);
        }
    }
}

/* Backward through the attention of one head of one row. `at` is the index of the head among the
 * heads of all rows, `key_head` that of its key and value. */
static void attend_head_back(const struct attention_back *work, const struct row *row, size_t at,
                             size_t key_head)
{
    const struct attention *forward = &work->forward;
    size_t width = forward->width;
    size_t stride = forward->key_heads * width;
    const float *query = forward->queries + at * width;
    const float *gradient = work->gradient + at * width;
    float *dquery = work->dqueries + at * width;
    float scale = 1.0F / sqrtf((float)width);
    /* The part of the gradient that the softmax subtracts from each score. */
    float through = dot(gradient, forward->attended + at * width, width);
    size_t context = row_context(row);

    memset(dquery, 0, width * sizeof(float));
    for (size_t i = 0; i < context; i++) {
        size_t slot = row_slot(row, i) * stride + key_head * width;
        const float *key = forward->keys + slot;
        const float *value = forward->values + slot;
        float share = expf(scale * dot(query, key, width) - forward->log_sums[at]);
        float score = scale * share * (dot(gradient, value, width) - through);

        add_scaled(dquery, score, key, width);
        add_scaled(work->dkeys + slot, score, query, width);
        add_scaled(work->dvalues + slot, share, gradient, width);
    }
}

static void host_attend_back(struct machine *machine, const struct attention_back *work)
{
    const struct attention *forward = &work->forward;
    size_t cache_bytes = forward->count * forward->key_heads * forward->width * sizeof(float);

    (void)machine;
    memset(work->dkeys, 0, cache_bytes);
    memset(work->dvalues, 0, cache_bytes);
    for (size_t i = 0; i < forward->count; i++) {
        for (size_t head = 0; head < forward->heads; head++) {
            attend_head_back(work, &forward->rows[i], i * forward->heads + head,
                             head * forward->key_heads / forward->heads);
        }
    }
}

/* ---- element-wise operations ------------------------------------------------------------ */

static float sigmoid(float x)
{
    return 1.0F / (1.0F + expf(-x));
}

static void host_swiglu(struct machine *machine, const struct swiglu *work)
{
    (void)machine;
    for (size_t row = 0; row < work->count; row++) {
        const float *gate = work->gate_up + row * 2 * work->width;
        const float *up = gate + work->width;
        float *y = work->y + row * work->width;

        for (size_t i = 0; i < work->width; i++) {
            y[i] = gate[i] * sigmoid(gate[i]) * up[i];
        }
    }
}

static void host_swiglu_back(struct machine *machine, const struct swiglu_back *work)
{
    (void)machine;
    for (size_t row = 0; row < work->count; row++) {
        const float *gate = work->gate_up + row * 2 * work->width;
        const float *up = gate + work->width;
        const float *dy = work->dy + row * work->width;
        float *dgate = work->dgate_up + row * 2 * work->width;
        float *dup = dgate + work->width;

        for (size_t i = 0; i < work->width; i++) {
            float open = sigmoid(gate[i]);

            dgate[i] = dy[i] * up[i] * open * (1.0F + gate[i] * (1.0F - open));
            dup[i] = dy[i] * gate[i] * open;
        }
    }
}

static void log_softmax_vector(float *x, size_t count, float scale)
{
    float largest = x[0];
    double sum = 0.0;
    float shift;

    for (size_t i = 1; i < count; i++) {
        largest = x[i] > largest ? x[i] : largest;
    }
    for (size_t i = 0; i < count; i++) {
        sum += (double)expf(scale * (x[i] - largest));
    }
    shift = (float)log(sum);
    for (size_t i = 0; i < count; i++) {
        x[i] = scale * (x[i] - largest) - shift;
    }
}

static void host_log_softmax(struct machine *machine, const struct log_softmax *work)
{
    (void)machine;
    for (size_t row = 0; row < work->count; row++) {
        log_softmax_vector(work->x + row * work->width, work->width, work->scale);
    }
}

/* ---- learning --------------------------------------------------------------------------- */

static void host_choose(struct machine *machine, const struct choice *work)
{
    (void)machine;
    for (size_t i = 0; i < work->targets_count; i++) {
        const struct target *target = &work->targets[i];

        work->chosen[i] = work->logprobs[target->row * work->width + (size_t)target->token];
    }
}

static void host_spread(struct machine *machine, const struct spreading *work)
{
    (void)machine;
    memset(work->gradients, 0, work->count * work->width * sizeof(float));
    for (size_t i = 0; i < work->targets_count; i++) {
        const struct target *target = &work->targets[i];
        const float *logprobs = work->logprobs + target->row * work->width;
        float *gradients = work->gradients + target->row * work->width;
        float slope = work->slopes[i];

        for (size_t token = 0; token < work->width && slope != 0.0F; token++) {
            gradients[token] -= slope * expf(logprobs[token]);
        }
        gradients[target->token] += slope;
    }
}

static void host_adam(struct machine *machine, const struct adam *work)
{
    (void)machine;
    for (size_t i = 0; i < work->count; i++) {
        float gradient = work->scale * work->gradients[i];
        float mean = work->beta1 * work->mean[i] + (1.0F - work->beta1) * gradient;
        float square = work->beta2 * work->square[i] + (1.0F - work->beta2) * gradient * gradient;

        work->mean[i] = mean;
        work->square[i] = square;
        work->parameters[i] -= work->stride * mean / (sqrtf(square) * work->widen + work->eps);
    }
}

static const struct ops host_ops = {
    .name = "host",
    .computes_on_host = 1,
    .close = host_close,
    .write = host_move,
    .read = host_move,
    .finish = host_finish,
    .all_reduce = host_all_reduce,
    .all_gather = host_all_gather,
    .reduce_scatter = host_reduce_scatter,
    .transfer = host_transfer,
    .zero = host_zero,
    .add = host_add,
    .scale = host_scale,
    .squares = host_squares,
    .linear = host_linear,
    .linear_back_input = host_linear_back_input,
    .linear_back_weight = host_linear_back_weight,
    .embed = host_embed,
    .embed_back = host_embed_back,
    .norm = host_norm,
    .norm_back = host_norm_back,
    .rotate = host_rotate,
    .attend = host_attend,
    .attend_back = host_attend_back,
    .swiglu = host_swiglu,
    .swiglu_back = host_swiglu_back,
    .log_softmax = host_log_softmax,
    .choose = host_choose,
    .spread = host_spread,
    .adam = host_adam,
};

/* OpenBLAS uses one thread for every product, because the ranks share the cores already and the
 * order of sums must not depend on the number of threads. */
struct machine *machine_host(void)
{
    static struct machine host = {&host_ops};

    openblas_set_num_threads(1);
    return &host;
}
