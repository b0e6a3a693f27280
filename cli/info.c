/* info.c - `tandem info`: what this machine offers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "cli/version.h"
#include "colocate/broker/large_pages.h"
#include "colocate/device/kinds.h"

#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

static struct tdm__option options[] = {{"--json", false, NULL}, {NULL, false, NULL}};

/* What this machine offers to tandemd. */
struct machine {
    long cpus;         /* Number of online CPUs. */
    double memory_gib; /* Memory in GiB. */
    /* The kernel's setting of large pages for shared memory, for example "advise". */
    const char *large_pages;
};

/* Number of bytes of a GiB. */
#define GIB (1024.0 * 1024.0 * 1024.0)

/* Examines the machine's CPUs, memory, GPUs and settings. */
static struct machine machine_detect(void)
{
    struct machine machine = {.cpus = sysconf(_SC_NPROCESSORS_ONLN)};

    machine.memory_gib = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / GIB;
    machine.large_pages = tdm__large_pages_setting();
    return machine;
}

/* Adds the GPUs of one kind to the JSON object, if the kind has real GPUs. Their number is 0 if
 * tandemd could not offer them. */
static void add_gpus(json_t *root, const struct tdm__device_kind *kind)
{
    struct tdm__device_list gpus = {.count = 0};
    tdm_status status = kind->list(&gpus);
    char key[64];

    if (status == TDM_OK && gpus.count == 0) {
        return; /* Virtual GPUs. */
    }
    (void)snprintf(key, sizeof(key), "%s_gpus", kind->name);
    (void)json_object_set_new(root, key, json_integer((json_int_t)gpus.count));
    (void)snprintf(key, sizeof(key), "%s_gpu_gib", kind->name);
    (void)json_object_set_new(root, key, json_real((double)gpus.bytes / GIB));
}

/* Prints the GPUs of one kind, or why tandemd could not offer any. */
static void print_gpus(const struct tdm__device_kind *kind)
{
    struct tdm__device_list gpus;

    if (kind->list(&gpus) != TDM_OK) {
        (void)printf("%-13snone: %s\n", kind->name, tdm_error_detail());
    } else if (gpus.count == 0) {
        (void)printf("%-13s%s, as many as are asked for\n", kind->name, kind->gpus_name);
    } else {
        (void)printf("%-13s%u %s of %.1f GiB\n", kind->name, gpus.count, kind->gpus_name,
                     (double)gpus.bytes / GIB);
    }
}

/* Prints what the machine offers as one JSON object. */
static void print_json(const struct machine *machine)
{
    json_t *root = json_pack("{s:s, s:I, s:f}", "version", TDM__VERSION, "cpus",
                             (json_int_t)machine->cpus, "memory_gib", machine->memory_gib);
    const struct tdm__device_kind *kind;

    for (uint32_t i = 0; (kind = tdm__device_kind_at(i)) != NULL; i++) {
        add_gpus(root, kind);
    }
    (void)json_object_set_new(root, "large_pages", json_string(machine->large_pages));
    (void)json_dumpf(root, stdout, JSON_COMPACT);
    (void)putchar('\n');
    json_decref(root);
}

/* Runs `tandem info` and returns the exit code. */
static int info_main(const struct tdm__parsed_arguments *args)
{
    const char *remedy = tdm__large_pages_advice();
    struct machine machine = machine_detect();
    const struct tdm__device_kind *kind;

    if (tdm__option_value(args, "--json") != NULL) {
        print_json(&machine);
        return TDM__EXIT_SUCCESS;
    }
    (void)printf("tandem %s\ncpus         %ld\nmemory       %.1f GiB\n", TDM__VERSION, machine.cpus,
                 machine.memory_gib);
    for (uint32_t i = 0; (kind = tdm__device_kind_at(i)) != NULL; i++) {
        print_gpus(kind);
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
