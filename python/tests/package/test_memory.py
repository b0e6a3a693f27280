# SPDX-License-Identifier: Apache-2.0
"""tandem.memory: regions by tag, pauses and resumes of all or none, budgets, and reports of accesses to paused memory."""
import ctypes
import gc

import numpy as np
import pytest

import tandem
from tandem import job, memory, ray
from tandem.ray import exceptions

MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def node():
    ray.init(num_cpus=4, num_gpus=2, log_to_driver=False)
    yield
    ray.shutdown()


@ray.remote(num_gpus=1)
class Owner:
    """Runs functions of the tests in a process that has a GPU of 256 MiB."""

    def run(self, function, *args):
        return function(*args)


@pytest.fixture()
def run():
    owner = Owner.remote()
    yield lambda function, *args: ray.get(owner.run.remote(function, *args))
    ray.kill(owner)


def test_a_buffer_lies_in_the_region(run):
    def work():
        region = memory.allocate("weights", 3 * MIB)
        view = region.buffer()
        view[0], view[-1] = 3, 4
        memory.pause("weights")
        memory.resume("weights", timeout=10)
        array = np.from_dlpack(region)
        return repr(region), len(view), view.readonly, int(array[0]), int(array[-1]), np.shares_memory(array, view)

    assert run(work) == ("<tandem.memory.Region 'weights', 4194304 bytes, resident>", 4 * MIB, False, 3, 4, True)


def test_a_region_counts_its_users(run):
    def work():
        region = memory.allocate("weights", 2 * MIB)
        view, array = region.buffer(), np.from_dlpack(region)
        counts = [region.users_count]
        part = array[5:]
        del array
        gc.collect()
        counts.append(region.users_count)
        try:
            region.free()
        except Exception as error:
            text = str(error)
        view.release()
        del part
        gc.collect()
        counts.append(region.users_count)
        region.free()
        return counts, text, memory.regions(), repr(region)

    counts, text, regions, shown = run(work)
    assert counts == [2, 2, 0] and regions == [] and shown == "<tandem.memory.Region, freed>"
    assert "the region weights is in use: 2 tensors, arrays and buffers lie in it" in text


def test_a_region_ends_with_its_last_user(run):
    def work():
        region = memory.allocate("weights", 200 * MIB)
        array = np.frombuffer(region, np.uint8)[7:]
        array[0] = 9
        del region
        gc.collect()
        alive = len(memory.regions("weights")), int(array[0])
        del array
        gc.collect()
        memory.allocate("weights", 200 * MIB)  # The GPU has 256 MiB.
        return alive

    assert run(work) == (1, 9)


def test_a_jobs_memory_keeps_its_region(run):
    """The memory of a rank of a job, whose region libtandem destroys when the rank has closed."""
    def work():
        region = memory.allocate("weights", 200 * MIB)
        shown = job.Memory("weights", np.from_dlpack(region).ctypes.data, region.size_bytes)
        gc.collect()
        array, view = np.frombuffer(shown.buffer, np.uint8)[7:], np.from_dlpack(shown)
        array[0] = 9
        counts = [shown.users_count]
        del view
        gc.collect()
        counts.append(shown.users_count)
        memory.pause("weights")
        try:
            shown.buffer
        except BufferError as error:
            text = str(error)
        memory.resume("weights", timeout=10)
        del shown
        region.free()  # What the end of a rank does.
        gc.collect()
        alive = int(array[0])
        try:
            memory.allocate("other", 100 * MIB)  # The GPU has 256 MiB.
        except Exception as error:
            full = str(error)
        del array
        gc.collect()
        memory.allocate("other", 200 * MIB)
        return counts, text, alive, full

    counts, text, alive, full = run(work)
    assert counts == [2, 1] and alive == 9 and "100.0 MiB wanted" in full and "200.0 MiB" in full
    assert text == "the region weights is paused: use it after it was resumed"


def test_an_allocator_over_a_region(run):
    """The functions for torch.cuda.memory.CUDAPluggableAllocator, as PyTorch calls them."""
    def work():
        region = memory.allocate("weights", 2 * MIB)
        begin = np.from_dlpack(region).ctypes.data
        gc.collect()
        allocator = memory.allocator(region)
        library = ctypes.CDLL(allocator.library)
        allocate, free = library[allocator.alloc_name], library[allocator.free_name]
        allocate.restype, free.restype = ctypes.c_void_p, None
        allocate.argtypes = ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p
        free.argtypes = ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p
        device = allocator.device_number
        first, second = allocate(1000, device, None), allocate(MIB, device, None)
        places = [first - begin, second - begin, allocator.used_bytes, allocate(MIB, device, None),
                  allocate(1, device + 1, None)]
        ctypes.memset(second, 5, MIB)
        places.append(bytes(region.buffer()[1024:1026]))
        ctypes.memset(second, 0, MIB)
        free(second, MIB, device, None)
        free(second, MIB, device, None)  # Not allocated any more.
        third = allocate(2 * MIB - 1024, device, None)  # All that is free is one piece again.
        places.append(third - begin)
        texts = []
        for wrong in (allocator.close, region.free, lambda: memory.allocator(memory.allocate("other", 2 * MIB)),
                      lambda: memory.allocator("weights")):
            try:
                wrong()
            except Exception as error:
                texts.append(f"{type(error).__name__}: {error}")
        memory.pause("weights")
        free(first, 1000, device, None)
        places.append(allocate(1000, device, None))  # The region is paused.
        free(third, 2 * MIB - 1024, device, None)
        memory.resume("weights", timeout=10)
        places.append(allocate(2 * MIB, device, None) - begin)
        free(begin, 2 * MIB, device, None)
        allocator.close()
        region.free()
        return places, texts

    places, texts = run(work)
    assert places == [0, 1024, 1024 + MIB, None, None, b"\5\5", 1024, None, 0]
    assert "closing the allocator of the device 0 failed: 2097152 bytes are allocated" in texts[0]
    assert "the region weights is in use: 1 tensors" in texts[1]
    assert "an allocator over the region other failed: the device 0 has one over another region" in texts[2]
    assert "the argument is no tandem.memory.Region" in texts[3]


