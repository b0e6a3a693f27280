/* large_pages.h - whether the kernel backs shared memory with large pages, and how to request
 * them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_BROKER_LARGE_PAGES_H
#define TDM_COLOCATE_BROKER_LARGE_PAGES_H

#include <stdbool.h>
#include <stddef.h>

/* A block in pages of 2 MiB is mapped and unmapped a thousand times faster than in pages of 4
 * KiB, and copied 10 % faster. Whether shared memory may use large pages is a setting of the
 * machine, which Tandem never changes. No function here fails: without large pages everything
 * works with small ones. */

/* Returns the kernel's current setting for large pages in shared memory: "always", "within_size",
 * "advise", "never" and so on, or "unknown" if the kernel does not have the setting. */
const char *tdm__large_pages_setting(void);

/* Returns the selected value, which is in brackets, of the kernel's settings file at `path`;
 * "unknown" if absent. */
const char *tdm__large_pages_parse_setting(const char *path);

/* Returns the shell command with which an administrator enables large pages for shared memory, or
 * NULL if the kernel's setting already allows them. */
const char *tdm__large_pages_advice(void);

/* Allocates the pages of a new memfd as large pages, as far as the kernel has any. It does so
 * only for the setting "advise"; for other settings fallocate gets large pages without a request.
 * Returns false if it did nothing. */
bool tdm__large_pages_populate(int fd, size_t size_bytes);

#endif
