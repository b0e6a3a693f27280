/* device_suite.h - what every memory device promises. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_CONFORMANCE_DEVICE_SUITE_H
#define TDM_TESTS_CONFORMANCE_DEVICE_SUITE_H

#include "colocate/device/device.h"

/* How a suite gets its devices: `owner` and `importer` are two views of one GPU with 64 MiB
 * free, of two tenants.  `close` ends both. */
struct device_suite_maker {
    void *(*open)(struct tdm__device **owner_out, struct tdm__device **importer_out);
    void (*close)(void *maker_state);
};

/* Runs all promises as a cmocka group; the exit code. */
int device_suite_run(const char *name, const struct device_suite_maker *maker);

#endif
