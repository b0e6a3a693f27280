# SPDX-License-Identifier: Apache-2.0
"""One private node with a virtual GPU for all tests of a file, and what vLLM needs of the environment."""
import os

import pytest

# vLLM reads these when it is imported. torch.compile, which vLLM uses for small functions of its sampler, would begin
# with probes of the processor in processes of its own.
os.environ.update({"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1",
                   "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCHDYNAMO_DISABLE": "1"})


@pytest.fixture(scope="module", autouse=True)
def node():
    from tandem import ray
    ray.init(num_cpus=4, num_gpus=1, log_to_driver=False)
    yield
    ray.shutdown()
