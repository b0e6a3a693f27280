/* large_pages.h - whether the kernel gives shared memory large pages, and how to get them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_MEMORY_LARGE_PAGES_H
#define TDM_COLOCATE_MEMORY_LARGE_PAGES_H

#include <stdbool.h>
#include <stddef.h>

/* A block in pages of 2 MiB is mapped and unmapped a thousand times faster than in pages of
 * 4 KiB, and copied a tenth faster.  Whether shared memory may have them is the machine's
 * setting, which Tandem never changes.  Nothing here can fail: without large pages everything
 * works as well, with small ones. */

/* The word in force: "always", "within_size", "advise", "never", …; "unknown" where the kernel
 * has no such setting. */
const char *tdm__large_pages_setting(void);

/* What a file of such a setting says: the word in brackets, "unknown" if there is none. */
const char *tdm__large_pages_parse_setting(const char *path);

/* What an administrator would have to do; NULL: nothing. */
const char *tdm__large_pages_advice(void);

/* Where the kernel waits to be asked: takes the pages of a new memfd as large ones, as far as
 * there are any.  (Where it does not wait, fallocate takes them.)  False: it was not asked. */
bool tdm__large_pages_populate(int fd, size_t size_bytes);

#endif
