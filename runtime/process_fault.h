/* process_fault.h - faults after which a process cannot do its work any more. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_PROCESS_FAULT_H
#define TDM_RUNTIME_PROCESS_FAULT_H

/* Sets the function that tdm__process_fault_report() calls; NULL, the default, for none. A worker
 * sets one that ends the process, so that its actor is restarted. Call it before other threads
 * start. */
void tdm__process_fault_set_handler(void (*handler)(const char *cause));

/* Reports that this process cannot do its work any more because of `cause`, a text that is
 * borrowed for the call. Returns if there is no handler, as in a driver; the caller then returns
 * an error. Any thread may call it. */
void tdm__process_fault_report(const char *cause);

#endif
