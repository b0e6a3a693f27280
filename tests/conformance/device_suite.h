/* device_suite.h - the promises that every memory device must keep. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_CONFORMANCE_DEVICE_SUITE_H
#define TDM_TESTS_CONFORMANCE_DEVICE_SUITE_H

#include "colocate/device/device.h"

/* Functions by which a suite gets its devices: `owner` and `importer` are the devices of two
 * tenants on one GPU with 64 MiB free. `close` closes both. */
struct device_suite_maker {
    void *(*open)(struct tdm__device **owner_out, struct tdm__device **importer_out);
    void (*close)(void *maker_state);
};

/* Runs all promises as a cmocka group. Returns the exit code. */
int device_suite_run(const char *name, const struct device_suite_maker *maker);

#endif
