#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_history.py - the checker of histories accepts a good one and finds each kind of mistake."""
import copy
import pathlib
import sys
import unittest

import history

SECOND = history.SECOND
FAULT_AT = 10 * SECOND


def hold(at, by, role, node, **more):
    return {"t": at, "by": by, "k": "hold", "role": role, "actor": "a" * 8 + role, "name": "", "gpus": [],
            "node": node, "node_id": "", "restarts": 0, **more}


def good_history():
    """A history in which n2 is lost after 10 s.  restart-1 ran on it and is back on n3 at 25 s; named-1 and gpu-1 also
    ran on it, and their driver has created them again."""
    records = [{"t": 40 * SECOND, "by": "test", "k": "fault", "begun": FAULT_AT, "healed": 35 * SECOND,
                "draining": 39 * SECOND, "drained": 40 * SECOND, "harmed": ["n2"], "apart": [], "quiet": False,
                "takeover": True,
                "killed": ["named-1:20", "restart-1:21", "gpu-1:22"], "continued": {}, "replaced": [],
                "notice_s": 12, "lease_s": 15,
                "grace_s": 2, "start_s": 5,
                "alive": ["driver-1:10", "caller-1:11", "named-1:30", "restart-1:31", "gpu-1:32"]}]
    records += [{"t": 0, "by": by, "k": "process"} for by in ("driver-1:10", "caller-1:11")]
    things = {"named-1": {"name": "named-1"}, "restart-1": {}, "gpu-1": {"gpus": [0]}}
    for number, (role, more) in enumerate(things.items()):
        for tenth in range(10, 101):
            records.append(hold(tenth * SECOND // 10, f"{role}:{20 + number}", role, "n2", **more))
        for tenth in range(250, 400):
            again = {**more, "restarts": int(role == "restart-1"), "actor": "aaaaaaaa" + role if role == "restart-1"
                     else "b" + role}
            records.append(hold(tenth * SECOND // 10, f"{role}:{30 + number}", role, "n3", **again))
    for by in ("driver-1:10", "caller-1:11"):
        number = 0
        for role_number, role in enumerate(things):
            for at in [*range(2, 10), *range(26, 39)]:
                number += 1
                answer = f"{role}:{(20 if at < 10 else 30) + role_number}"
                records += [{"t": at * SECOND, "by": by, "k": "call", "id": f"{by}/{number}", "to": role},
                            {"t": at * SECOND + 1000, "by": answer, "k": "run", "id": f"{by}/{number}"},
                            {"t": at * SECOND + 60000, "by": by, "k": "end", "id": f"{by}/{number}", "status": 0,
                             "what": "success", "answer": answer}]
            number += 1
            records += [{"t": FAULT_AT - 10000, "by": by, "k": "call", "id": f"{by}/{number}", "to": role},
                        {"t": FAULT_AT + 11 * SECOND, "by": by, "k": "end", "id": f"{by}/{number}", "status": -60,
                         "what": "the node is lost", "why": "n2 does not answer for 10 s"}]
    return records


class Checker(unittest.TestCase):
    def setUp(self):
        self.records = copy.deepcopy(good_history())

    def broken(self):
        return sorted(history.judge(self.records)["broken"])

    def one(self, kind, **members):
        """Returns the first record of a kind with these members."""
        return next(record for record in self.records if record["k"] == kind and
                    all(record.get(name) == value for name, value in members.items()))

    def fault(self):
        return self.one("fault")

    def answered_at(self, at, role="restart-1"):
        """Returns the call, the run and the end of the driver's call that was made at that time."""
        call = self.one("call", t=at * SECOND, to=role, by="driver-1:10")
        return call, self.one("run", id=call["id"]), self.one("end", id=call["id"])

    def test_a_good_history_is_accepted_and_measured(self):
        verdict = history.judge(self.records)
        self.assertEqual(verdict["broken"], {})
        self.assertEqual(verdict["measures"]["notice_s"], 11)
        self.assertAlmostEqual(verdict["measures"]["recover_restart_s"], 16.06)
        self.assertEqual(verdict["measures"]["seen"], [("the node is lost: nN does not answer for N s", 6)])

    def test_a_lost_call_is_found(self):
        call = self.one("call", t=FAULT_AT - 10000)
        self.records.remove(self.one("end", id=call["id"]))
        self.assertEqual(self.broken(), ["each_call_ends_once"])

    def test_a_call_of_a_process_that_was_killed_may_have_no_end(self):
        call = self.one("call", t=FAULT_AT - 10000)
        self.records.remove(self.one("end", id=call["id"]))
        self.fault()["alive"].remove(call["by"])
        self.fault()["killed"].append(call["by"])
        self.assertEqual(self.broken(), [])

    def test_two_ends_are_found(self):
        self.records.append({**self.answered_at(5)[2], "t": 6 * SECOND})
        self.assertEqual(self.broken(), ["each_call_ends_once"])

    def test_a_refusal_without_a_reason_is_found(self):
        self.one("end", status=-60)["why"] = ""
        self.assertEqual(self.broken(), ["each_call_ends_once"])

    def test_a_call_that_runs_twice_is_found(self):
        run = self.answered_at(5)[1]
        self.records.append({**run, "by": "restart-1:31", "t": 25 * SECOND})
        self.assertEqual(self.broken(), ["each_call_runs_once"])

    def test_an_answer_without_a_run_is_found(self):
        self.records.remove(self.answered_at(5)[1])
        self.assertEqual(self.broken(), ["each_call_runs_once"])

    def test_a_double_holder_of_a_name_is_found(self):
        self.records.append(hold(26 * SECOND, "named-1:20", "named-1", "n2", name="named-1"))
        self.assertEqual(self.broken(), ["nothing_is_held_twice"])
        self.assertIn("the name named-1", history.judge(self.records)["broken"]["nothing_is_held_twice"][0])

    def test_a_double_holder_of_a_gpu_is_found(self):
        for record in self.records:
            if record["k"] == "hold" and record["role"] == "gpu-1":
                record["node"] = "n3"
        self.assertEqual(self.broken(), [])
        self.records.append(hold(25 * SECOND + 1, "gpu-1:22", "gpu-1", "n3", gpus=[0]))
        self.assertEqual(self.broken(), ["nothing_is_held_twice"])

    def test_two_processes_of_an_actor_are_found(self):
        self.records.append(hold(25 * SECOND + 1, "restart-1:21", "restart-1", "n2"))
        self.assertEqual(self.broken(), ["nothing_is_held_twice"])

    def test_a_continued_process_may_write_until_it_is_killed(self):
        self.fault()["continued"]["restart-1:21"] = 30 * SECOND
        self.records.append(hold(30 * SECOND + 20000, "restart-1:21", "restart-1", "n2"))
        self.assertEqual(self.broken(), [])
        self.records.append(hold(32 * SECOND, "restart-1:21", "restart-1", "n2"))
        self.assertEqual(self.broken(), ["nothing_is_held_twice"])

    def test_an_answer_of_the_old_process_is_found(self):
        _, run, end = self.answered_at(30)
        run["by"] = end["answer"] = "restart-1:21"
        self.assertEqual(self.broken(), ["no_old_process_answers"])

    def test_a_caller_that_hears_late_is_found(self):
        self.one("end", status=-60)["t"] = FAULT_AT + 13 * SECOND
        self.assertEqual(self.broken(), ["no_call_waits_long"])

    def test_a_refusal_that_does_not_name_the_node_and_its_lease_is_found(self):
        self.fault()["apart"] = ["n1", "n2"]
        self.assertEqual(self.broken(), ["refusals_name_the_node"])
        for text in ("node n2 has not answered node n1 for 10.1 s", "node n2 has not answered node n1 for 10.1 s; it "
                     "counts as lost when it has not renewed its lease for 30 s"):
            for record in self.records:
                if record.get("status") == -60:
                    record["why"] = text
            self.assertEqual(self.broken(), ["refusals_name_the_node"])
        self.fault()["lease_s"] = 30
        self.assertEqual(self.broken(), [])

    def test_a_cut_that_no_call_notices_is_found(self):
        self.fault()["apart"] = ["n1", "n4"]
        self.assertEqual(self.broken(), ["refusals_name_the_node"])

    def test_a_failure_in_a_quiet_fault_is_found(self):
        self.fault()["quiet"] = True
        self.assertEqual(self.broken(), ["nobody_notices"])
        self.fault()["replaced"] = ["named-1", "restart-1", "gpu-1"]
        self.assertEqual(self.broken(), [])
        self.assertEqual(history.judge(self.records)["measures"]["seen"], [])

    def test_a_death_elsewhere_is_found(self):
        self.fault()["killed"].remove("gpu-1:22")
        self.assertEqual(self.broken(), [])  # Its node was harmed.
        self.fault()["harmed"] = ["n3"]
        self.assertEqual(self.broken(), ["only_the_harmed_die"])

    def test_what_begins_and_ends_in_the_drain_is_not_judged(self):
        self.records.append(hold(39 * SECOND + 1000, "pending-1:50", "pending-1", "n1"))
        self.assertEqual(self.broken(), [])

    def test_of_two_actors_that_replace_one_the_younger_may_end(self):
        self.records.append(hold(26 * SECOND, "gpu-3:60", "gpu-3", "n1"))
        self.assertEqual(self.broken(), ["only_the_harmed_die"])
        self.fault()["replaced"] = ["gpu-3"]
        self.assertEqual(self.broken(), [])

    def test_an_actor_that_does_not_come_back_is_found(self):
        for record in list(self.records):
            if record["k"] == "end" and record["t"] > 24 * SECOND and record.get("answer") == "restart-1:31":
                del record["answer"]
                record.update(status=-40, what="the actor died", why="its node is lost")
        self.assertEqual(self.broken(), ["actors_answer_again"])

    def test_an_actor_that_comes_back_late_is_found(self):
        self.fault()["lease_s"] = 5
        self.assertEqual(self.broken(), ["actors_answer_again"])

    def test_each_rule_is_broken_by_a_test(self):
        """A rule that is added needs a history that breaks it."""
        source = pathlib.Path(__file__).read_text(encoding="utf-8")
        for rule in history.RULES:
            self.assertIn(f'["{rule.__name__}"]', source)


if __name__ == "__main__":
    sys.exit(0 if unittest.main(exit=False).result.wasSuccessful() else 1)
