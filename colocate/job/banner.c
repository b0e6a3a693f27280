/* banner.c - the summary lines that a job prints before its first step. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/banner.h"

#include "colocate/device/kinds.h"
#include "colocate/job/gather_groups.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Most gather groups that are shown, and most ranks of each. */
enum { GROUPS_SHOWN = 8, MEMBERS_SHOWN = 8 };

/* Appends formatted text; what does not fit is cut off. */
__attribute__((format(printf, 2, 3))) static void append(char text[TDM__BANNER_BYTES],
                                                         const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text + used, TDM__BANNER_BYTES - used, format, args);
    va_end(args);
}

/* Appends the last component of the output directory as the name of the job. */
static void banner_append_run_name(char text[TDM__BANNER_BYTES], const char *out)
{
    size_t length = strlen(out);
    size_t begin;

    while (length > 1 && out[length - 1] == '/') {
        length--;
    }
    begin = length;
    while (begin > 0 && out[begin - 1] != '/') {
        begin--;
    }
    append(text, "  job %.*s", (int)(length - begin), out + begin);
}

void tdm__banner_title(const struct tdm__job_spec *spec, const struct tdm__job_run_options *options,
                       const char *cluster, char text[TDM__BANNER_BYTES])
{
    const struct tdm__device_kind *kind;

    text[0] = '\0';
    append(text, "%s", options->program);
    banner_append_run_name(text, options->out);
    if (cluster != NULL) {
        append(text, "  cluster %s  %u GPUs", cluster, spec->num_gpus);
        return;
    }
    append(text, "  redis embedded  %u %s × %.4g MiB on this host", spec->num_gpus,
           tdm__device_kind_by_name(spec->device, &kind) == TDM_OK ? kind->gpus_name : "GPUs",
           (double)spec->gpu_bytes / (1 << 20));
}

/* Appends a gather group, for example " {0,1}→0". */
static void banner_append_group(char text[TDM__BANNER_BYTES], uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count && i < MEMBERS_SHOWN; i++) {
        append(text, "%s%u", i == 0 ? " {" : ",", first + i);
    }
    append(text, "%s}→%u", count > MEMBERS_SHOWN ? ",…" : "", first);
}

void tdm__banner_placement(const struct tdm__job_spec *spec, char text[TDM__BANNER_BYTES])
{
    const struct tdm__gather_groups groups =
        tdm__gather_groups_form(spec->trainer_num_ranks, spec->rollout_num_gpus_per_engine,
                                spec->num_engines, spec->engine_colocate);

    text[0] = '\0';
    append(text, "placement   trainer %u ranks (%g GPU each)   engines %u × TP%u (%g GPU each)   ",
           spec->trainer_num_ranks, spec->trainer_num_gpus_per_actor, spec->num_engines,
           spec->rollout_num_gpus_per_engine, spec->engine_num_gpus_per_actor);
    if (!spec->engine_colocate) {
        append(text, "on GPUs of their own");
        return;
    }
    append(text, "gather groups");
    for (uint32_t i = 0; i < groups.count && i < GROUPS_SHOWN; i++) {
        banner_append_group(text, i * groups.ranks_per_group, groups.ranks_per_group);
    }
    if (groups.count > GROUPS_SHOWN) {
        append(text, " …");
    }
}

void tdm__banner_update(const struct tdm__job_spec *spec, const struct tdm__weight_cost *cost,
                        char text[TDM__BANNER_BYTES])
{
    double all = (double)(cost->same_gpu_bytes + cost->other_gpu_bytes);

    text[0] = '\0';
    append(text,
           "update      %.4g MiB, %.0f %% of it on the same GPU   at most %llu copies an engine "
           "rank   %s",
           all / (1 << 20), all > 0 ? 100 * (double)cost->same_gpu_bytes / all : 0.0,
           (unsigned long long)cost->copies_max,
           spec->engine_colocate ? spec->update_mode : "copied and sent");
    if (strcmp(spec->update_mode, "copy") == 0 || tdm__job_updates_overwrite(spec) ||
        !spec->engine_colocate) {
        append(text, "   %llu buckets of %.4g MiB", (unsigned long long)cost->buckets_count,
               (double)cost->bucket_bytes / (1 << 20));
    }
    if (cost->other_node_bytes > 0) {
        append(text, "   %.4g MiB between nodes", (double)cost->other_node_bytes / (1 << 20));
    }
    if (cost->measured_bytes > 0) {
        append(text, "   %.4g MiB read twice: trainer ranks share FP8 blocks",
               (double)cost->measured_bytes / (1 << 20));
    }
}
