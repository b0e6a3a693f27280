/* reply_buffer.h - one buffer for each thread that runs methods, in which it packs its replies. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_SERVER_REPLY_BUFFER_H
#define TDM_ACTORS_SERVER_REPLY_BUFFER_H

#include <tandem/value.h>

/* Lets this thread keep one buffer for the replies of its methods. Without it replies are only
 * slower. */
void tdm__reply_buffer_thread_init(void);
/* Frees the reply buffer of this thread. */
void tdm__reply_buffer_thread_fini(void);

/* Returns an empty writer in `*writer_out`: the one that this thread has kept, or a new one. The
 * caller passes it to tdm__reply_buffer_release(). */
tdm_status tdm__reply_buffer_acquire(tdm_writer **writer_out);
/* Keeps the writer for the next reply of this thread. Destroys it if this thread keeps one already,
 * runs no methods, or the writer is large. */
void tdm__reply_buffer_release(tdm_writer *writer);

#endif
