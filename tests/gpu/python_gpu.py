"""Runs actors of the Python package on a real GPU: what they see, regions beside PyTorch, memory of killed actors.

Usage: python_gpu.py [--fake], with the package on PYTHONPATH.  Prints one line for each check.  Exit status 77: the
package or PyTorch is missing, or PyTorch sees no GPU.  With the fake CUDA library (FAKE_CUDA_DIRECTORY) the checks that
need PyTorch are left out, and the exit status is 77 unless --fake says that this is meant.
"""
# SPDX-License-Identifier: Apache-2.0
import ctypes
import os
import sys
import threading
import time
import traceback

FAKE = "FAKE_CUDA_DIRECTORY" in os.environ
MIB = 1 << 20
REGION_BYTES = (16 if FAKE else 256) * MIB
# What the driver may take or give back by itself between two looks at the free memory.
TOLERANCE_BYTES = 16 * MIB
# Clock cycles of the kernel that runs while a region is paused: about half a second.
SLEEP_CYCLES = 1_000_000_000
CALL_SECONDS = 60
CUDA = 2  # Kind of device in DLPack.

try:
    import tandem
    from tandem import ray
except ImportError as error:
    print("skipped: the Python package of Tandem cannot be imported:", error)
    sys.exit(77)


# ---- what the actors do ------------------------------------------------------------------------


def driver():
    """Return the CUDA driver's library, the fake one if there is one."""
    return ctypes.CDLL(os.environ.get("TANDEM_CUDA_LIBRARY", "libcuda.so.1"))


def current_context():
    """Return the calling thread's current CUDA context as a number, or None."""
    context = ctypes.c_void_p()
    result = driver().cuCtxGetCurrent(ctypes.byref(context))
    assert result == 0, f"cuCtxGetCurrent: {result}"
    return context.value


def address_of(region):
    """Return the address of a resident region, as its DLPack capsule has it."""
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return ctypes.c_void_p.from_address(get_pointer(region.__dlpack__(), b"dltensor")).value


class Actor:
    """An actor with a GPU or a part of one."""

    def __init__(self):
        self.regions, self.tensors = {}, {}

    def seen(self):
        """Return the numbers of the GPUs and the list that CUDA reads."""
        return ray.get_gpu_ids(), os.environ["CUDA_VISIBLE_DEVICES"]

    def torch_devices(self):
        import torch
        return torch.cuda.device_count(), torch.cuda.current_device(), torch.zeros(2, device="cuda").sum().item()

    def free_and_total(self):
        import torch
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info()

    def make(self, name, size_bytes, **options):
        """Create a region and return (address or None, DLPack device)."""
        self.regions[name] = tandem.Region(name, size_bytes, **options)
        region = self.regions[name]
        return address_of(region) if region.is_resident else None, region.__dlpack_device__()

    def pause(self, name):
        self.regions[name].pause()

    def resume(self, name):
        self.regions[name].resume(timeout=30)
        return address_of(self.regions[name])

    def drop(self, name):
        del self.regions[name]

    def context_of_a_new_thread(self):
        """Return the contexts of a thread without one: before and after it uses regions."""
        seen = []

        def use_regions():
            seen.append(current_context())
            region = tandem.Region("of a thread", REGION_BYTES)
            seen.append(current_context())
            region.pause()
            region.resume(timeout=30)
            del region
            seen.append(current_context())

        thread = threading.Thread(target=use_regions)
        thread.start()
        thread.join()
        return seen

    def share_with_torch(self):
        """Write a region as one tensor and read it as another, and pause it between."""
        import torch
        region = tandem.Region("shared", REGION_BYTES)
        first, second = torch.from_dlpack(region), torch.from_dlpack(region)
        assert first.device == torch.device("cuda", 0) and first.dtype == torch.uint8, (first.device, first.dtype)
        assert first.data_ptr() == second.data_ptr() == address_of(region)
        first.fill_(7)
        assert int(second[-1]) == 7
        second[: REGION_BYTES // 2] = 9
        assert int(first[0]) == 9 and int(first[-1]) == 7
        torch.cuda.synchronize()
        before, _ = torch.cuda.mem_get_info()
        region.pause()
        paused, _ = torch.cuda.mem_get_info()
        region.resume(timeout=30)
        after, _ = torch.cuda.mem_get_info()
        assert abs(paused - before - REGION_BYTES) < TOLERANCE_BYTES, (before, paused)
        assert abs(after - before) < TOLERANCE_BYTES, (before, after)
        assert first.data_ptr() == address_of(region)
        half = REGION_BYTES // 2
        assert bool((first[:half] == 9).all()) and bool((first[half:] == 7).all())
        return paused - before

    def pause_while_a_kernel_runs(self):
        """Return the seconds that a pause took with a kernel in PyTorch's own stream before it."""
        import torch
        region = tandem.Region("late", REGION_BYTES)
        tensor = torch.from_dlpack(region)
        tensor.fill_(1)
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SLEEP_CYCLES)
            tensor.fill_(9)
        assert not stream.query(), "the kernel ended before the pause"
        began = time.monotonic()
        region.pause()
        took = time.monotonic() - began
        region.resume(timeout=30)
        assert bool((tensor == 9).all()), "the contents are not what the last kernel wrote"
        assert torch.cuda.current_device() == 0
        return took

    def destroy_while_a_kernel_runs(self):
        """Free a region that a queued kernel writes; the GPU must stay usable."""
        import torch
        region = tandem.Region("freed", REGION_BYTES, keep=False)
        tensor = torch.from_dlpack(region)
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(SLEEP_CYCLES)
            tensor.fill_(9)
        region.pause()
        del tensor, region
        torch.cuda.synchronize()
        return torch.ones(3, device="cuda").sum().item()

    def tensor(self, value):
        import torch
        self.tensors["sent"] = torch.full((1000, 3), value, dtype=torch.bfloat16, device="cuda")
        return self.tensors["sent"]

    def receive(self, tensor):
        """Return where a received tensor is and what it has, and change it."""
        self.tensors["received"] = tensor
        device, total = str(tensor.device), float(tensor.double().sum())
        tensor.fill_(0)
        return device, total

    def total(self, name):
        return float(self.tensors[name].double().sum())

    def take_with_torch(self, size_bytes):
        import torch
        self.tensors["own"] = torch.empty(size_bytes, dtype=torch.uint8, device="cuda")

    def give_back_to_torch(self):
        import torch
        del self.tensors["own"]
        torch.cuda.empty_cache()


