/* memory_budget.c - computes how much GPU and host memory a job needs in each phase and
 * transition. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Each phase and each transition between phases is described by two instants: what every trainer
 * rank and what every engine rank has resident at that instant. In a phase both instants are
 * equal. In a transition the side that pauses has freed its memory before the other side
 * resumes, so the two instants are never added. The budget of a phase is the maximum over its
 * instants, for each GPU and for the host.
 * The functions are pure and may run on any thread. The table `moments` is the specification;
 * docs/job-file.md explains its output. */
#include "colocate/job/memory_budget.h"

#include "runtime/error.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* What a rank has resident at an instant. */
enum resident_set {
    /* The rank is paused. */
    NOTHING,
    /* All regions. */
    ALL,
    /* An engine's served weights. */
    WEIGHTS,
    /* An engine's served weights and the shadow copy that the update fills. */
    WEIGHTS_SHADOW,
    /* A trainer's staging bucket. */
    BUCKET,
    /* All regions and the staging bucket of a trainer that never pauses. */
    ALL_BUCKET,
    /* All regions, the shadow copy and the receiving bucket of an engine that never pauses. */
    ALL_SHADOW_BUCKET
};

/* What all trainer ranks and all engine ranks have resident at one instant. */
struct budget_instant {
    /* Resident set of each trainer rank. */
    enum resident_set trainer;
    /* Resident set of each engine rank. */
    enum resident_set engine;
};

/* Occupancy of each phase and transition, by enum tdm__budget_phase. */
static const struct phase_occupancy {
    /* Name for output. */
    const char *name;
    /* The two instants whose maximum is the occupancy; equal in a phase, different in a
     * transition. */
    struct budget_instant instants[2];
} moments[TDM__BUDGET_PHASES_COUNT] = {
    [TDM__BUDGET_ROLLOUT] = {"ROLLOUT", {{NOTHING, ALL}, {NOTHING, ALL}}},
    [TDM__BUDGET_ROLLOUT_TO_TRAIN] = {"edge ROLLOUT→TRAIN", {{NOTHING, ALL}, {ALL, NOTHING}}},
    [TDM__BUDGET_TRAIN] = {"TRAIN", {{ALL, NOTHING}, {ALL, NOTHING}}},
    [TDM__BUDGET_TRAIN_TO_UPDATE] = {"edge TRAIN→UPDATE", {{ALL, NOTHING}, {NOTHING, WEIGHTS}}},
    [TDM__BUDGET_UPDATE] = {"UPDATE", {{BUCKET, WEIGHTS_SHADOW}, {BUCKET, WEIGHTS_SHADOW}}},
    [TDM__BUDGET_UPDATE_TO_ROLLOUT] = {"edge UPDATE→ROLLOUT",
                                       {{BUCKET, WEIGHTS_SHADOW}, {NOTHING, ALL}}},
};

/* Instants of a job whose engines have GPUs of their own, where no rank pauses: the second one
 * while an update is in progress. */
static const struct budget_instant remote_instant = {ALL, ALL};
static const struct budget_instant remote_update = {ALL_BUCKET, ALL_SHADOW_BUCKET};

const char *tdm__budget_phase_name(enum tdm__budget_phase phase)
{
    return moments[phase].name;
}

/* Rounds a size up to whole memory blocks. */
static uint64_t whole_blocks(uint64_t size_bytes)
{
    return (size_bytes + TDM__BLOCK_BYTES_UNIT - 1) / TDM__BLOCK_BYTES_UNIT * TDM__BLOCK_BYTES_UNIT;
}

/* Returns the size in bytes of the rank's regions with this tag, or of all regions if `tag` is
 * NULL, each rounded up to whole blocks. */
static uint64_t regions_bytes(const struct tdm__memory_budget_rank *rank, const char *tag)
{
    uint64_t size_bytes = 0;

    for (uint32_t i = 0; i < rank->regions_count; i++) {
        if (tag == NULL || strcmp(rank->regions[i].tag, tag) == 0) {
            size_bytes += whole_blocks(rank->regions[i].size_bytes);
        }
    }
    return size_bytes;
}

/* Returns true if the library allocates the memory itself. */
static bool is_outside(const struct tdm_region_spec *region)
{
    return region->policy >= TDM_REGION_OUTSIDE_KEEP;
}

