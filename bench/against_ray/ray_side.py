# SPDX-License-Identifier: Apache-2.0
"""Programs in Python in the comparison: reads lines "ROUND SECONDS" and replies to each with a line of numbers.

`import ray` finds Ray, or tandem.ray where `tandem python` runs this program. What a measure counts is what
`ray microbenchmark` counts under that name, as far as it has one.
Numbers leave through a copy of the first stdout; what else is printed goes to stderr.
"""
import json
import os
import statistics
import sys
import time
import zlib

import numpy as np
import ray

MIB = 1 << 20
WINDOW = 1000
STEP_RANKS = 16  # Ranks of the trainer.
STEPS_MIN = 100


@ray.remote(num_cpus=0)
class Echo:
    def small_value(self):
        return b"ok"

    def take(self, array):
        return int(array[0]) + int(array[-1])

    def pid(self):
        return os.getpid()


@ray.remote(num_cpus=0)
class Caller:
    def __init__(self, callees):
        self.callees = callees

    def windows(self, count):
        for _ in range(count):
            one_window(self.callees)


@ray.remote(num_cpus=0)
class Reader:
    def same(self, value):
        return value

    def hash(self, array):
        return zlib.crc32(array)


def expect(wanted, got, what):
    if wanted != got:
        raise SystemExit(f"{what}: wanted {wanted}, got {got}")


def one_window(actors):
    answers = ray.get([actors[i % len(actors)].small_value.remote() for i in range(WINDOW)])
    expect([b"ok"] * WINDOW, answers, "a window of calls")