Remote = ray.remote(num_cpus=1)(Actor)


def get(ref):
    return ray.get(ref, timeout=CALL_SECONDS)


# ---- checks --------------------------------------------------------------------------------------


def an_actor_sees_its_gpu(world):
    (first_ids, first), (second_ids, second) = get([world.a.seen.remote(), world.b.seen.remote()])
    assert first_ids == second_ids == [0], (first_ids, second_ids)
    assert first == second and first.startswith(("GPU-", "MIG-")) and "," not in first, (first, second)


def torch_sees_one_device(world):
    count, current, zero = get(world.a.torch_devices.remote())
    assert (count, current, zero) == (1, 0, 0.0), (count, current, zero)


def a_region_keeps_its_address(world):
    address, device = get(world.a.make.remote("weights", REGION_BYTES))
    assert device == (CUDA, 0) and address, (address, device)
    get(world.a.pause.remote("weights"))
    assert get(world.a.resume.remote("weights")) == address
    get(world.a.drop.remote("weights"))


def regions_leave_the_current_context(world):
    seen = get(world.a.context_of_a_new_thread.remote())
    assert seen == [None, None, None], seen


def torch_and_regions_share_memory(world):
    freed = get(world.a.share_with_torch.remote())
    return f"the pause freed {freed >> 20} MiB by the driver's count"


def a_pause_waits_for_kernels(world):
    took = get(world.a.pause_while_a_kernel_runs.remote())
    assert took > 0.05, f"the pause took {took:.3f} s: did a kernel run?"
    return f"the pause took {took:.2f} s"


def a_freed_region_waits_for_kernels(world):
    assert get(world.a.destroy_while_a_kernel_runs.remote()) == 3.0


def a_cuda_tensor_is_copied(world):
    """A tensor on the GPU arrives on the receiver's GPU as a copy, over host memory, as in Ray."""
    reference = world.a.tensor.remote(2.5)
    device, total = get(world.b.receive.remote(reference))
    assert (device, total) == ("cuda:0", 7500.0), (device, total)
    assert get([world.a.total.remote("sent"), world.b.total.remote("received")]) == [7500.0, 0.0]