/* Returns the size in bytes of the engine's region "weights", which updates write, in whole blocks.
 * Outside memory may have the same tag, and is resident together with it. */
static uint64_t updated_bytes(const struct tdm__memory_budget_rank *rank)
{
    uint64_t size_bytes = 0;

    for (uint32_t i = 0; i < rank->regions_count; i++) {
        if (strcmp(rank->regions[i].tag, "weights") == 0 && !is_outside(&rank->regions[i])) {
            size_bytes += whole_blocks(rank->regions[i].size_bytes);
        }
    }
    return size_bytes;
}

/* Returns the size of a staging bucket; 0 if the job sends no updates. */
static uint64_t bucket_bytes(const struct tdm__memory_budget_input *input)
{
    return input->update_enabled ? whole_blocks(input->bucket_bytes) : 0;
}

/* Returns the size of an engine's shadow copy; 0 if the job needs none. */
static uint64_t shadow_bytes(const struct tdm__memory_budget_input *input,
                             const struct tdm__memory_budget_rank *rank)
{
    return input->update_enabled && !input->updates_overwrite ? updated_bytes(rank) : 0;
}

/* Returns the bytes of GPU memory that the rank has in the given resident set. */
static uint64_t resident_bytes(const struct tdm__memory_budget_input *input,
                               const struct tdm__memory_budget_rank *rank,
                               enum resident_set holding)
{
    switch (holding) {
    case NOTHING:
        return 0;
    case ALL:
        return regions_bytes(rank, NULL);
    case WEIGHTS:
        return regions_bytes(rank, "weights");
    case WEIGHTS_SHADOW:
        return regions_bytes(rank, "weights") + shadow_bytes(input, rank);
    case BUCKET:
        return bucket_bytes(input);
    case ALL_BUCKET:
        return regions_bytes(rank, NULL) + bucket_bytes(input);
    case ALL_SHADOW_BUCKET:
        return regions_bytes(rank, NULL) + bucket_bytes(input) + shadow_bytes(input, rank);
    }
    return 0;
}

/* Returns the bytes of host memory for copies of the rank's KEEP regions that are not in the
 * resident set `holding`. */
static uint64_t host_copy_bytes(const struct tdm__memory_budget_rank *rank,
                                enum resident_set holding)
{
    uint64_t size_bytes = 0;

    for (uint32_t i = 0; i < rank->regions_count; i++) {
        const struct tdm_region_spec *region = &rank->regions[i];
        bool resident = holding == ALL || holding == ALL_BUCKET || holding == ALL_SHADOW_BUCKET ||
                        ((holding == WEIGHTS || holding == WEIGHTS_SHADOW) &&
                         strcmp(region->tag, "weights") == 0);

        if (!resident &&
            (region->policy == TDM_REGION_KEEP || region->policy == TDM_REGION_OUTSIDE_KEEP)) {
            size_bytes += whole_blocks(region->size_bytes);
        }
    }
    return size_bytes;
}

