/* signals.h - the signal by which a peer that has gone would end this process. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_SIGNALS_H
#define TDM_RUNTIME_SIGNALS_H

/* For whoever opens a library that writes to sockets with write(2): SIGPIPE is ignored from now
 * on, unless the program has a handler of its own.  Our own writes ask for no signal. */
void tdm__ignore_sigpipe(void);

#endif
