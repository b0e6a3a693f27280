/* info.c - `tandem info`: what this machine offers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "cli/version.h"
#include "colocate/device/device.h"
#include "colocate/memory/large_pages.h"

#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

static struct tdm__option options[] = {{"--json", false, NULL}, {NULL, false, NULL}};

/* What this machine offers to tandemd. */
struct machine {
    long cpus;         /* Number of CPUs that are online. */
    double memory_gib; /* Size of the host memory in GiB. */
    /* CUDA GPUs of the machine; empty if `gpus_status` is a failure. */
    struct tdm__device_list gpus;
    /* TDM_OK if tandemd could offer CUDA GPUs, else why not; tdm_error_detail() has the text. */
    tdm_status gpus_status;
    /* The kernel's setting of large pages for shared memory, for example "advise". */
    const char *large_pages;
};

/* Number of bytes of a GiB. */
#define GIB (1024.0 * 1024.0 * 1024.0)

/* Examines the machine's CPUs, memory, GPUs and settings. */
static struct machine machine_detect(void)
{
    struct machine machine = {.cpus = sysconf(_SC_NPROCESSORS_ONLN)};
    const struct tdm__device_kind *cuda;

    machine.memory_gib = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / GIB;
    machine.large_pages = tdm__large_pages_setting();
    machine.gpus_status = tdm__device_kind_by_name("cuda", &cuda);
    if (machine.gpus_status == TDM_OK) {
        machine.gpus_status = cuda->list(&machine.gpus);
    }
    return machine;
}

/* Prints what the machine offers as one JSON object. */
static void print_json(const struct machine *machine)
{
    json_t *root =
        json_pack("{s:s, s:I, s:f, s:I, s:f, s:s}", "version", TDM__VERSION, "cpus",
                  (json_int_t)machine->cpus, "memory_gib", machine->memory_gib, "cuda_gpus",
                  (json_int_t)machine->gpus.count, "cuda_gpu_gib",
                  (double)machine->gpus.bytes / GIB, "large_pages", machine->large_pages);

    (void)json_dumpf(root, stdout, JSON_COMPACT);
    (void)putchar('\n');
    json_decref(root);
}

/* Runs `tandem info` and returns the exit code. */
static int info_main(const struct tdm__parsed_arguments *args)
{
    const char *remedy = tdm__large_pages_advice();
    struct machine machine = machine_detect();

    if (tdm__option_value(args, "--json") != NULL) {
        print_json(&machine);
        return TDM__EXIT_SUCCESS;
    }
    (void)printf("tandem %s\ncpus         %ld\nmemory       %.1f GiB\n"
                 "host         virtual GPUs, as many as are asked for\n",
                 TDM__VERSION, machine.cpus, machine.memory_gib);
    if (machine.gpus_status == TDM_OK) {
        (void)printf("cuda         %u GPUs of %.1f GiB\n", machine.gpus.count,
                     (double)machine.gpus.bytes / GIB);
    } else {
        (void)printf("cuda         none: %s\n", tdm_error_detail());
    }
    (void)printf("large pages  %s for shared memory\n", machine.large_pages);
    if (remedy != NULL) {
        (void)printf("             (as root: %s)\n", remedy);
    }
    return TDM__EXIT_SUCCESS;
}

const struct tdm__command tdm__command_info = {
    .name = "info",
    .summary = "what this machine offers",
    .help = "usage: tandem info [--json]\n\n"
            "Tells what this machine offers: GPUs by the devices of\n"
            "`tandemd --device`.\n",
    .options = options,
    .run = info_main};
