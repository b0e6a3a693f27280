#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a soak, which shows whether Tandem's processes grow while a cluster is in use.

The program starts a cluster on this machine and drivers that use it at random.  It samples all processes every few
seconds, and reports at the end which series of numbers grew.
"""
import argparse
import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import plot
import verdict
import watch

PR_SET_CHILD_SUBREAPER = 36
START_SECONDS = 20
END_SECONDS = 90
# Each line of a driver has these counts, and then the numbers of its heap in KiB: what is in use, what the allocator
# holds, and what was in use at the last rest.
COUNTS = ("acts", "calls", "bytes", "actors", "groups", "mistakes")
HEAPS = ("heap_kib", "held_kib", "rest_kib")


def options_of(words):
    """Returns the options of the command line, with absolute paths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, choices=(1, 2), default=2,
                        help="1: one daemon with a store of its own; 2: two, and a Redis")
    parser.add_argument("--threads", type=int, default=2, help="of each driver; one a node")
    parser.add_argument("--every", type=float, default=5, help="seconds between two looks")
    parser.add_argument("--out", type=pathlib.Path, default=None,
                        help="for samples.jsonl, summary.json, curves.svg, the logs (build/soak)")
    parser.add_argument("--build", type=pathlib.Path, required=True)
    options = parser.parse_args(words)
    options.out = (options.out or options.build.parent / "soak").absolute()
    options.build = options.build.absolute()
    return options


