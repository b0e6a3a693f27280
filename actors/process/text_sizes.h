/* text_sizes.h - sizes of the texts that processes store and exchange: names and addresses. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_PROCESS_TEXT_SIZES_H
#define TDM_ACTORS_PROCESS_TEXT_SIZES_H

#include <tandem/runtime.h>

enum {
    /* Bytes of an actor's name or name space, with the terminating NUL. */
    TDM__ACTOR_NAME_BYTES = TDM_NAME_BYTES_MAX + 1,
    TDM__CLASS_NAME_BYTES = 64, /* Bytes of the name of a class, with the terminating NUL. */
    TDM__ADDRESS_BYTES = 160    /* Bytes of a socket address as text, with the terminating NUL. */
};

#endif
