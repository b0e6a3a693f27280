/* importer.h - the second process of the probe: maps what the first one exports. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_GPU_IMPORTER_H
#define TDM_TESTS_GPU_IMPORTER_H

#include "driver.h"

#include <sys/types.h>

enum importer_order {
    IMPORTER_START, /* open the driver */
    IMPORTER_MAP,   /* import the descriptor, map it at a shadow address, check the contents */
    IMPORTER_CHECK, /* the contents under the shadow address */
    IMPORTER_DROP,  /* the shadow block */
    IMPORTER_SERVE, /* make a block of its own at the serving address */
    /* exchange what is mapped at the serving address for the shadow block; check there */
    IMPORTER_FLIP,
    IMPORTER_STOP_SERVING,
};

struct importer {
    int fd;
    pid_t pid;
};

struct importer_reply {
    bool done;
    double seconds; /* of the driver's calls, without checks */
    char failure[DRIVER_TEXT_BYTES];
};

/* Before the driver is opened in this process: a forked process must open its own. */
bool importer_start(struct importer *importer);
/* One order, with a descriptor or -1, and its reply; at most 60 s. */
bool importer_order(struct importer *importer, enum importer_order order, size_t size_bytes, int fd,
                    struct importer_reply *reply_out);
void importer_stop(struct importer *importer);

#endif
