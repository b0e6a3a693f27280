/* fault_report.h - names the paused region whose memory a thread has accessed. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_MEMORY_FAULT_REPORT_H
#define TDM_COLOCATE_MEMORY_FAULT_REPORT_H

#include <stddef.h>
#include <tandem/region.h>

/* Most paused regions of a process that a report can name. */
enum { TDM__FAULT_REPORT_REGIONS_MAX = 256 };

/* Adds a paused region: an access to its `size_bytes` bytes at `address` is a fault from now on. A
 * line on stderr then names the region, and the fault takes its former effect, which is the end of
 * the process by SIGSEGV unless the program has a handler. The first call installs the handler, for
 * good. The tag is copied. A region beyond TDM__FAULT_REPORT_REGIONS_MAX is not named. One thread
 * at a time calls this function and the next one. */
void tdm__fault_report_add(const void *address, size_t size_bytes, const char *tag);
/* Removes the region at this address, because it is resident again or ends. An unknown address is
 * allowed. */
void tdm__fault_report_remove(const void *address);

#endif
