/* comm_nccl_multi_node_test.c - the communicator over NCCL whose ranks synchronise over TCP. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/nccl_suite.h"
#include "tests/support/cuda_gpu.h"
#include "tests/support/mesh_fixture.h"

#include <stdlib.h>

enum { SLOT_BYTES = 4096 };

static tdm_status open_across(int fd, uint32_t rank, int64_t timeout_ms,
                              struct tdm__comm **comm_out)
{
    struct tdm__comm_gpu_options options = {.timeout_ms = timeout_ms, .slot_bytes = SLOT_BYTES};

    TDM_TRY(mesh_fixture_open(fd, rank, timeout_ms, &options.control_comm));
    return nccl_suite_open_on(rank, &options, comm_out);
}

int main(void)
{
    static const struct nccl_suite_maker across = {{mesh_fixture_meeting, open_across, 0}, NULL};
    int failed;

    (void)setenv("FAKE_CUDA_DEVICES", "4", 1); /* NCCL wants a GPU for each rank. */
    cuda_gpu_choose((size_t)256 << 20);
    if (cuda_gpu_is_real()) {
        return 77; /* Four ranks need four GPUs; comm_nccl_test tests what the machine has. */
    }
    (void)setenv("TANDEM_NCCL_LIBRARY", TDM_TEST_BUILD_DIR "/tests/nccl_fake.so", 0);
    failed = comm_suite_run("nccl, ranks that meet over tcp", &across.control_comm, 0) +
             nccl_suite_run("nccl, ranks of several nodes", &across);
    cuda_gpu_forget();
    return failed;
}
