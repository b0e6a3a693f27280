/* reply_buffer.c - one buffer for each thread that runs methods, in which it packs its replies. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/server/reply_buffer.h"

#include <stdbool.h>
#include <stddef.h>

/* Largest reply buffer that a thread keeps for its next reply, in bytes. */
enum { CACHED_WRITER_BYTES_MAX = 1 << 20 };

/* True on a thread that runs methods and may therefore keep a reply buffer. */
static _Thread_local bool runs_methods;
/* Empty buffer kept for the next reply of this thread, owned; NULL if absent. */
static _Thread_local tdm_writer *cached_writer;

void tdm__reply_buffer_thread_init(void)
{
    runs_methods = true;
}

void tdm__reply_buffer_thread_fini(void)
{
    runs_methods = false;
    tdm_writer_destroy(cached_writer);
    cached_writer = NULL;
}

tdm_status tdm__reply_buffer_acquire(tdm_writer **writer_out)
{
    if (cached_writer == NULL) {
        return tdm_writer_create(writer_out);
    }
    *writer_out = cached_writer;
    cached_writer = NULL;
    return TDM_OK;
}

void tdm__reply_buffer_release(tdm_writer *writer)
{
    if (runs_methods && cached_writer == NULL &&
        tdm_writer_bytes(writer).size_bytes <= CACHED_WRITER_BYTES_MAX) {
        tdm_writer_clear(writer);
        cached_writer = writer;
    } else {
        tdm_writer_destroy(writer);
    }
}