def test_tags_choose_what_is_paused(run):
    def work():
        first, second = memory.allocate("weights", 2 * MIB), memory.allocate("kv_cache", 4 * MIB, keep=False)
        third = memory.allocate("weights", 6 * MIB, paused=True)
        kept = [region.keep for region in memory.regions()]
        seen = [memory.pause("weights"), memory.is_resident("kv_cache"), memory.is_resident("weights"),
                memory.pause(), memory.pause(), memory.resume("kv_cache", "weights"), memory.is_resident()]
        return kept, seen, [region.tag for region in (first, second, third)]

    kept, seen, _ = run(work)
    assert kept == [True, False, True]
    assert seen == [2 * MIB, True, False, 4 * MIB, 0, 12 * MIB, True]


def test_unknown_tags_are_refused(run):
    def work():
        kept = memory.allocate("weights", 2 * MIB)
        memory.pause("weight" if kept.is_resident else "")

    with pytest.raises(KeyError, match="no memory has the tag 'weight'; there are: ..weights"):
        run(work)


def test_a_resume_that_does_not_fit_changes_nothing(run):
    def work():
        kept = memory.allocate("weights", 100 * MIB), memory.allocate("state", 200 * MIB, paused=True)
        memory.pause("weights")
        try:
            memory.resume(timeout=0.1)
        except Exception as error:
            return [region.is_resident for region in kept], type(error).__name__, str(error)

    resident, _, text = run(work)
    assert resident == [False, False] and "200.0 MiB wanted" in text


def test_paused_memory_is_not_given_away(run):
    def work():
        region = memory.allocate("weights", 2 * MIB, paused=True)
        texts = []
        for use in (region.buffer, lambda: np.from_dlpack(region), region.check, lambda: memory.check("weights")):
            try:
                use()
            except (BufferError, memory.MemoryPausedError) as error:
                texts.append(f"{type(error).__name__}: {error}")
        return texts

    texts = run(work)
    assert [text.split(":")[0] for text in texts] == ["BufferError"] * 2 + ["MemoryPausedError"] * 2
    assert all("weights" in text and "resume(" in text for text in texts)


def test_the_death_names_the_paused_region():
    """An access to a paused region is SIGSEGV; the report of the actor's death says which region it was."""
    def work():
        region = memory.allocate("optimizer", 4 * MIB)
        array = np.from_dlpack(region)
        memory.pause("optimizer")
        return int(array[4097])

    owner = Owner.remote()
    with pytest.raises(exceptions.ActorDiedError) as caught:
        ray.get(owner.run.remote(work))
    assert 'the paused region "optimizer" was accessed at 0x' in str(caught.value)
    assert "byte 4097 of 4194304: resume it" in str(caught.value)


def test_memory_of_other_allocators_takes_turns_with_regions():
    """What an actor's child process allocates is granted, compared and refused to the neighbour."""
    def declare(used_mib):
        import subprocess
        import sys
        children = []

        def allocate(tag):
            program = f"import time; memory = b'x' * ({used_mib} << 20); print(len(memory), flush=True); time.sleep(100)"
            children.append(subprocess.Popen([sys.executable, "-S", "-c", program], stdout=subprocess.PIPE))
            children[-1].stdout.readline()

        def free(tag):
            children[-1].kill()
            children[-1].wait()

        memory.kept = memory.outside("torch", 60 * MIB, pause=free, resume=allocate)
        taken = memory.resume("torch", timeout=5)
        return taken, memory.kept.reported_bytes, memory.kept.is_resident

    def pause():
        return memory.pause(), memory.kept.left_bytes, memory.is_resident("torch")

    def take(mib):
        memory.allocate("kv_cache", mib * MIB)

    first, second = (Owner.options(num_gpus=0.5).remote() for _ in range(2))
    taken, reported, resident = ray.get(first.run.remote(declare, 120))
    assert taken == 60 * MIB and 115 * MIB < reported < 140 * MIB and resident
    with pytest.raises(Exception, match=r"160.0 MiB wanted, .*torch 12\d.\d MiB \(60.0 declared\)"):
        ray.get(second.run.remote(take, 160))
    assert ray.get(first.run.remote(pause)) == (60 * MIB, 0, False)
    ray.get(second.run.remote(take, 160))
    ray.kill(first)
    ray.kill(second)


