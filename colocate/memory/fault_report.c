/* fault_report.c - names the paused region whose memory a thread has accessed. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The handler of SIGSEGV and SIGBUS runs on the thread that made the access, at any instruction,
 * also while another thread adds or removes a region. So the regions are in an array of fixed
 * length whose entries are published by their address, which is written last and cleared first. The
 * handler only reads, formats numbers itself, and calls write(2).
 *
 * After the line it restores the former action of the signal and returns: the instruction runs
 * again and faults again, with the effect that it would have had without this file. The daemon
 * quotes the last lines of a dead actor's stderr in its death report, and thus this line. */

#include "colocate/memory/fault_report.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A paused region. */
struct paused_region {
    _Atomic(uintptr_t) address;         /* First address; 0 if the entry is free. */
    size_t size_bytes;                  /* Size of the region in bytes. */
    char tag[TDM_REGION_TAG_BYTES_MAX]; /* Tag of the region. */
};

/* The paused regions of this process; the handler reads them. */
static struct paused_region paused_regions[TDM__FAULT_REPORT_REGIONS_MAX];

/* The signals by which the kernel reports an access to missing memory, and their former actions. */
static const int fault_signals[] = {SIGSEGV, SIGBUS};
enum { FAULT_SIGNALS_COUNT = sizeof(fault_signals) / sizeof(fault_signals[0]) };
static struct sigaction former_actions[FAULT_SIGNALS_COUNT];

/* Size in bytes of the line of a report. */
enum { LINE_BYTES = 256 };

/* A line that grows. What does not fit is cut. */
struct line {
    char text[LINE_BYTES]; /* The line, without a NUL. */
    size_t length;         /* Number of bytes of the line. */
};

/* Appends a text to the line. */
static void line_add_text(struct line *line, const char *text)
{
    while (*text != '\0' && line->length < LINE_BYTES) {
        line->text[line->length++] = *text++;
    }
}

/* Appends a number in base 10 or 16 to the line. */
static void line_add_number(struct line *line, uint64_t number, unsigned base)
{
    char digits[24];
    size_t i = sizeof(digits) - 1;

    digits[i] = '\0';
    do {
        digits[--i] = "0123456789abcdef"[number % base];
        number /= base;
    } while (number > 0);
    line_add_text(line, digits + i);
}

/* Returns the entry of the paused region that contains the address, or NULL. */
static const struct paused_region *find_paused(uintptr_t address)
{
    for (uint32_t i = 0; i < TDM__FAULT_REPORT_REGIONS_MAX; i++) {
        uintptr_t start = atomic_load_explicit(&paused_regions[i].address, memory_order_acquire);

        if (start != 0 && address >= start && address - start < paused_regions[i].size_bytes) {
            return &paused_regions[i];
        }
    }
    return NULL;
}

/* Writes the line about an access to a paused region. */
static void write_report(const struct paused_region *region, uintptr_t address)
{
    struct line line = {.length = 0};

    line_add_text(&line, "tandem: the paused region \"");
    line_add_text(&line, region->tag);
    line_add_text(&line, "\" was accessed at 0x");
    line_add_number(&line, address, 16);
    line_add_text(&line, ", byte ");
    line_add_number(&line, address - atomic_load(&region->address), 10);
    line_add_text(&line, " of ");
    line_add_number(&line, region->size_bytes, 10);
    line_add_text(&line, ": resume it before its tensors are used\n");
    if (write(STDERR_FILENO, line.text, line.length) < 0) {
        return; /* There is no other place to report it. */
    }
}

/* Signal handler: names the region, if there is one, and restores the former action. */
static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    uintptr_t address = (uintptr_t)info->si_addr;
    const struct paused_region *region = info->si_code > 0 ? find_paused(address) : NULL;

    (void)context;
    if (region != NULL) {
        write_report(region, address);
    }
    for (int i = 0; i < FAULT_SIGNALS_COUNT; i++) {
        if (fault_signals[i] == signal_number) {
            (void)sigaction(signal_number, &former_actions[i], NULL);
        }
    }
    if (info->si_code <= 0) { /* The signal came from kill() or raise(). */
        (void)raise(signal_number);
    }
}

/* Installs the handler. */
static void install(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};

    (void)sigemptyset(&action.sa_mask);
    for (int i = 0; i < FAULT_SIGNALS_COUNT; i++) {
        (void)sigaction(fault_signals[i], &action, &former_actions[i]);
    }
}

void tdm__fault_report_add(const void *address, size_t size_bytes, const char *tag)
{
    static pthread_once_t installed = PTHREAD_ONCE_INIT;

    (void)pthread_once(&installed, install);
    for (uint32_t i = 0; i < TDM__FAULT_REPORT_REGIONS_MAX; i++) {
        struct paused_region *region = &paused_regions[i];

        if (atomic_load(&region->address) == 0) {
            region->size_bytes = size_bytes;
            (void)snprintf(region->tag, sizeof(region->tag), "%s", tag);
            atomic_store_explicit(&region->address, (uintptr_t)address, memory_order_release);
            return;
        }
    }
}

void tdm__fault_report_remove(const void *address)
{
    for (uint32_t i = 0; i < TDM__FAULT_REPORT_REGIONS_MAX; i++) {
        if (atomic_load(&paused_regions[i].address) == (uintptr_t)address) {
            atomic_store(&paused_regions[i].address, 0);
        }
    }
}
