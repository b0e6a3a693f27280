#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The soak's verdict on samples of which it is known what they do."""
import pathlib
import random
import sys
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "soak"))
import plot  # noqa: E402
import verdict  # noqa: E402

EVERY_SECONDS = 5
SEED = 20261121


def recorded(seconds, pss=lambda at: 12000, workers=lambda at: 8, records=lambda at: 60,
             segments=lambda at: 6, rest=lambda at: 6000):
    """Looks like those of watch.py, with noise as a real run has it."""
    chance = random.Random(SEED)
    samples = []
    for at in range(0, seconds, EVERY_SECONDS):
        shared = 1028 * int(segments(at))
        processes = [{"pid": 10, "role": "driver 0",
                      "pss_kib": pss(at) + shared + chance.gauss(0, 900),
                      "rss_kib": 20000 + shared + chance.gauss(0, 900), "shmem_kib": shared,
                      "fds": 28 + chance.randrange(4), "threads": 4}]
        for number in range(int(workers(at)) + chance.randrange(4)):
            processes.append({"pid": 100 + number, "role": "worker", "pss_kib": 900,
                              "rss_kib": 6000, "shmem_kib": 0, "fds": 12, "threads": 2})
        heap = {"heap_kib": 6000 + chance.gauss(0, 600), "held_kib": 12000 + at,
                "rest_kib": rest(at) + chance.gauss(0, 100)}
        samples.append({"seconds": at, "processes": processes, "zombies": 0, "heaps": [heap],
                        "redis": [{"records": records(at) + chance.randrange(20), "keys": 9000 + at}],
                        "tmp": {"files": 30 + chance.randrange(6), "logs": at, "kib": 1000}})
    return samples


def grows(samples):
    return sorted(name for name, one in verdict.verdict(samples).items() if one["grows"])


class Verdict(unittest.TestCase):
    def test_noise_is_flat(self):
        self.assertEqual(grows(recorded(3600)), [])

    def test_a_leak_smaller_than_the_noise_is_seen(self):
        leak = recorded(3600, pss=lambda at: 12000 + at * 0.5)  # 900 KiB in the half
        self.assertEqual(grows(leak), ["driver 0 pss_kib"])

    def test_what_is_kept_at_rest_is_seen(self):
        self.assertEqual(grows(recorded(3600, rest=lambda at: 6000 + at * 0.35)),
                         ["driver 0 rest_kib"])

    def test_a_segment_more_is_flat_and_one_every_ten_minutes_is_not(self):
        self.assertEqual(grows(recorded(3600, segments=lambda at: 6 + (at > 2700))), [])
        self.assertEqual(grows(recorded(3600, segments=lambda at: 6 + at / 600)),
                         ["driver 0 shmem_kib"])

    def test_processes_that_pile_up_are_seen(self):
        self.assertEqual(grows(recorded(3600, workers=lambda at: 8 + at / 360)), ["worker count"])

    def test_records_that_pile_up_are_seen(self):
        self.assertEqual(grows(recorded(3600, records=lambda at: 60 + at / 60)),
                         ["redis data #0 records"])

    def test_what_fills_in_the_first_half_is_flat(self):
        self.assertEqual(grows(recorded(3600, pss=lambda at: 12000 + 40 * min(at, 1500))), [])

    def test_one_look_that_is_far_off_changes_nothing(self):
        samples = recorded(3600)
        samples[-1]["processes"][0]["pss_kib"] = 1e6
        self.assertEqual(grows(samples), [])

    def test_what_shrinks_does_not_grow(self):
        self.assertEqual(grows(recorded(3600, pss=lambda at: 60000 - at * 10)), [])

    def test_a_short_run_is_not_judged(self):
        self.assertEqual(verdict.verdict(recorded(200, pss=lambda at: 12000 + 100 * at)), {})

    def test_the_curves_are_a_page_with_each_series(self):
        samples = recorded(3600, pss=lambda at: 12000 + at)
        series = verdict.series_of(samples)
        page = xml.etree.ElementTree.fromstring(
            plot.page(series, verdict.verdict(samples), samples[-1]["seconds"]))
        lines = [node for node in page if node.tag.endswith("polyline")]
        self.assertEqual(len(lines), len(series))
        self.assertEqual(sum(line.get("stroke") == "#c00000" for line in lines), 1)


if __name__ == "__main__":
    unittest.main()
