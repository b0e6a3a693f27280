/* probe.c - asks a GPU's driver what the design takes for granted; one JSON report on stdout.
 */
/* SPDX-License-Identifier: Apache-2.0 */
/* Not yet run on a GPU, only against a fake library for the driver: docs/measurements/ has no
 * report of it.
 *
 * Needs no toolkit: what is used of the driver's API is declared in driver_api.h and looked up
 * in libcuda.so.1.  A second process, the importer, is forked before the driver is touched; it
 * gets blocks as descriptors and obeys one order at a time.  A section that fails says why in
 * the report and the next one goes on; what it held returns when the process ends.
 *
 * Exit status: 0 all answered, 1 a section failed, 77 there is no GPU to ask. */
#include "driver.h"
#include "importer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REPEATS = 5, EXIT_SKIPPED = 77 };

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;

    return (a > b) - (a < b);
}

static double median(double *values)
{
    qsort(values, REPEATS, sizeof(values[0]), compare);
    return values[REPEATS / 2];
}

/* ---- which memory can be exported ------------------------------------------------------- */

/* Attributes and attempts for the memory at `address`; `handle` is 0 for cuMemAlloc's. */
static bool describe_export(FILE *report, const char *memory, uint64_t address, uint64_t handle)
{
    uint64_t legacy_ipc = 0;
    uint64_t handle_types = 0;
    struct cu_ipc_handle ipc;
    const char *ipc_result;
    const char *fd_result = "not tried";

    CU(cuPointerGetAttribute, &legacy_ipc, CU_POINTER_LEGACY_IPC_CAPABLE, address);
    CU(cuPointerGetAttribute, &handle_types, CU_POINTER_ALLOWED_HANDLE_TYPES, address);
    ipc_result = driver_error_name(driver.cuIpcGetMemHandle(&ipc, address));
    if (handle != 0) {
        int fd = -1;

        fd_result = driver_error_name(
            driver.cuMemExportToShareableHandle(&fd, handle, CU_HANDLE_POSIX_FD, 0));
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    (void)fprintf(report,
                  "{\"memory\":\"%s\",\"legacy_ipc_capable\":%s,\"allowed_handle_types\":%" PRIu64
                  ",\"cuIpcGetMemHandle\":\"%s\",\"export_posix_fd\":\"%s\"}",
                  memory, (legacy_ipc & 0xff) != 0 ? "true" : "false", handle_types, ipc_result,
                  fd_result);
    return true;
}

static bool section_export(FILE *report)
{
    struct driver_block block;
    uint64_t address;

    CU(cuMemAlloc_v2, &address, 2 * MIB);
    (void)fprintf(report, "[");
    TRY(describe_export(report, "cuMemAlloc", address, 0));
    CU(cuMemFree_v2, address);
    (void)fprintf(report, ",");
    TRY(driver_block_create(&block, 2 * MIB, CU_HANDLE_NONE));
    TRY(driver_block_map(&block));
    TRY(describe_export(report, "cuMemCreate", block.address, block.handle));
    TRY(driver_block_destroy(&block));
    (void)fprintf(report, ",");
    TRY(driver_block_create(&block, 2 * MIB, CU_HANDLE_POSIX_FD));
    TRY(driver_block_map(&block));
    TRY(describe_export(report, "cuMemCreate, POSIX_FD", block.address, block.handle));
    (void)fprintf(report, "]");
    return driver_block_destroy(&block);
}

/* ---- does an importer keep paused memory alive ------------------------------------------ */

static bool free_bytes(uint64_t *free_out)
{
    size_t free_now;
    size_t total;

    CU(cuCtxSynchronize);
    CU(cuMemGetInfo_v2, &free_now, &total);
    *free_out = free_now;
    return true;
}

/* A block with contents, mapped here and, under a shadow address, in the importer. */
static bool share_block(struct importer *importer, struct driver_block *block, size_t size_bytes,
                        struct importer_reply *reply_out)
{
    int fd = -1;
    bool done;

    TRY(driver_block_create(block, size_bytes, CU_HANDLE_POSIX_FD));
    TRY(driver_block_map(block));
    TRY(driver_pattern_write(block->address, size_bytes));
    CU(cuMemExportToShareableHandle, &fd, block->handle, CU_HANDLE_POSIX_FD, 0);
    done = importer_order(importer, IMPORTER_MAP, size_bytes, fd, reply_out);
    (void)close(fd);
    return done;
}

static bool section_pause_while_imported(FILE *report, struct importer *importer)
{
    struct importer_reply reply;
    struct driver_block block;
    uint64_t without;
    uint64_t with;
    uint64_t paused;
    uint64_t dropped;

    /* The first order makes the importer's context, which has memory of its own. */
    TRY(importer_order(importer, IMPORTER_START, 0, -1, &reply));
    TRY(free_bytes(&without));
    TRY(share_block(importer, &block, GIB, &reply));
    TRY(free_bytes(&with));
    TRY(driver_block_unmap(&block));
    TRY(driver_block_release(&block));
    TRY(free_bytes(&paused));
    TRY(importer_order(importer, IMPORTER_CHECK, GIB, -1, &reply));
    TRY(importer_order(importer, IMPORTER_DROP, GIB, -1, &reply));
    TRY(free_bytes(&dropped));
    TRY(driver_block_destroy(&block));
    (void)fprintf(report,
                  "{\"block_bytes\":%zu,\"free_without\":%" PRIu64 ",\"free_with\":%" PRIu64
                  ",\"free_after_exporter_paused\":%" PRIu64
                  ",\"free_after_importer_dropped\":%" PRIu64
                  ",\"importer_keeps_pages\":%s,\"importer_read_contents_after\":true}",
                  GIB, without, with, paused, dropped, paused < with + GIB / 2 ? "true" : "false");
    return true;
}

/* ---- copies between pinned host memory and the device ----------------------------------- */

static bool copy_pieces(void *host, uint64_t device, size_t piece_bytes, bool to_host)
{
    for (size_t at = 0; at < GIB; at += piece_bytes) {
        char *host_piece = (char *)host + at;

        if (to_host) {
            CU(cuMemcpyDtoHAsync_v2, host_piece, device + at, piece_bytes, NULL);
        } else {
            CU(cuMemcpyHtoDAsync_v2, device + at, host_piece, piece_bytes, NULL);
        }
    }
    CU(cuCtxSynchronize);
    return true;
}

static bool measure_copies(FILE *report, void *host, uint64_t device)
{
    const size_t pieces[] = {2 * MIB, 64 * MIB, GIB};

    (void)fprintf(report, "[");
    for (size_t i = 0; i < 6; i++) {
        bool to_host = i >= 3;
        double rates[REPEATS];

        TRY(copy_pieces(host, device, pieces[i % 3], to_host)); /* warm */
        for (int j = 0; j < REPEATS; j++) {
            double begun = driver_seconds();

            TRY(copy_pieces(host, device, pieces[i % 3], to_host));
            rates[j] = 1 / (driver_seconds() - begun);
        }
        (void)fprintf(report, "%s{\"direction\":\"%s\",\"piece_bytes\":%zu,\"gib_per_s\":%.2f}",
                      i == 0 ? "" : ",", to_host ? "device to host" : "host to device",
                      pieces[i % 3], median(rates));
    }
    (void)fprintf(report, "]");
    return true;
}

static bool section_pinned_copies(FILE *report)
{
    uint64_t device;
    double begun;
    double pinned;
    void *host;

    begun = driver_seconds();
    CU(cuMemHostAlloc, &host, GIB, CU_HOST_ALLOC_PORTABLE);
    pinned = driver_seconds() - begun;
    CU(cuMemAlloc_v2, &device, GIB);
    (void)fprintf(report, "{\"pin_ms_per_gib\":%.1f,\"rates\":", pinned * 1e3);
    TRY(measure_copies(report, host, device));
    (void)fprintf(report, "}");
    CU(cuMemFree_v2, device);
    CU(cuMemFreeHost, host);
    return true;
}

/* ---- what blocks cost ------------------------------------------------------------------- */

enum { STEPS = 5 };
static const char *const step_names[STEPS] = {"create", "map", "access", "unmap", "release"};

static double elapsed_seconds(double *since)
{
    double now = driver_seconds();
    double took = now - *since;

    *since = now;
    return took;
}

/* One GiB of blocks of that size: milliseconds of each step. */
static bool time_blocks(size_t block_bytes, uint64_t address, double ms_out[STEPS])
{
    uint64_t handles[512];
    size_t count = GIB / block_bytes;
    double since = driver_seconds();

    for (size_t i = 0; i < count; i++) {
        TRY(driver_create(block_bytes, CU_HANDLE_POSIX_FD, &handles[i]));
    }
    ms_out[0] = elapsed_seconds(&since) * 1e3;
    for (size_t i = 0; i < count; i++) {
        CU(cuMemMap, address + i * block_bytes, block_bytes, 0, handles[i], 0);
    }
    ms_out[1] = elapsed_seconds(&since) * 1e3;
    TRY(driver_access(address, GIB));
    ms_out[2] = elapsed_seconds(&since) * 1e3;
    for (size_t i = 0; i < count; i++) {
        CU(cuMemUnmap, address + i * block_bytes, block_bytes);
    }
    ms_out[3] = elapsed_seconds(&since) * 1e3;
    for (size_t i = 0; i < count; i++) {
        CU(cuMemRelease, handles[i]);
    }
    ms_out[4] = elapsed_seconds(&since) * 1e3;
    return true;
}

static bool section_block_costs(FILE *report)
{
    const size_t sizes[] = {2 * MIB, 64 * MIB, GIB};
    uint64_t address;

    CU(cuMemAddressReserve, &address, GIB, 0, 0, 0);
    (void)fprintf(report, "[");
    for (size_t i = 0; i < 3; i++) {
        double by_step[STEPS][REPEATS];

        for (int j = 0; j < REPEATS; j++) {
            double ms[STEPS];

            TRY(time_blocks(sizes[i], address, ms));
            for (int step = 0; step < STEPS; step++) {
                by_step[step][j] = ms[step];
            }
        }
        (void)fprintf(report, "%s{\"block_bytes\":%zu", i == 0 ? "" : ",", sizes[i]);
        for (int step = 0; step < STEPS; step++) {
            (void)fprintf(report, ",\"%s_ms_per_gib\":%.3f", step_names[step],
                          median(by_step[step]));
        }
        (void)fprintf(report, "}");
    }
    (void)fprintf(report, "]");
    CU(cuMemAddressFree, address, GIB);
    return true;
}

/* ---- donation --------------------------------------------------------------------------- */

/* The importer's serving address holds its old block; the new one is mapped at a shadow
 * address, the exporter lets go, and the importer flips. */
static bool section_donation(FILE *report, struct importer *importer)
{
    const size_t size_bytes = 256 * MIB;
    struct importer_reply shadow;
    struct importer_reply flip;
    struct importer_reply reply;
    struct driver_block block;
    double begun;
    double let_go;

    TRY(importer_order(importer, IMPORTER_SERVE, size_bytes, -1, &reply));
    TRY(share_block(importer, &block, size_bytes, &shadow));
    begun = driver_seconds();
    TRY(driver_block_unmap(&block));
    TRY(driver_block_release(&block));
    let_go = driver_seconds() - begun;
    TRY(importer_order(importer, IMPORTER_FLIP, size_bytes, -1, &flip));
    TRY(importer_order(importer, IMPORTER_STOP_SERVING, size_bytes, -1, &reply));
    TRY(driver_block_destroy(&block));
    (void)fprintf(report,
                  "{\"block_bytes\":%zu,\"import_and_map_ms\":%.3f,"
                  "\"exporter_unmap_and_release_ms\":%.3f,\"flip_ms\":%.3f,"
                  "\"contents_at_serving_address\":true}",
                  size_bytes, shadow.seconds * 1e3, let_go * 1e3, flip.seconds * 1e3);
    return true;
}

/* ---- the report ------------------------------------------------------------------------- */

struct section {
    const char *name;
    bool (*alone)(FILE *report);
    bool (*with_importer)(FILE *report, struct importer *importer);
};

/* Text inside a JSON string; the driver's names and ours have nothing to escape but quotes. */
static void print_text(const char *text)
{
    for (; *text != '\0'; text++) {
        (void)putchar(*text == '"' || *text == '\\' || (unsigned char)*text < ' ' ? ' ' : *text);
    }
}

static bool run_section(const struct section *section, struct importer *importer)
{
    char *text = NULL;
    size_t size_bytes = 0;
    FILE *report = open_memstream(&text, &size_bytes);
    bool done;

    if (report == NULL) {
        return false;
    }
    done =
        section->alone != NULL ? section->alone(report) : section->with_importer(report, importer);
    (void)fclose(report);
    (void)printf(",\n \"%s\":", section->name);
    if (done) {
        (void)printf("%s", text);
    } else {
        (void)printf("{\"error\":\"");
        print_text(driver_failure());
        (void)printf("\"}");
    }
    (void)fflush(stdout);
    free(text);
    return done;
}

static int skip_section(void)
{
    (void)printf("{\"skipped\":\"");
    print_text(driver_failure());
    (void)printf("\"}\n");
    (void)fprintf(stderr, "skipped: %s\n", driver_failure());
    return EXIT_SKIPPED;
}

static int write_report(struct importer *importer)
{
    static const struct section sections[] = {
        {"export", section_export, NULL},
        {"pause_while_imported", NULL, section_pause_while_imported},
        {"pinned_copies", section_pinned_copies, NULL},
        {"block_costs", section_block_costs, NULL},
        {"donation", NULL, section_donation},
    };
    char device[DRIVER_TEXT_BYTES];
    size_t granularity;
    int status = 0;

    if (!driver_describe(device, sizeof(device), &granularity)) {
        return skip_section();
    }
    (void)printf("{\"device\":\"");
    print_text(device);
    (void)printf("\",\"granularity_bytes\":%zu", granularity);
    for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
        if (!run_section(&sections[i], importer)) {
            status = 1;
        }
    }
    (void)printf("}\n");
    return status;
}

int main(void)
{
    struct importer importer;
    int status;

    if (!importer_start(&importer)) {
        return 1;
    }
    status = driver_open() ? write_report(&importer) : skip_section();
    importer_stop(&importer);
    return status;
}