def set_cores(pid, cores):
    """Returns all threads of a process."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            os.sched_setaffinity(int(thread), cores)
        except ProcessLookupError:
            pass  # The thread has ended meanwhile.


class Side:
    def __init__(self, temporary):
        ray.init(address=os.environ.get("AGAINST_RAY_ADDRESS", "local"), log_to_driver=False,
                 **({} if "AGAINST_RAY_ADDRESS" in os.environ else
                    {"_temp_dir": temporary, "include_dashboard": False, "_node_ip_address": "127.0.0.1",
                     "resources": {"custom": 100}, "object_store_memory": 2 << 30}))
        self.kept = {}
        self.stamp = 0
        self.large = None

    def once(self, name, make):
        if name not in self.kept:
            self.kept[name] = make()
        return self.kept[name]

    def echo(self):
        return self.once("echo", Echo.remote)

    def reader(self):
        return self.once("reader", Reader.remote)

    def repeat(self, seconds, step):
        """Returns the rate per second at which a step can be repeated."""
        begun = time.perf_counter()
        steps = 0
        while time.perf_counter() - begun < seconds:
            step()
            steps += 1
        return steps / (time.perf_counter() - begun)

    # One call at a time: rate, median in microseconds.

    def sync(self, seconds, cores_of_actor):
        echo = self.echo()
        pid = self.once("pid", lambda: ray.get(echo.pid.remote()))
        everywhere = os.sched_getaffinity(0)
        took = []
        set_cores(os.getpid(), {0})
        set_cores(pid, cores_of_actor)
        begun = now = time.perf_counter()
        while now - begun < seconds:
            expect(b"ok", ray.get(echo.small_value.remote()), "a call")
            sent, now = now, time.perf_counter()
            took.append(now - sent)
        set_cores(os.getpid(), everywhere)
        set_cores(pid, everywhere)
        return [len(took) / (now - begun), statistics.median(took) * 1e6]

    def call_same_core(self, seconds):
        return self.sync(seconds, {0})

    def call_own_cores(self, seconds):
        return self.sync(seconds, {1})

    # Many calls in flight: rate.

    def pipelined(self, seconds):
        actors = [self.echo()]
        return [WINDOW * self.repeat(seconds, lambda: one_window(actors))]

    def two_by_two(self, seconds):
        callees = self.once("callees", lambda: [Echo.remote(), Echo.remote()])
        callers = self.once("callers", lambda: [Caller.remote(callees), Caller.remote(callees)])
        return [2 * WINDOW * self.repeat(
            seconds, lambda: ray.get([caller.windows.remote(1) for caller in callers]))]

    # Values in GiB/s.

    def call_mib(self, seconds):
        array = np.zeros(MIB // 8, dtype=np.int64)

        def call():
            self.stamp += 1
            array[0] = array[-1] = self.stamp
            expect(2 * self.stamp, ray.get(self.echo().take.remote(array)), "a call with 1 MiB")

        return [self.repeat(seconds, call) / 1024]

    def put_large(self, seconds):
        if self.large is None:
            self.large = np.arange(100 * MIB // 8, dtype=np.int64)
        spent = puts = 0
        while spent < seconds:
            self.stamp += 1
            self.large[0] = self.stamp
            begun = time.perf_counter()
            ref = ray.put(self.large)
            spent += time.perf_counter() - begun
            puts += 1
            expect(zlib.crc32(self.large), ray.get(self.reader().hash.remote(ref)), "100 MiB")
            del ref
        return [puts * 100 / 1024 / spent]

    # The first get of a value of 100 MiB that was put: median in microseconds.

    def get_large(self, seconds):
        if self.large is None:
            self.large = np.arange(100 * MIB // 8, dtype=np.int64)
        spent = 0
        took = []
        while spent < seconds:
            started = time.perf_counter()
            self.stamp += 1
            self.large[0] = self.stamp
            ref = ray.put(self.large)
            begun = time.perf_counter()
            array = ray.get(ref)
            took.append(time.perf_counter() - begun)
            expect((self.stamp, self.large[-1]), (array[0], array[-1]), "100 MiB")
            del ref, array
            spent += time.perf_counter() - started
        return [statistics.median(took) * 1e6]

    # The least that anything costs there: json.loads of 2 bytes right after a copy of 100 MiB, median in microseconds.

    def get_large_parse(self, seconds):
        source = np.arange(100 * MIB // 8, dtype=np.int64)
        target = np.zeros_like(source)
        spent = 0
        took = []
        while spent < seconds:
            started = time.perf_counter()
            np.copyto(target, source)
            begun = time.perf_counter()
            json.loads("{}")
            took.append(time.perf_counter() - begun)
            spent += time.perf_counter() - started
        return [statistics.median(took) * 1e6]

    # rate

    def put_small(self, seconds):
        spent = puts = 0
        while spent < seconds:
            begun = time.perf_counter()
            for _ in range(100):
                puts += 1
                ref = ray.put(puts)
            spent += time.perf_counter() - begun
            expect(puts, ray.get(self.reader().same.remote(ref)), "a small put")
        return [puts / spent]

    def get_small(self, seconds):
        ref = ray.put(7)
        return [self.repeat(seconds, lambda: expect(7, ray.get(ref), "a small get"))]

    def group(self, seconds):
        def hundred():
            groups = [ray.util.placement_group([{"custom": 0.001}]) for _ in range(100)]
            for group in groups:
                if not group.wait(timeout_seconds=30):
                    raise SystemExit("a placement group is not there after 30 s")
            for group in groups:
                ray.util.remove_placement_group(group)

        return [100 * self.repeat(seconds, hundred)]

    def called_actor(self):
        actor = Echo.remote()
        expect(b"ok", ray.get(actor.small_value.remote()), "an actor's first call")
        return actor

    def actor_life(self, seconds):
        return [self.repeat(seconds, lambda: ray.kill(self.called_actor()))]

    # The calls of one step of training: a generate call to an engine, then a train call to each of 16 ranks. All methods
    # return at once. Median of at least 100 steps in milliseconds.

    def step_calls(self, seconds):
        actors = self.once("ranks", lambda: [self.called_actor() for _ in range(1 + STEP_RANKS)])
        took = []
        while len(took) < STEPS_MIN or sum(took) < seconds:
            begun = time.perf_counter()
            expect(b"ok", ray.get(actors[0].small_value.remote()), "generate")
            answers = ray.get([actor.small_value.remote() for actor in actors[1:]])
            took.append(time.perf_counter() - begun)
            expect([b"ok"] * STEP_RANKS, answers, "train")
        return [statistics.median(took) * 1e3]

    # Milliseconds, each the median: an actor created and called, and eight at once with variables of their own.

    def actor_up(self, seconds):
        return [self.median_ms(seconds, lambda: [self.called_actor()])]

    def launch(self, seconds):
        def eight():
            actors = [Echo.options(runtime_env={"env_vars": {"RANK": str(rank), "WORLD_SIZE": "8"}}).remote()
                      for rank in range(8)]
            expect([b"ok"] * 8, ray.get([actor.small_value.remote() for actor in actors]), "eight actors")
            return actors

        return [self.median_ms(seconds, eight)]

    def median_ms(self, seconds, create):
        """Returns the median time of create(), whose actors are killed afterwards."""
        took = []
        while sum(took) < seconds:
            begun = time.perf_counter()
            actors = create()
            took.append(time.perf_counter() - begun)
            for actor in actors:
                ray.kill(actor)
        return statistics.median(took) * 1e3

    # pids

    def idle(self, _):
        actors = self.once("idle", lambda: [self.called_actor() for _ in range(20)])
        return ray.get([actor.pid.remote() for actor in actors])

    # nothing

    def first_call(self, _):
        self.called_actor()
        return []


def main():
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    print("imported", file=answers)
    side = None
    for line in sys.stdin:
        name, seconds = line.split()
        if side is None:
            side = Side(sys.argv[1])
        print(*getattr(side, name)(float(seconds)), file=answers)
    ray.shutdown()


main()
