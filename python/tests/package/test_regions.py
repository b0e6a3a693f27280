# SPDX-License-Identifier: Apache-2.0
"""Regions as Python objects, and regions and values as DLPack: numpy and PyTorch read them in place."""
import ctypes
import gc
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import tandem
from tandem import _tandem, ray

CPU, CUDA = 1, 2  # Kinds of device in DLPack.
CUDA_FAKE = pathlib.Path(tandem.__file__).parents[2] / "tests" / "cuda_fake.so"


@pytest.fixture(scope="module", autouse=True)
def node():
    ray.init(num_cpus=4, num_gpus=2, log_to_driver=False)
    yield
    ray.shutdown()


def writable(region):
    """Return the bytes of a region on the host as a numpy array, which its capsule keeps alive."""
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    capsule = region.__dlpack__()
    address = ctypes.c_void_p.from_address(get_pointer(capsule, b"dltensor")).value
    contents = (ctypes.c_ubyte * region.size_bytes).from_address(address)
    contents.capsule = capsule
    return np.frombuffer(contents, np.uint8)


@ray.remote(num_gpus=1)
class Owner:
    def make(self, **options):
        self.region = tandem.Region("weights", 5 << 20, **options)
        return self.region.tag, self.region.size_bytes, self.region.is_resident, self.region.__dlpack_device__()

    def write_and_read(self):
        writable(self.region)[:] = 7
        return int(np.from_dlpack(self.region).view("<u4")[-1])

    def read_after_a_pause(self):
        array = np.from_dlpack(self.region)
        self.region.pause()
        resident = self.region.is_resident
        self.region.resume(timeout=10)
        return resident, int(array[-1]), self.region.is_resident

    def export_while_paused(self):
        self.region.pause()
        try:
            np.from_dlpack(self.region)
        finally:
            self.region.resume()

    def pause_twice(self):
        self.region.pause()
        self.region.pause()

    def outlive(self):
        array = np.from_dlpack(self.region)
        self.region = None
        gc.collect()
        return int(array[0])

    def free_and_take_all(self):
        self.region = None
        gc.collect()
        self.make()

    def misuse(self, *args, **options):
        tandem.Region(*args, **options)

    def torch_writes(self):
        import torch
        weights = torch.from_dlpack(self.region).view(torch.bfloat16)
        weights.fill_(2)
        self.region.pause()
        self.region.resume()
        return float(weights.double().sum()), int(np.from_dlpack(self.region).view("<u2")[0])


@pytest.fixture()
def owner():
    owner = Owner.remote()
    assert ray.get(owner.make.remote()) == ("weights", 6 << 20, True, (CPU, 0))
    yield owner
    ray.kill(owner)


def test_region_is_read_and_written_in_place(owner):
    assert ray.get(owner.write_and_read.remote()) == 0x07070707


def test_arrays_stay_usable_after_a_resume(owner):
    ray.get(owner.write_and_read.remote())
    assert ray.get(owner.read_after_a_pause.remote()) == (False, 7, True)


def test_a_paused_region_is_not_exported(owner):
    with pytest.raises(BufferError, match="the region weights is paused"):
        ray.get(owner.export_while_paused.remote())


def test_arrays_keep_their_region(owner):
    ray.get(owner.write_and_read.remote())
    assert ray.get(owner.outlive.remote()) == 7
    ray.get(owner.free_and_take_all.remote())


def test_misuses_are_exceptions(owner):
    with pytest.raises(Exception, match="paused already|is paused"):
        ray.get(owner.pause_twice.remote())
    with pytest.raises(ValueError, match="at least one byte"):
        ray.get(owner.misuse.remote("x", 0))
    with pytest.raises(Exception, match="tag has 1 to 31 bytes"):
        ray.get(owner.misuse.remote("x" * 40, 1))
    with pytest.raises(Exception, match="GPU 5"):
        ray.get(owner.misuse.remote("x", 1, gpu=5))
    with pytest.raises(Exception, match="GPU 0 of an actor that has 0"):
        tandem.Region("x", 1)


def test_paused_and_dropped_regions(owner):
    assert ray.get(owner.make.remote(keep=False, paused=True))[2] is False


def test_torch_writes_a_region(owner):
    pytest.importorskip("torch", reason="skipped: the Python package torch is missing")
    assert ray.get(owner.torch_writes.remote()) == (2.0 * (3 << 20), 0x4000)


def test_values_are_exported_read_only():
    """A capsule of a received value says that it is read-only; without that it is refused."""
    ref = ray.put(np.arange(1000))
    buffer = ref._get(10)[2][0]
    assert isinstance(buffer, _tandem.Buffer) and buffer.__dlpack_device__() == (CPU, 0)
    assert '"dltensor_versioned"' in repr(buffer.__dlpack__(max_version=(1, 0), stream=None, copy=False))
    for arguments in ({}, {"max_version": (0, 8)}, {"max_version": (1, 0), "copy": True},
                      {"max_version": (1, 0), "dl_device": (CUDA, 0)}):
        with pytest.raises(BufferError):
            buffer.__dlpack__(**arguments)
    with pytest.raises(TypeError):
        buffer.__dlpack__(None)


def test_arrays_of_values_are_dlpack():
    array = ray.get(ray.put(np.arange(1000)))
    try:
        back = np.from_dlpack(array)
    except BufferError:
        pytest.skip("skipped: numpy before 2.1 does not export read-only arrays")
    assert np.shares_memory(back, array) and not back.flags.writeable


CUDA_PROGRAM = """
import tandem
from tandem import ray
ray.init(num_cpus=2, num_gpus=1, log_to_driver=False)

@ray.remote(num_gpus=1)
class Owner:
    def device(self):
        self.region = tandem.Region("weights", 2 << 20)
        unversioned, versioned = self.region.__dlpack__(stream=1), self.region.__dlpack__(max_version=(1, 1))
        return self.region.__dlpack_device__(), repr(unversioned)[:19], repr(versioned)[:29]

print(ray.get(Owner.remote().device.remote()))
"""


def test_region_of_a_cuda_gpu_has_the_structure_of_one(tmp_path):
    """Only the struct is tested, with the stand-in of the CUDA driver; no library reads its memory."""
    if not CUDA_FAKE.exists():
        pytest.skip("skipped: the stand-in of the CUDA driver, cuda_fake, was not built")
    (tmp_path / "gpus").mkdir()
    (tmp_path / "kernels.ptx").write_text("// This image contains no kernels.\n", encoding="utf-8")
    environment = {**os.environ, "TANDEM_DEVICE": "cuda", "TANDEM_CUDA_LIBRARY": str(CUDA_FAKE),
                   "TANDEM_CUDA_KERNELS": str(tmp_path / "kernels.ptx"), "FAKE_CUDA_DIRECTORY": str(tmp_path / "gpus"),
                   "FAKE_CUDA_DEVICES": "1", "FAKE_CUDA_BYTES": str(64 << 20)}
    done = subprocess.run([sys.executable, "-c", CUDA_PROGRAM], env=environment, capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.stdout == f"(({CUDA}, 0), '<capsule object \"dl', '<capsule object \"dltensor_ver')\n", done.stderr