def memory_of_torch_is_not_granted(world):
    """A region that does not fit beside PyTorch's memory in another actor is refused, and who has it is said."""
    free, total = get(world.b.free_and_total.remote())
    get(world.a.take_with_torch.remote(total // 4))
    try:
        get(world.b.make.remote("kv_cache", free // MIB * MIB - total // 8, keep=False))
    except Exception as error:
        assert "other processes use" in str(error), error
    else:
        raise AssertionError("a region was granted that does not fit")
    get(world.a.give_back_to_torch.remote())
    get(world.b.make.remote("kv_cache", free // MIB * MIB - total // 8, keep=False))
    get(world.b.drop.remote("kv_cache"))


def memory_of_a_killed_actor_is_free(world):
    """The next actor gets nearly all of the GPU at once."""
    size_bytes = world.capacity_bytes // 4 * 3 // (2 * MIB) * 2 * MIB
    get(world.a.make.remote("weights", size_bytes, keep=False))
    get(world.b.make.remote("weights", size_bytes, keep=False, paused=True))
    ray.kill(world.a)
    began = time.monotonic()
    assert get(world.b.resume.remote("weights"))
    took = time.monotonic() - began
    ray.kill(world.b)
    world.a = world.b = None
    return f"{size_bytes >> 20} MiB of {world.capacity_bytes >> 20} after {took:.2f} s"


def a_whole_gpu_is_granted(world):
    """An actor with num_gpus=1 after actors with halves of it."""
    actor = Remote.options(num_gpus=1).remote()
    ids, visible = get(actor.seen.remote())
    assert ids == [0] and "," not in visible, (ids, visible)
    get(actor.make.remote("weights", world.capacity_bytes // 8 * 7 // (2 * MIB) * 2 * MIB, keep=False))
    ray.kill(actor)


def two_gpus_of_one_are_seen_once(world):
    """An actor with two GPUs of a node that share a real one (CUDA sees no device in a list with repeats)."""
    ray.shutdown()
    start_node(2)
    actor = Remote.options(num_gpus=2).remote()
    ids, visible = get(actor.seen.remote())
    assert ids == [0, 1] and "," not in visible, (ids, visible)
    for gpu in (0, 1):
        address, device = get(actor.make.remote(f"of {gpu}", REGION_BYTES, gpu=gpu))
        assert address and device == (CUDA, 0), device
    world.twice = actor


def torch_sees_the_shared_gpu(world):
    count, current, _ = get(world.twice.torch_devices.remote())
    assert (count, current) == (1, 0), (count, current)


# The checks in their order, and whether each needs PyTorch with a GPU.
CHECKS = [(an_actor_sees_its_gpu, False), (torch_sees_one_device, True), (a_region_keeps_its_address, False),
          (regions_leave_the_current_context, False), (torch_and_regions_share_memory, True),
          (a_pause_waits_for_kernels, True), (a_freed_region_waits_for_kernels, True), (a_cuda_tensor_is_copied, True),
          (memory_of_torch_is_not_granted, True), (memory_of_a_killed_actor_is_free, False),
          (a_whole_gpu_is_granted, False), (two_gpus_of_one_are_seen_once, False), (torch_sees_the_shared_gpu, True)]


class World:
    """The node, two actors with a half of its GPU each, and what the node offers of it."""

    def __init__(self, total_bytes):
        self.capacity_bytes = total_bytes - min(total_bytes // 4, 1280 * MIB)
        start_node(1)
        self.a, self.b = (Remote.options(num_gpus=0.5).remote() for _ in range(2))
        self.twice = None


def start_node(num_gpus):
    os.environ["TANDEM_DEVICE"] = "cuda"
    ray.init(num_cpus=4, num_gpus=num_gpus)


def gpu_bytes():
    """Return the memory of the GPU that PyTorch sees, or a reason why there is none; of the fake library's GPU."""
    if FAKE:
        return int(os.environ.get("FAKE_CUDA_BYTES", 256 * MIB)), None
    try:
        import torch
    except ImportError:
        return 0, "PyTorch is missing"
    if not torch.cuda.is_available():
        return 0, f"PyTorch {torch.__version__} sees no GPU"
    print("PyTorch", torch.__version__, torch.cuda.get_device_name(0))
    return torch.cuda.get_device_properties(0).total_memory, None  # Makes no context.


def run(check, world):
    """Run one check, print what came of it and return whether it passed."""
    began = time.monotonic()
    try:
        note = check(world)
    except Exception:
        print(f"{check.__name__}: NO, failed: {traceback.format_exc()}", flush=True)
        return False
    print(f"{check.__name__}: yes, {time.monotonic() - began:.1f} s{', ' + note if note else ''}", flush=True)
    return True


def main():
    """Run all checks that this machine allows."""
    total_bytes, reason = gpu_bytes()
    if reason is not None:
        print("skipped:", reason)
        return 77
    world = World(total_bytes)
    results = [run(check, world) for check, needs_torch in CHECKS if not (FAKE and needs_torch)]
    ray.shutdown()
    if FAKE and all(results):
        print(f"skipped: {len(CHECKS) - len(results)} checks need PyTorch with a GPU; the other {len(results)} passed")
        return 0 if "--fake" in sys.argv else 77
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
