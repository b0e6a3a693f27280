/* signals.h - keeps SIGPIPE from ending this process. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_SIGNALS_H
#define TDM_RUNTIME_SIGNALS_H

/* Ignores SIGPIPE from now on, unless the program has set a handler of its own.  Call it before
 * using a library that writes to sockets by write(2): a peer that has closed would end the
 * process.  Tandem itself sends with MSG_NOSIGNAL. */
void tdm__ignore_sigpipe(void);

#endif
