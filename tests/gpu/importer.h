/* importer.h - the second process of the probe, which maps what the first one exports. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_GPU_IMPORTER_H
#define TDM_TESTS_GPU_IMPORTER_H

#include "driver.h"

#include <sys/types.h>

/* The orders to the importer. */
enum importer_order {
    IMPORTER_START, /* Open the driver. */
    IMPORTER_MAP,   /* Import the descriptor, map it at a shadow address, and check the contents. */
    IMPORTER_CHECK, /* Check the contents at the shadow address. */
    IMPORTER_DROP,  /* Release the shadow block. */
    IMPORTER_SERVE, /* Create a block of its own at the serving address. */
    /* Exchange the block at the serving address for the shadow block, and check there. */
    IMPORTER_FLIP,
    IMPORTER_STOP_SERVING,
};

struct importer {
    int fd;
    pid_t pid;
};

/* The importer's reply to an order. */
struct importer_reply {
    bool done;
    double seconds; /* Duration of the driver's calls, without checks. */
    char failure[DRIVER_TEXT_BYTES];
};

/* Starts the importer. Call it before the driver is opened in this process, because a forked
 * process must open its own. */
bool importer_start(struct importer *importer);
/* Sends one order, with a descriptor or -1, and waits up to 60 s for its reply. */
bool importer_order(struct importer *importer, enum importer_order order, size_t size_bytes, int fd,
                    struct importer_reply *reply_out);
void importer_stop(struct importer *importer);

#endif
