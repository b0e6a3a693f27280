# SPDX-License-Identifier: Apache-2.0
"""Flat or not: of each series of a soak, over its second half.

The slope is Theil's and Sen's: the median of the slopes of all pairs of samples, which a few
outliers cannot move.  Multiplied by the length of the half it is the growth.  A series grows if

  1. its growth is more than its allowance, and
  2. it goes up steadily: of all pairs of samples, later minus earlier, the ups outnumber the
     downs by at least 0.15 of all (Kendall's tau).

The second keeps noise from being called growth; the first, growth too small to matter.  Nothing
is judged in a half of less than ten minutes: caches fill, and the heaps of drivers go up and down
by a few large values for minutes.
"""
import json
import statistics
import sys

STEADY = 0.15
SEGMENT_KIB = 1088  # of a value of 1 MiB
SAMPLES_LEAST = 12
SECONDS_LEAST = 600  # of a half
SAMPLES_MOST = 200  # of a half: pairs grow with the square; longer series are thinned

# Kept, but not judged: what follows the load of the last minute, and what is kept to a bound.
FREE = ("keys", "used_kib", "logs", "held_kib")

# What a series may grow by over the half: so many of its unit, or so much of its median,
# whichever is more.  What is in use at a rest goes up and down by what threads keep of small
# blocks, 1 MiB each at the most.  Shared memory goes by whole segments: one more is kept when
# more large values than ever before were under way at the same moment.
ALLOWED = {"heap_kib": (512, 0.02), "rest_kib": (512, 0.02), "pss_kib": (512, 0.02),
           "rss_kib": (1024, 0.02), "shmem_kib": (SEGMENT_KIB, 0.02), "fds": (2, 0.02),
           "threads": (1, 0), "count": (2, 0.05), "records": (4, 0.05), "files": (8, 0.05),
           "kib": (4096, 0.05), "zombies": (1, 0)}


def held_by(process):
    """PSS and RSS but for shared memory, which goes by segments and is a series of its own."""
    shared = process["shmem_kib"]
    return {"pss_kib": process["pss_kib"] - shared, "rss_kib": process["rss_kib"] - shared,
            "shmem_kib": shared, "fds": process["fds"], "threads": process["threads"]}


def series_of(samples):
    """name → [(seconds, value)].  Processes that stay are one series each; of actors and
    templates, which come and go, the number is one and what they hold on average is another."""
    series = {}

    def add(name, seconds, value):
        series.setdefault(name, []).append((seconds, value))

    for sample in samples:
        seconds = sample["seconds"]
        roles = {}
        for process in sample["processes"]:
            roles.setdefault(process["role"], []).append(process)
        for name, processes in roles.items():
            add(f"{name} count", seconds, len(processes))
            if name in ("worker", "reaper", "template", "other"):
                held = [held_by(process) for process in processes]
                for unit in held[0]:
                    add(f"{name} mean {unit}", seconds, statistics.mean(one[unit] for one in held))
                continue
            for rank, process in enumerate(sorted(processes, key=lambda each: each["pid"])):
                for unit, value in held_by(process).items():
                    add(f"{name} #{rank} {unit}" if len(processes) > 1 else f"{name} {unit}",
                        seconds, value)
        for rank, store in enumerate(sample["redis"]):
            for unit, value in store.items():
                add(f"redis data #{rank} {unit}", seconds, value)
        for unit, value in sample["tmp"].items():
            add(f"tmp {unit}", seconds, value)
        add("zombies", seconds, sample["zombies"])
        for number, heap in enumerate(sample["heaps"]):
            for unit, value in heap.items():
                add(f"driver {number} {unit}", seconds, value)
    return series


def second_half(points, end):
    """Those after the middle of the run, thinned evenly where there are too many."""
    half = [point for point in points if point[0] >= end / 2]
    step = -(-len(half) // SAMPLES_MOST)
    return half[::step] if step > 1 else half


def judge(points, unit):
    """What is said of one series of the second half."""
    slopes = []
    ups = 0
    for i, (earlier, low) in enumerate(points):
        for later, high in points[i + 1:]:
            if later > earlier:
                slopes.append((high - low) / (later - earlier))
                ups += (high > low) - (high < low)
    middle = statistics.median(value for _, value in points)
    growth = statistics.median(slopes) * (points[-1][0] - points[0][0])
    tau = ups / len(slopes)
    least, share = ALLOWED[unit]
    allowed = max(least, share * middle)
    return {"median": round(middle, 2), "growth": round(growth, 2), "allowed": round(allowed, 2),
            "tau": round(tau, 3), "first": points[0][1], "last": points[-1][1],
            "grows": growth > allowed and tau >= STEADY}


def verdict(samples):
    """name → what is said of it, for all that were seen often enough in the second half."""
    end = samples[-1]["seconds"] if samples else 0
    found = {}
    if end < 2 * SECONDS_LEAST:
        return found
    for name, points in sorted(series_of(samples).items()):
        half = second_half(points, end)
        unit = name.split()[-1]
        if unit not in FREE and len(half) >= SAMPLES_LEAST:
            found[name] = judge(half, unit)
    return found


if __name__ == "__main__":  # verdict.py samples.jsonl: what a kept run says
    lines = open(sys.argv[1], encoding="ascii").read().splitlines()
    for name, one in verdict([json.loads(line) for line in lines]).items():
        print("GROWS" if one["grows"] else "flat ", name, one)