/* Returns the greater number. */
static uint64_t max_bytes(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Adds up all ranks at one instant and raises the maxima of the phase. */
static void add_instant(const struct tdm__memory_budget_input *input, enum tdm__budget_phase phase,
                        const struct budget_instant *instant, struct tdm__memory_budget *plan)
{
    struct tdm__memory_budget_usage now[TDM__JOB_GPUS_MAX] = {{0, 0, 0}};
    uint64_t host_bytes = 0;

    for (uint32_t i = 0; i < input->ranks_count; i++) {
        const struct tdm__memory_budget_rank *rank = &input->ranks[i];
        enum resident_set holding = rank->is_engine ? instant->engine : instant->trainer;
        uint64_t size_bytes = resident_bytes(input, rank, holding);

        if (rank->is_engine) {
            now[rank->gpu].engine_bytes += size_bytes;
        } else {
            now[rank->gpu].trainer_bytes += size_bytes;
        }
        host_bytes += host_copy_bytes(rank, holding);
    }
    for (uint32_t gpu = 0; gpu < input->gpus_count; gpu++) {
        struct tdm__memory_budget_usage *use = &plan->gpus[phase][gpu];

        use->trainer_bytes = max_bytes(use->trainer_bytes, now[gpu].trainer_bytes);
        use->engine_bytes = max_bytes(use->engine_bytes, now[gpu].engine_bytes);
        use->peak_bytes =
            max_bytes(use->peak_bytes, now[gpu].trainer_bytes + now[gpu].engine_bytes);
    }
    plan->host_bytes[phase] = max_bytes(plan->host_bytes[phase], host_bytes);
}

/* Computes the maxima of one phase or transition over its instants. */
static void add_phase(const struct tdm__memory_budget_input *input, enum tdm__budget_phase phase,
                      struct tdm__memory_budget *plan)
{
    bool updates = phase == TDM__BUDGET_UPDATE || phase == TDM__BUDGET_UPDATE_TO_ROLLOUT;

    if (input->engines_are_remote) {
        add_instant(input, phase, updates ? &remote_update : &remote_instant, plan);
        return;
    }
    add_instant(input, phase, &moments[phase].instants[0], plan);
    add_instant(input, phase, &moments[phase].instants[1], plan);
}

/* Checks GPU, number of regions, tags and sizes of one rank. */
static tdm_status check_rank(const struct tdm__memory_budget_input *input,
                             const struct tdm__memory_budget_rank *rank)
{
    if (rank->gpu >= input->gpus_count || rank->regions_count > TDM_RANK_REGIONS_MAX) {
        return tdm__fail(TDM_E_INVAL, "%s: GPU %u of %u, %u regions of at most %d", rank->name,
                         rank->gpu, input->gpus_count, rank->regions_count, TDM_RANK_REGIONS_MAX);
    }
    for (uint32_t i = 0; i < rank->regions_count; i++) {
        const struct tdm_region_spec *region = &rank->regions[i];

        if (region->tag == NULL || region->tag[0] == '\0' ||
            strnlen(region->tag, TDM_REGION_TAG_BYTES_MAX) == TDM_REGION_TAG_BYTES_MAX) {
            return tdm__fail(TDM_E_INVAL, "%s: region %u: a tag has 1 to %d bytes", rank->name, i,
                             TDM_REGION_TAG_BYTES_MAX - 1);
        }
        if (region->size_bytes == 0 || region->size_bytes > 1ULL << 48) {
            return tdm__fail(TDM_E_INVAL, "%s: region %s of %zu bytes", rank->name, region->tag,
                             region->size_bytes);
        }
    }
    if (!rank->is_engine || updated_bytes(rank) > 0) {
        return TDM_OK;
    }
    return regions_bytes(rank, "weights") > 0
               ? tdm__fail(TDM_E_INVAL,
                           "%s: the region \"weights\" is outside memory, which updates cannot "
                           "write",
                           rank->name)
               : tdm__fail(TDM_E_INVAL, "%s declares no region \"weights\"", rank->name);
}

/* Checks the numbers of GPUs and ranks, and every rank. */
static tdm_status check_input(const struct tdm__memory_budget_input *input)
{
    if (input->gpus_count == 0 || input->gpus_count > TDM__JOB_GPUS_MAX ||
        input->ranks_count > TDM__JOB_RANKS_MAX) {
        return tdm__fail(TDM_E_INVAL, "%u GPUs of at most %d, %u ranks of at most %d",
                         input->gpus_count, TDM__JOB_GPUS_MAX, input->ranks_count,
                         TDM__JOB_RANKS_MAX);
    }
    for (uint32_t i = 0; i < input->ranks_count; i++) {
        TDM_TRY(check_rank(input, &input->ranks[i]));
    }
    return TDM_OK;
}

/* Converts bytes to MiB. */
static double to_mib(uint64_t size_bytes)
{
    return (double)size_bytes / (1 << 20);
}

/* Returns what the user can change if this phase does not fit. */
static const char *budget_remedy(enum tdm__budget_phase phase,
                                 const struct tdm__memory_budget_usage *use)
{
    if (phase == TDM__BUDGET_UPDATE) {
        return "lower update.update_weight_buffer_size or the model, set update.mode to bucket, or "
               "raise cluster.gpu_bytes";
    }
    return use->trainer_bytes > use->engine_bytes
               ? "lower the trainer's regions (batch, model), or raise cluster.gpu_bytes"
               : "lower the engine's regions (kv_cache, model), or raise cluster.gpu_bytes";
}

/* Finds the tightest phase and GPU. Fails with TDM_E_BUDGET if it does not fit. */
static tdm_status check_device_fits(struct tdm__memory_budget *plan)
{
    const struct tdm__memory_budget_usage *worst = NULL;

    for (uint32_t phase = 0; phase < TDM__BUDGET_PHASES_COUNT; phase++) {
        for (uint32_t gpu = 0; gpu < plan->gpus_count; gpu++) {
            const struct tdm__memory_budget_usage *use = &plan->gpus[phase][gpu];
            bool is_phase = phase % 2 == 0;

            if (worst == NULL || use->peak_bytes > worst->peak_bytes ||
                (use->peak_bytes == worst->peak_bytes && is_phase &&
                 plan->tightest_phase % 2 == 1)) {
                worst = use;
                plan->tightest_phase = (enum tdm__budget_phase)phase;
                plan->tightest_gpu = gpu;
            }
        }
    }
    if (worst->peak_bytes <= plan->gpu_bytes) {
        plan->tightest_free_bytes = plan->gpu_bytes - worst->peak_bytes;
        return TDM_OK;
    }
    return tdm__fail(TDM_E_BUDGET,
                     "%s on GPU %u: %.1f MiB wanted (trainer %.1f, engine %.1f), %.1f MiB "
                     "there; %s",
                     tdm__budget_phase_name(plan->tightest_phase), plan->tightest_gpu,
                     to_mib(worst->peak_bytes), to_mib(worst->trainer_bytes),
                     to_mib(worst->engine_bytes), to_mib(plan->gpu_bytes),
                     budget_remedy(plan->tightest_phase, worst));
}

/* Fails with TDM_E_BUDGET if the host copies of a phase do not fit. */
static tdm_status check_host_fits(const struct tdm__memory_budget_input *input,
                                  const struct tdm__memory_budget *plan)
{
    for (uint32_t phase = 0; phase < TDM__BUDGET_PHASES_COUNT && input->host_bytes > 0; phase++) {
        if (plan->host_bytes[phase] > input->host_bytes) {
            return tdm__fail(TDM_E_BUDGET,
                             "%s in host memory: %.1f MiB wanted for copies of paused regions, "
                             "%.1f MiB there; declare fewer regions TDM_REGION_KEEP",
                             tdm__budget_phase_name((enum tdm__budget_phase)phase),
                             to_mib(plan->host_bytes[phase]), to_mib(input->host_bytes));
        }
    }
    return TDM_OK;
}

tdm_status tdm__memory_budget_compute(const struct tdm__memory_budget_input *input,
                                      struct tdm__memory_budget *plan_out)
{
    memset(plan_out, 0, sizeof(*plan_out));
    TDM_TRY(check_input(input));
    plan_out->gpus_count = input->gpus_count;
    plan_out->gpu_bytes = input->gpu_bytes;
    for (uint32_t phase = 0; phase < TDM__BUDGET_PHASES_COUNT; phase++) {
        add_phase(input, (enum tdm__budget_phase)phase, plan_out);
    }
    TDM_TRY(check_device_fits(plan_out));
    return check_host_fits(input, plan_out);
}

/* ---- printing --------------------------------------------------------------------------- */

/* Widths of the printed columns in characters, and the size of the buffer for joined names in
 * bytes. */
enum { NAME_COLUMNS = 22, COLUMN = 16, NAMES_BYTES = 128 };

/* Joins the names of the trainer or engine ranks on a GPU, for example "trainer/0 + trainer/1";
 * "-" if the GPU has no such rank. */
static void join_names(const struct tdm__memory_budget_input *input, uint32_t gpu, bool engines,
                       char names[NAMES_BYTES])
{
    size_t used = 0;

    (void)snprintf(names, NAMES_BYTES, "-");
    for (uint32_t i = 0; i < input->ranks_count; i++) {
        const struct tdm__memory_budget_rank *rank = &input->ranks[i];

        if (rank->gpu == gpu && rank->is_engine == engines && used + 40 < NAMES_BYTES) {
            used += (size_t)snprintf(names + used, NAMES_BYTES - used, "%s%s",
                                     used > 0 ? " + " : "", rank->name);
        }
    }
}

/* Prints a name padded to a number of characters, not bytes: arrows in names have three bytes. */
static void print_name(const char *name, FILE *stream)
{
    int columns = 0;

    for (const char *c = name; *c != '\0'; c++) {
        columns += ((unsigned char)*c & 0xc0) != 0x80;
    }
    (void)fprintf(stream, "  %s%*s", name, NAME_COLUMNS - columns, "");
}

/* Prints the table of one GPU. */
static void print_gpu(const struct tdm__memory_budget *plan,
                      const struct tdm__memory_budget_input *input, uint32_t gpu, FILE *stream)
{
    char trainers[NAMES_BYTES];
    char engines[NAMES_BYTES];
    char title[40];

    join_names(input, gpu, false, trainers);
    join_names(input, gpu, true, engines);
    (void)snprintf(title, sizeof(title), "GPU %u (%.0f MiB)", gpu, to_mib(plan->gpu_bytes));
    (void)fprintf(stream, "%-*s%*s%*s%*s\n", NAME_COLUMNS + 2, title, COLUMN, trainers, COLUMN,
                  engines, COLUMN, "free MiB");
    for (uint32_t phase = 0; phase < TDM__BUDGET_PHASES_COUNT; phase++) {
        const struct tdm__memory_budget_usage *use = &plan->gpus[phase][gpu];

        print_name(moments[phase].name, stream);
        (void)fprintf(stream, "%*.1f%*.1f%*.1f\n", COLUMN, to_mib(use->trainer_bytes), COLUMN,
                      to_mib(use->engine_bytes), COLUMN,
                      to_mib(plan->gpu_bytes) - to_mib(use->peak_bytes));
    }
}

/* Prints the table of host memory. */
static void print_host(const struct tdm__memory_budget *plan, FILE *stream)
{
    (void)fprintf(stream, "%-*s%*s\n", NAME_COLUMNS + 2, "host", COLUMN, "copies MiB");
    for (uint32_t phase = 0; phase < TDM__BUDGET_PHASES_COUNT; phase++) {
        print_name(moments[phase].name, stream);
        (void)fprintf(stream, "%*.1f\n", COLUMN, to_mib(plan->host_bytes[phase]));
    }
}

void tdm__memory_budget_print(const struct tdm__memory_budget *plan,
                              const struct tdm__memory_budget_input *input, bool fits, FILE *stream)
{
    for (uint32_t gpu = 0; gpu < plan->gpus_count; gpu++) {
        print_gpu(plan, input, gpu, stream);
    }
    print_host(plan, stream);
    if (fits) {
        (void)fprintf(stream, "fits: tightest is %s on GPU %u, %.1f MiB free\n",
                      tdm__budget_phase_name(plan->tightest_phase), plan->tightest_gpu,
                      to_mib(plan->tightest_free_bytes));
    }
}

/* Returns a JSON array with the usage of each GPU in this phase. The caller owns it. */
static json_t *gpu_json(const struct tdm__memory_budget *plan, uint32_t phase)
{
    json_t *gpus = json_array();

    for (uint32_t gpu = 0; gpu < plan->gpus_count; gpu++) {
        const struct tdm__memory_budget_usage *use = &plan->gpus[phase][gpu];

        (void)json_array_append_new(gpus, json_pack("{s:I, s:I, s:I}", "trainer_bytes",
                                                    (json_int_t)use->trainer_bytes, "engine_bytes",
                                                    (json_int_t)use->engine_bytes, "peak_bytes",
                                                    (json_int_t)use->peak_bytes));
    }
    return gpus;
}

tdm_status tdm__memory_budget_print_json(const struct tdm__memory_budget *plan, bool fits,
                                         FILE *stream)
{
    json_t *list = json_array();
    json_t *root;
    int failed;

    for (uint32_t phase = 0; phase < TDM__BUDGET_PHASES_COUNT; phase++) {
        (void)json_array_append_new(list, json_pack("{s:s, s:o, s:I}", "name", moments[phase].name,
                                                    "gpus", gpu_json(plan, phase), "host_bytes",
                                                    (json_int_t)plan->host_bytes[phase]));
    }
    root = json_pack("{s:b, s:I, s:s, s:i, s:o}", "fits", (int)fits, "gpu_bytes",
                     (json_int_t)plan->gpu_bytes, "tightest",
                     tdm__budget_phase_name(plan->tightest_phase), "tightest_gpu",
                     (int)plan->tightest_gpu, "moments", list);
    failed =
        root == NULL || json_dumpf(root, stream, JSON_COMPACT) != 0 || fputc('\n', stream) == EOF;
    json_decref(root);
    return failed != 0 ? tdm__fail(TDM_E_IO, "the plan could not be written") : TDM_OK;
}
