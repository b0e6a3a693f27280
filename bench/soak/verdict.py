# SPDX-License-Identifier: Apache-2.0
"""Decides for each series of a soak whether it grows in the second half of the run.

The slope is the Theil-Sen estimator: the median of the slopes of all pairs of samples, which a few
outliers cannot change.  The growth is the slope multiplied by the length of the half.  A series grows if

  1. its growth is more than its allowance, and
  2. it rises steadily: the pairs of samples that rise outnumber the pairs that fall by at least
     0.15 of all pairs (Kendall's tau).

The first condition excludes growth that is too small to matter, and the second one excludes noise.
Nothing is judged if the half is shorter than ten minutes, because caches still fill, and the heaps
of drivers rise and fall by a few large values for minutes.
"""
import json
import statistics
import sys

STEADY = 0.15  # Least value of Kendall's tau of a series that grows.
SEGMENT_KIB = 1088  # Size of the shared segment of a value of 1 MiB, in KiB.
SAMPLES_LEAST = 12  # Series with fewer samples in the half are not judged.
SECONDS_LEAST = 600  # Least length of the second half.
SAMPLES_MOST = 200  # Longer series of a half are thinned, because the number of pairs grows with the square.

# These series are kept but not judged, because they follow the load of the last minute or have a bound.
FREE = ("keys", "used_kib", "logs", "held_kib")

# The growth that a series may have over the half: a number in its unit, or a share of its median,
# whichever is larger.  The memory in use at a rest varies by the small blocks that threads keep, at
# most 1 MiB for each thread.  Shared memory changes by whole segments: a process keeps one more
# segment whenever the number of large values in flight reaches a new maximum.
ALLOWED = {"heap_kib": (512, 0.02), "rest_kib": (512, 0.02), "pss_kib": (512, 0.02),
           "rss_kib": (1024, 0.02), "shmem_kib": (SEGMENT_KIB, 0.02), "fds": (2, 0.02),
           "threads": (1, 0), "count": (2, 0.05), "records": (4, 0.05), "files": (8, 0.05),
           "kib": (4096, 0.05), "zombies": (1, 0)}


def held_by(process):
    """Returns the numbers of one process, with shared memory subtracted from PSS and RSS.

    Shared memory changes by segments and is a series of its own.
    """
    shared = process["shmem_kib"]
    return {"pss_kib": process["pss_kib"] - shared, "rss_kib": process["rss_kib"] - shared,
            "shmem_kib": shared, "fds": process["fds"], "threads": process["threads"]}


def series_of(samples):
    """Returns {name: [(seconds, value)]}.

    Long-lived processes have series of their own.  Actors and fork servers come and go, so they have
    one series for their number and one for each mean of what they hold.
    """
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
    """Returns the points after the middle of the run, thinned evenly to at most SAMPLES_MOST."""
    half = [point for point in points if point[0] >= end / 2]
    step = -(-len(half) // SAMPLES_MOST)
    return half[::step] if step > 1 else half


def judge(points, unit):
    """Returns the verdict on the points of one series in the second half."""
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
    """Returns {name: verdict} of all series that have enough samples in the second half."""
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


if __name__ == "__main__":  # "verdict.py samples.jsonl" prints the verdict on a run that has ended.
    lines = open(sys.argv[1], encoding="ascii").read().splitlines()
    for name, one in verdict([json.loads(line) for line in lines]).items():
        print("GROWS" if one["grows"] else "flat ", name, one)
