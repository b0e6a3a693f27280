/* info.c - `tandem info`: what this machine offers. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "cli/version.h"
#include "colocate/memory/large_pages.h"

#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

static struct tdm__option options[] = {{"--json", false, NULL}, {NULL, false, NULL}};

struct machine {
    long cpus;
    double memory_gib;
    bool has_cuda_driver;
    const char *large_pages; /* for shared memory */
};

static struct machine look(void)
{
    struct machine machine = {.cpus = sysconf(_SC_NPROCESSORS_ONLN)};

    machine.memory_gib = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) /
                         (1024.0 * 1024.0 * 1024.0);
    machine.has_cuda_driver = access("/proc/driver/nvidia/version", R_OK) == 0;
    machine.large_pages = tdm__large_pages_setting();
    return machine;
}

static void print_json(const struct machine *machine)
{
    json_t *root =
        json_pack("{s:s, s:I, s:f, s:b, s:s}", "version", TDM__VERSION, "cpus",
                  (json_int_t)machine->cpus, "memory_gib", machine->memory_gib, "cuda_driver",
                  (int)machine->has_cuda_driver, "large_pages", machine->large_pages);

    (void)json_dumpf(root, stdout, JSON_COMPACT);
    (void)putchar('\n');
    json_decref(root);
}

static int run(const struct tdm__words *words)
{
    const char *remedy = tdm__large_pages_remedy();
    struct machine machine = look();

    if (tdm__option_value(words, "--json") != NULL) {
        print_json(&machine);
        return TDM__EXIT_DONE;
    }
    (void)printf("tandem %s\ncpus         %ld\nmemory       %.1f GiB\ncuda driver  %s\n"
                 "devices      host (virtual GPUs)\n",
                 TDM__VERSION, machine.cpus, machine.memory_gib,
                 machine.has_cuda_driver ? "there" : "none");
    (void)printf("large pages  %s for shared memory\n", machine.large_pages);
    if (remedy != NULL) {
        (void)printf("             (as root: %s)\n", remedy);
    }
    return TDM__EXIT_DONE;
}

const struct tdm__command tdm__command_info = {.name = "info",
                                               .summary = "what this machine offers",
                                               .help = "usage: tandem info [--json]\n\n"
                                                       "Tells what this machine offers.\n",
                                               .options = options,
                                               .run = run};