def test_failures_of_a_program_keep_its_memory_as_it_was(run):
    def work():
        def fail(tag):
            raise OSError(f"no {tag}")

        outside = memory.outside("torch", 2 * MIB, pause=fail, resume=lambda tag: None)
        texts = []
        failing = memory.outside("graphs", 2 * MIB, pause=fail, resume=fail)
        for change in (memory.resume, memory.pause, outside.pause, failing.pause):
            try:
                change("torch") if change is memory.resume else change()
            except Exception as error:
                texts.append(f"{type(error).__name__}: {error}")
        try:
            failing.resume()
        except OSError as error:
            texts.append(str(error))
        return texts, outside.is_resident, failing.is_resident

    texts, first, second = run(work)
    assert texts[:2] == ["OSError: no torch"] * 2 and "graphs is paused" in texts[2] and texts[3] == "no graphs"
    assert (first, second) == (True, False)


def test_budgets():
    budget = memory.Budget(10 * MIB)
    budget.add("trainer", "weights", 3 * MIB, phases=("train", "update"))
    budget.add("engine", "weights", 4 * MIB, phases=("rollout", "update"))
    budget.add("engine", "kv_cache", 6 * MIB, phases=("rollout",))
    assert budget.phases() == ["train", "update", "rollout"]
    assert [budget.peak_bytes(phase) for phase in budget.phases()] == [4 * MIB, 8 * MIB, 10 * MIB]
    assert budget.check() == 0
    budget.add("trainer", "bucket", 1, phases=("update", "rollout"))
    with pytest.raises(MemoryError, match="phase 'rollout': 12.0 MiB wanted .*engine's kv_cache 6.0.*10.0 MiB there"):
        budget.check()
    with pytest.raises(ValueError, match="0 bytes"):
        budget.add("trainer", "bucket", 0, phases=("update",))


def test_regions_need_a_gpu():
    with pytest.raises(Exception, match="GPU 0 of an actor that has 0"):
        memory.allocate("weights", 1)
    assert issubclass(memory.Region, tandem.Region)


class TestTorch:
    @pytest.fixture(autouse=True)
    def torch(self):
        return pytest.importorskip("torch", reason="skipped: the Python package torch is missing")

    def test_tensors_lie_in_the_region(self, run):
        def work():
            import torch
            region = memory.allocate("weights", 2 * MIB)
            whole, part = region.tensor(), region.tensor((3, 5), torch.bfloat16, 256)
            part.fill_(1)
            memory.pause()
            memory.resume()
            counts = whole.numel(), part.dtype == torch.bfloat16, region.users_count
            texts = []
            for arguments in (((3,), torch.float32, 2), ((MIB,), torch.float32, 0), ((1,), torch.uint8, -1)):
                try:
                    region.tensor(*arguments)
                except ValueError as error:
                    texts.append(str(error))
            return counts, int(whole.count_nonzero()), part.data_ptr() - whole.data_ptr(), texts

        counts, nonzero, offset, texts = run(work)
        assert counts == (2 * MIB, True, 2) and nonzero == 30 and offset == 256
        assert len(texts) == 3 and "offset 2 of the region 'weights', which has 2097152" in texts[0]

    def test_an_allocator_fills_a_region(self, run):
        def work():
            import torch
            tensors = [torch.arange(3.0), torch.ones(2, 65, dtype=torch.bfloat16).t(), torch.empty(0)]
            allocator = memory.TensorAllocator(memory.allocate("state", memory.TensorAllocator.size_of(tensors)))
            copies = [allocator.copy(tensor) for tensor in tensors]
            same = [torch.equal(*pair) for pair in zip(tensors, copies)]
            used, addresses = allocator.used_bytes, [copied.data_ptr() % 256 for copied in copies[:2]]
            try:
                allocator.empty((2 * MIB,))
            except MemoryError as error:
                return same, used, addresses, str(error)

        same, used, addresses, text = run(work)
        assert same == [True] * 3 and used == 256 + 512 and addresses == [0, 0]
        assert "8388608 bytes in the region 'state', which has 2096384 of 2097152 bytes left" in text

    def test_guards_raise_before_paused_memory_is_touched(self, run):
        def work():
            import torch
            region = memory.allocate("weights", 2 * MIB)
            model = torch.nn.Linear(4, 4, bias=False)
            model.weight = torch.nn.Parameter(memory.TensorAllocator(region).copy(model.weight))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            guard = memory.guard(model, optimizer, ("weights",))
            model(torch.ones(4)).sum().backward()
            memory.pause()
            texts = []
            for use in (lambda: model(torch.ones(4)), optimizer.step):
                try:
                    use()
                except memory.MemoryPausedError as error:
                    texts.append(error.tag)
            memory.resume()
            optimizer.step()
            guard.remove()
            memory.pause()
            memory.resume()
            return texts, bool(torch.isfinite(model(torch.ones(4))).all())

        assert run(work) == (["weights", "weights"], True)
