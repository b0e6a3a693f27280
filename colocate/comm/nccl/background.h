/* background.h - runs a function that may block in a library on a thread of its own. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_NCCL_BACKGROUND_H
#define TDM_COLOCATE_COMM_NCCL_BACKGROUND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most bytes of the argument of a background function. */
enum { TDM__BACKGROUND_ARGUMENT_BYTES = 64 };

/* Runs fn(arg) on a new thread, with a copy of the `arg_bytes` bytes at `arg`, and waits at most
 * `limit_ms` milliseconds for its end. Returns true if `fn` has returned. After false it goes on,
 * so it must own all that it uses. If the process cannot start a thread, `fn` runs on the calling
 * thread, without a limit. */
bool tdm__background_run(void (*fn)(void *arg), const void *arg, size_t arg_bytes,
                         int64_t limit_ms);

#endif
