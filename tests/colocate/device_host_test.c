/* device_host_test.c - the host device passes the conformance suite of devices, plain and
 * wrapped. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/device_suite.h"
#include "tests/support/host_gpu.h"

#include <stdlib.h>

static void *open_with(bool faulty, struct tdm__device **owner_out,
                       struct tdm__device **importer_out)
{
    struct host_gpu *gpu = host_gpu_open((size_t)64 << 20, faulty);

    *owner_out = gpu->devices[0];
    *importer_out = gpu->devices[1];
    return gpu;
}

static void *open_host(struct tdm__device **owner_out, struct tdm__device **importer_out)
{
    return open_with(false, owner_out, importer_out);
}

static void *open_faulty(struct tdm__device **owner_out, struct tdm__device **importer_out)
{
    return open_with(true, owner_out, importer_out);
}

static void close_gpu(void *gpu)
{
    if (host_gpu_used_bytes(gpu) != 0) {
        abort(); /* A test did not release its blocks. */
    }
    host_gpu_close(gpu);
}

int main(void)
{
    static const struct device_suite_maker host = {open_host, close_gpu};
    static const struct device_suite_maker faulty = {open_faulty, close_gpu};

    return device_suite_run("host", &host) + device_suite_run("faulty host", &faulty);
}