class Cluster:
    """Owns Redis, the daemons, the drivers and their temporary directory; end() removes them all."""

    def __init__(self, options):
        self.options = options
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="soak-"))
        self.programs = self.directory / "programs"
        self.environment = {**os.environ, "TMPDIR": str(self.directory),
                            "LD_LIBRARY_PATH": str(self.programs),
                            "TANDEM_TOKEN_FILE": str(self.directory / "token")}
        self.environment.pop("TANDEM_ADDRESS", None)
        self.redis_paths = []
        self.addresses = []
        self.drivers = []
        self.others = []
        self.counts = []
        self.revision = revision()  # The revision at the start, because the sources may change during the run.

    def spawn(self, name, command, environment=None, output=None):
        """Starts a process and returns it. Its stderr, and its stdout without `output`, go to NAME.log."""
        log = (self.options.out / f"{name}.log").open("wb")
        with log:
            return subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                    stdout=output or log, stderr=log,
                                    env=environment or self.environment)

    def start_redis(self):
        """Starts Redis on a Unix socket and blocks until the socket exists."""
        path = self.directory / "redis.sock"
        self.others.append(self.spawn("redis", [
            "redis-server", "--port", 0, "--unixsocket", path, "--dir", self.directory,
            "--save", "", "--appendonly", "no"]))
        self.redis_paths.append(path)
        deadline = time.monotonic() + START_SECONDS
        while not path.exists():
            if time.monotonic() > deadline:
                raise RuntimeError("redis-server does not start; redis.log says why")
            time.sleep(0.01)

    def start_daemon(self, name):
        """Starts the daemon of a node and blocks until it is ready. Keeps the daemon's address."""
        command = [self.programs / "tandemd", "--name", name, "--cpus", 4, "--gpus", 1,
                   "--directory", self.directory / name]
        if self.redis_paths:
            command += ["--redis", f"unix://{self.redis_paths[0]}", "--listen", "127.0.0.1"]
        daemon = self.spawn(f"daemon-{name}", command, output=subprocess.PIPE)
        self.others.append(daemon)
        said = daemon.stdout.readline().decode(errors="replace").strip()
        if not said.startswith("ready "):
            raise RuntimeError(f"no daemon {name}: {said}")
        self.addresses.append(said.split()[2])

    def copy_programs(self):
        """Copies the programs, so that a build during the run does not change them."""
        self.programs.mkdir()
        for name in ("tandemd", "libtandem.so.0", "bench/soak"):
            shutil.copy(self.options.build / name, self.programs)

    def start(self):
        """Starts the cluster and two drivers, which run for `minutes`."""
        self.copy_programs()
        token = self.directory / "token"
        token.touch(0o600)
        token.write_bytes(os.urandom(32))
        if self.options.nodes == 2:
            self.start_redis()
        for name in ("first", "second")[:self.options.nodes]:
            self.start_daemon(name)
        if self.options.nodes == 1:
            self.redis_paths = list(self.directory.glob("first/redis/socket"))
        for number in range(2):
            environment = {**self.environment,
                           "TANDEM_ADDRESS": self.addresses[number % len(self.addresses)]}
            driver = self.spawn(f"driver-{number}", [
                self.programs / "soak", int(self.options.minutes * 60),
                self.options.threads, self.options.seed, number], environment, subprocess.PIPE)
            self.drivers.append(driver)
            self.counts.append([0] * (len(COUNTS) + len(HEAPS)))
            threading.Thread(target=self.read_counts, args=(number,), daemon=True).start()

    def read_counts(self, number):
        """Keeps the newest counts of a driver until its stdout closes. Runs on a thread of its own."""
        for line in self.drivers[number].stdout:
            self.counts[number] = [int(word) for word in line.split()]

    def totals(self):
        """Returns the sums of the counts of all drivers."""
        return dict(zip(COUNTS, map(sum, zip(*self.counts))))

    def running(self):
        """Returns whether a driver is still running."""
        return any(driver.poll() is None for driver in self.drivers)

    def sample(self, begun):
        """Returns one sample of all processes. `begun` is the start of the run on time.monotonic()."""
        one = watch.sample(os.getpid(), [driver.pid for driver in self.drivers],
                           self.redis_paths, self.directory, begun)
        heaps = [dict(zip(HEAPS, counts[len(COUNTS):])) for counts in self.counts]
        return {**one, **self.totals(), "heaps": heaps}

    def left(self):
        """Returns the workers and records that remain after the drivers have ended.

        No actor outlives its driver, so the function waits up to START_SECONDS until no worker remains.
        """
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            roles = [watch.role(pid, []) for pid in watch.tree(os.getpid())]
            workers = [name for name in roles if name == "worker"]
            if not workers:
                break
            time.sleep(0.1)
        stores = [watch.redis(path) for path in self.redis_paths]
        return {"workers": len(workers), "stores": stores}

    def end(self):
        """Ends all processes, removes the directory, and returns the processes and files that remained."""
        for processes in (self.drivers, self.others[::-1]):
            for process in processes:
                if process.poll() is None:
                    process.terminate()
                try:
                    process.wait(END_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        remains = watch.tree(os.getpid())
        for pid in remains:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        names = sorted(str(path.relative_to(self.directory)) for path in self.directory.rglob("*")
                       if not {"logs", "programs"} & set(path.parts))
        shutil.rmtree(self.directory, ignore_errors=True)
        return {"processes": len(remains), "files": names}


def watch_it(cluster, samples, begun):
    """Samples the cluster until the drivers have ended, and appends to `samples` and to samples.jsonl.

    Returns None, or a text if the drivers still run END_SECONDS after the end of the run.
    """
    options = cluster.options
    end = begun + options.minutes * 60
    with (options.out / "samples.jsonl").open("w", encoding="ascii") as log:
        look = begun
        while cluster.running():
            if time.monotonic() > end + END_SECONDS:
                return "the drivers do not end"
            if time.monotonic() < look or time.monotonic() >= end:
                time.sleep(0.05)
                continue
            look += options.every
            samples.append(cluster.sample(begun))
            log.write(json.dumps(samples[-1]) + "\n")
            log.flush()
    return None


def rates(samples):
    """Returns the calls per second between samples: the median, and the means of the first and the last quarter."""
    pairs = list(zip(samples, samples[1:]))
    each = [(b["calls"] - a["calls"]) / (b["seconds"] - a["seconds"]) for a, b in pairs]
    if not each:
        return {}
    quarter = max(1, len(each) // 4)
    return {"median": round(sorted(each)[len(each) // 2], 1),
            "first_quarter": round(sum(each[:quarter]) / quarter, 1),
            "last_quarter": round(sum(each[-quarter:]) / quarter, 1),
            "stalled_looks": sum(rate == 0 for rate in each)}


def revision():
    """Returns the revision of the sources as `git describe` names it."""
    here = pathlib.Path(__file__).parent
    said = subprocess.run(["git", "-C", here, "describe", "--always", "--dirty"],
                          capture_output=True, text=True, check=False)
    return said.stdout.strip()


def summary_of(cluster, samples, problems, left, remains):
    """Returns the contents of summary.json, and appends what went wrong to `problems`."""
    judged = verdict.verdict(samples)
    options = cluster.options
    grows = sorted(name for name, one in judged.items() if one["grows"])
    if cluster.totals()["mistakes"] > 0:
        problems.append(f"{cluster.totals()['mistakes']} mistakes; driver-*.log tell them")
    for number, driver in enumerate(cluster.drivers):
        if driver.returncode not in (0, 1):
            problems.append(f"driver {number} ended with {driver.returncode}")
    if left["workers"] > 0:
        problems.append(f"{left['workers']} workers outlived their drivers")
    sockets = [name for name in remains["files"] if "/a-" in name or "/o-" in name]
    if sockets:
        problems.append(f"{len(sockets)} sockets were left: {sockets[0]}")
    if remains["processes"] > 0:
        problems.append(f"{remains['processes']} processes outlived their daemons")
    return {"revision": cluster.revision, "minutes": options.minutes, "seed": options.seed, "nodes": options.nodes,
            "threads": options.threads, "looks": len(samples), "totals": cluster.totals(),
            "calls_per_second": rates(samples), "left": left, "remains": remains,
            "problems": problems, "grows": grows, "series": judged}


def main():
    """Runs the soak and returns the exit code: 0 if nothing grew and nothing went wrong."""
    options = options_of(sys.argv[1:])
    options.out.mkdir(parents=True, exist_ok=True)
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("prctl")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    cluster = Cluster(options)
    samples = []
    problems = []
    left = {"workers": 0, "stores": []}
    try:
        cluster.start()
        problem = watch_it(cluster, samples, time.monotonic())
        if problem:
            problems.append(problem)
        else:
            left = cluster.left()
    finally:
        remains = cluster.end()
    summary = summary_of(cluster, samples, problems, left, remains)
    (options.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    end = samples[-1]["seconds"] if samples else 0
    (options.out / "curves.svg").write_text(
        plot.page(verdict.series_of(samples), summary["series"], end))
    print(json.dumps({key: summary[key] for key in
                      ("totals", "calls_per_second", "left", "remains", "problems", "grows")}))
    flat = not summary["grows"] and not problems
    word = "no growth judged, too short" if flat and not summary["series"] else "flat"
    print(f"{word if flat else 'NOT FLAT'}; {options.out}/summary.json, curves.svg")
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
