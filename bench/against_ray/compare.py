#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare.py [--quick] [--rounds N] [--only NAME …]: compares Tandem with Ray in alternate rounds.

Prints the table of ratios and keeps every number in build/results.  See docs/performance.md.
"""
import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import time

import measures
import processes

def say(text):
    print(text, file=sys.stderr, flush=True)


class Table:
    """The table of results; each row is printed when it is complete."""

    def __init__(self):
        self.rows = []

    def add(self, row, ours, others, *, at_most=None):
        """Adds a row: two lists with one number for each round, and a limit for the median of our own."""
        at_most = at_most or row.ours_at_most
        ratios = [other / our if row.less_is_better else our / other
                  for our, other in zip(ours, others)]
        ratio = statistics.median(ratios)
        our = statistics.median(ours)
        limits = [(f">={row.at_least:g}x", ratio >= row.at_least)] if row.at_least else []
        limits += [(f"<={at_most:g}", our <= at_most)] if at_most else []
        limits += [(f">={row.ours_at_least:g}", our >= row.ours_at_least)] if row.ours_at_least else []
        reached = all(kept for _, kept in limits) if limits else None
        self.rows.append({
            "measure": row.title.strip(), "unit": row.unit, "against": row.against,
            "other": statistics.median(others), "tandem": our, "ratio": ratio,
            "ratio_min": min(ratios), "ratio_max": max(ratios),
            "target": " ".join(text for text, _ in limits), "reached": reached,
            "others": others, "tandems": ours})
        self.print_row(row.title, self.rows[-1])

    def fail(self, title, reason):
        self.rows.append({"measure": title.strip(), "reached": False, "failed": reason})
        print(f"{title:<31} failed: {reason}", flush=True)

    @staticmethod
    def print_head():
        print(f"{'measure':<31} {'against':<14} {'theirs':>10} {'tandem':>10} {'unit':<6} "
              f"{'ratio':>8} {'[min .. max]':>19}  {'target':<13} reached")

    @staticmethod
    def print_row(title, row):
        spread = f"[{row['ratio_min']:.3g} .. {row['ratio_max']:.3g}]"
        reached = {True: "yes", False: "NO", None: "-"}[row["reached"]]
        print(f"{title:<31} {row['against']:<14} {row['other']:>10.4g} {row['tandem']:>10.4g} "
              f"{row['unit']:<6} {row['ratio']:>8.3g} {spread:>19}  {row['target']:<13} {reached}",
              flush=True)


class Comparison:
    def __init__(self, options):
        self.options = options
        self.table = Table()
        self.ray = processes.Ray()
        self.sides = {}

    def side(self, name):
        """Returns a running side; starts it again if it has ended."""
        start = {"ray": self.ray.side, "tandem": processes.tandem_side,
                 "python": processes.python_side, "raw": processes.raw_side}[name]
        if name not in self.sides:
            self.sides[name] = start()
        return self.sides[name]

    def ask(self, name, round_name, seconds):
        try:
            return self.side(name).ask(round_name, seconds)
        except processes.Failed:
            self.sides.pop(name).end()
            raise

    def rounds_of(self, wanted):
        if self.options.rounds:
            return self.options.rounds
        return min(wanted, 3) if self.options.quick else wanted

    def compare(self, measure):
        """Runs a round on all sides; the order is reversed in the next round."""
        seconds = measure.seconds / 4 if self.options.quick else measure.seconds
        name = measure.asked or measure.name
        asked = {measure.ours: (measure.ours, name)}
        for row in measure.rows:
            side, _, variant = row.against.partition(", ")
            asked[row.against] = (side, "_".join(filter(None, (name, variant))))
        numbers = {key: [] for key in asked}
        for key, (side, round_name) in asked.items():
            self.ask(side, round_name, seconds / 2)  # This round warms up and is not counted.
        for index in range(self.rounds_of(measure.rounds)):
            for key in (list(asked) if index % 2 == 0 else reversed(asked)):
                side, round_name = asked[key]
                numbers[key].append(self.ask(side, round_name, seconds))
        for row in measure.rows:
            self.table.add(row, [found[row.number] for found in numbers[measure.ours]],
                           [found[row.number] for found in numbers[row.against]])

    def compare_all(self):
        for measure in measures.ROUNDS:
            if not self.wanted(measure.name):
                continue
            if measure.cores > len(os.sched_getaffinity(0)):
                say(f"skipped {measure.name}: it needs {measure.cores} cores")
                continue
            try:
                self.compare(measure)
            except processes.Failed as failure:
                self.table.fail(measure.rows[0].title, str(failure))

    def wanted(self, name):
        return not self.options.only or name in self.options.only

    # ---- clusters of their own ---------------------------------------------------------------

    def ray_up(self):
        """Returns the seconds from `ray start` to the first reply; Ray is imported before."""
        port = processes.free_port()
        driver = self.ray.side(port)
        begun = time.monotonic()
        self.ray.start_head(port)
        driver.ask("first_call", 0)
        took = time.monotonic() - begun
        driver.end()
        processes.end_all()
        return took

    @staticmethod
    def tandem_up():
        """Returns the seconds from the start of the driver, with its node and Redis, to the first reply."""
        begun = time.monotonic()
        driver = processes.tandem_side()
        driver.ask("first_call", 0)
        took = time.monotonic() - begun
        driver.end()
        processes.end_all()
        return took

    def compare_cluster_up(self):
        ours = []
        theirs = []
        for index in range(self.rounds_of(3)):
            for up, found in ([(self.tandem_up, ours), (self.ray_up, theirs)]
                              [::1 if index % 2 == 0 else -1]):
                found.append(up())
        self.table.add(measures.CLUSTER_UP, ours, theirs)

    # ---- memory ------------------------------------------------------------------------------

    def weigh(self, name, is_node, is_store):
        """Measures the PSS of each node's processes without workers, of the cluster's store, and of an actor."""
        actors = [int(pid) for pid in self.ask(name, "idle", 0)]
        weights = {"node": 0.0, "store": 0.0,
                   "actor": statistics.mean(processes.pss_mib(pid) for pid in actors)}
        for pid in processes.descendants(self.side(name).process.pid):
            part = ("store" if is_store(pid) else
                    "node" if pid not in actors and is_node(pid) else None)
            if part is not None:
                weights[part] += processes.pss_mib(pid)
                say(f"{part} of {name}: {processes.pss_mib(pid):.1f} MiB, "
                    f"{processes.command_line(pid).strip()[:60]}")
        return weights

    def compare_memory(self):
        self.end_sides()  # Only the idle actors may remain.
        ray_parts = ("raylet/raylet ", "ray::DashboardAgent", "ray::RuntimeEnvAgent",
                     "log_monitor.py")
        ours = self.weigh("tandem", lambda pid: True,
                          lambda pid: "redis" in processes.program(pid))
        theirs = self.weigh(
            "ray", lambda pid: any(part in processes.command_line(pid) for part in ray_parts),
            lambda pid: processes.program(pid).endswith("gcs_server"))
        in_python = self.weigh("python", lambda pid: True, lambda pid: "redis" in processes.program(pid))
        self.end_sides()
        for row, part, at_most in (
                (measures.NODE_MEMORY, "node", measures.NODE_MEMORY_MIB_MAX),
                (measures.STORE_MEMORY, "store", None),
                (measures.ACTOR_MEMORY, "actor", measures.ACTOR_MEMORY_MIB_MAX)):
            self.table.add(row, [ours[part]], [theirs[part]], at_most=at_most)
        self.table.add(measures.PYTHON_ACTOR_MEMORY, [in_python["actor"]], [theirs["actor"]],
                       at_most=measures.PYTHON_ACTOR_MEMORY_MIB_MAX)

    # ---- records -----------------------------------------------------------------------------

    def compare_records(self):
        side = processes.records_side()
        actors = 1000 if self.options.quick else 10000
        ours = [side.ask("records", actors)[0] for _ in range(self.rounds_of(3))]
        side.end()
        self.table.add(measures.RECORDS, ours, [measures.RECORDS_PUBLISHED] * len(ours))

    def end_sides(self):
        for side in self.sides.values():
            side.end()
        self.sides.clear()
        processes.end_all()

    def run(self):
        self.table.print_head()
        self.compare_all()
        self.end_sides()
        for name, compare in (("cluster_up", self.compare_cluster_up),
                              ("memory", self.compare_memory),
                              ("records", self.compare_records)):
            if not self.wanted(name):
                continue
            try:
                compare()
            except processes.Failed as failure:
                self.table.fail(name, str(failure))
            self.end_sides()


def machine():
    model = [line.split(":", 1)[1].strip()
             for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
             if line.startswith("model name")]
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=processes.ROOT,
                            capture_output=True, text=True, check=False).stdout.strip()
    return {"processor": model[0] if model else platform.machine(), "cores": os.cpu_count(),
            "kernel": platform.release(), "python": platform.python_version(),
            "ray": importlib.metadata.version("ray"), "tandem": commit}


def main():
    parser = argparse.ArgumentParser(prog="bench/against_ray/run")
    parser.add_argument("--quick", action="store_true",
                        help="three short rounds each: shows that everything runs, no more")
    parser.add_argument("--rounds", type=int, help="of every measure")
    parser.add_argument("--only", nargs="+", metavar="NAME",
                        help=f"some of: {' '.join(each.name for each in measures.ROUNDS)} "
                             "cluster_up memory records")
    options = parser.parse_args()
    result = {"begun": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
              "quick": options.quick, "machine": machine(), "load_before": os.getloadavg()}
    processes.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # The exit also ends all processes that were started.
    comparison = Comparison(options)
    try:
        comparison.run()
    finally:
        processes.end_all()
        comparison.ray.remove()
    result["load_after"] = os.getloadavg()
    result["rows"] = comparison.table.rows
    place = processes.ROOT / "build" / "results"
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"against_ray-{result['begun'][:19].replace(':', '')}.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    say(f"kept in {path.relative_to(processes.ROOT)}")
    sys.exit(1 if any(row["reached"] is False for row in comparison.table.rows) else 0)


main()
