/* text_sizes.h - sizes of the texts that processes store and exchange: names and addresses. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_PROCESS_TEXT_SIZES_H
#define TDM_ACTORS_PROCESS_TEXT_SIZES_H

enum {
    /* Bytes of an actor's name, name space or class name, with the terminating NUL. */
    TDM__ACTOR_NAME_BYTES = 64,
    TDM__ADDRESS_BYTES = 160 /* Bytes of a socket address as text, with the terminating NUL. */
};

#endif
