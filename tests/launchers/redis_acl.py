#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""redis_acl.py BUILD - a node uses Redis as the user of docs/cluster.md, whose rights are exactly those that it needs."""
import pathlib
import re
import shlex
import sys
import tempfile
import time
import unittest

import redis_servers

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Commands that the programs send themselves; those inside of the library are read from its source.
OWN_COMMANDS = {"ping", "fcall", "fcall_ro", "wait", "role"}


def documented_rights():
    """Returns the words behind `ACL SETUSER tandem` in docs/cluster.md."""
    text = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8").replace("\\\n", " ")
    return shlex.split(re.search(r"redis-cli ACL SETUSER tandem (.*)", text)[1])


class RedisUser(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tdr-")
        self.addCleanup(self.folder.cleanup)
        self.server = redis_servers.Server(self.folder.name)
        self.addCleanup(self.server.end)
        self.assertEqual(self.set_user(*documented_rights()), "OK")
        self.node = redis_servers.Node(BUILD, f"{self.folder.name}/a",
                                       f"redis://tandem:PASSWORD@127.0.0.1:{self.server.port}")
        self.addCleanup(self.node.stop)

    def set_user(self, *rights):
        return self.server.ask("ACL", "SETUSER", "tandem", *rights)

    def load_functions(self):
        library = self.node.run("redis-functions").stdout
        self.assertTrue(library.startswith("#!lua"))
        self.assertRegex(self.server.ask("-x", "FUNCTION", "LOAD", text=library), r"^tandem_[0-9a-f]{16}$")

    def refusals(self):
        """Returns the lines of the node's log about missing rights."""
        return [line for line in self.node.log().splitlines() if "NOPERM" in line or "lacks a right" in line]

    def test_documented_rights_are_those_that_the_source_needs(self):
        source = (ROOT / "runtime" / "redis" / "functions.c").read_text(encoding="utf-8")
        needed = OWN_COMMANDS | {name.lower() for name in re.findall(r"redis\.call\('(\w+)'", source)}
        self.assertEqual({word[1:] for word in documented_rights() if word.startswith("+")}, needed)

    def test_node_of_a_user_with_these_rights_starts_and_runs_an_actor(self):
        self.load_functions()
        done = self.node.start()
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.node.run(1, program="tests/spread_program", address=True)
        self.assertEqual((done.returncode, done.stdout), (0, "rank on \n"), done.stderr)
        self.assertEqual(self.node.stop().returncode, 0)
        self.assertNotIn("NOPERM", self.node.log())
        self.assertEqual(self.server.ask("ACL", "LOG"), "")
        self.assertNotIn("PASSWORD", self.node.log())

    def test_missing_functions_name_the_remedy(self):
        done = self.node.start()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("tandem redis-functions | redis-cli -x FUNCTION LOAD", done.stderr)

    def test_missing_right_is_named(self):
        self.load_functions()
        for command in ("ping", "fcall", "fcall_ro", "hset", "info"):
            with self.subTest(command):
                self.set_user(f"-{command}")
                done = self.node.start()
                self.set_user(f"+{command}")
                self.assertNotEqual(done.returncode, 0)
                if command in OWN_COMMANDS:
                    self.assertRegex(done.stderr, rf"permissions.*'{command}'")
                else:  # Redis 7.0 does not name it in the reply to a function, but in its log, to which the node leads.
                    self.assertRegex(done.stderr, "lacks a right.*tandem_.*ACL LOG")
                    self.assertIn(f'\n{command}\n', self.server.ask("ACL", "LOG", 1))
                self.assertEqual(len(self.refusals()), 1, self.node.log())
                self.assertNotIn("PASSWORD", done.stderr)

    def test_other_keys_are_refused(self):
        self.load_functions()
        self.set_user("resetkeys", "~tdm:{other}:*")
        done = self.node.start()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("NOPERM", done.stderr)
        self.assertEqual(len(self.refusals()), 1, self.node.log())

    def test_wrong_password_is_refused(self):
        self.load_functions()
        self.set_user("resetpass", ">another")
        done = self.node.start()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("WRONGPASS", done.stderr)
        self.assertEqual(self.node.log().count("WRONGPASS"), 1, self.node.log())
        self.assertNotIn("PASSWORD", done.stderr)
        self.assertNotIn("PASSWORD", self.node.log())

    def wait_for_log(self, text):
        redis_servers.wait_until(lambda: text in self.node.log(), f"the node logs {text!r}")

    def test_rights_that_are_taken_away_while_the_node_runs_are_named_once_each(self):
        self.load_functions()
        done = self.node.start()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("lacks a right", self.node.log())
        self.set_user("-zadd")  # A command inside of a function, which a renewal calls.
        self.wait_for_log("lacks a right")
        self.set_user("-fcall")
        self.wait_for_log("'fcall'")
        time.sleep(3)  # The node renews its lease each second.
        log = self.node.log()
        self.assertEqual(len(re.findall("lacks a right.*renew", log)), 1, log)
        self.assertEqual(len(re.findall("lacks a right.*'fcall'", log)), 1, log)
        self.assertEqual(log.count("lacks a right"), 2, log)
        self.set_user("+fcall", "+zadd")  # The node goes on.
        done = self.node.run(1, program="tests/spread_program", address=True)
        self.assertEqual((done.returncode, done.stdout), (0, "rank on \n"), done.stderr)

    def test_password_that_is_changed_while_the_node_runs_is_named_once(self):
        self.load_functions()
        self.assertEqual(self.node.start().returncode, 0)
        self.set_user("resetpass", ">another")
        self.server.ask("CLIENT", "KILL", "USER", "tandem")
        self.wait_for_log("WRONGPASS")
        time.sleep(3)
        self.assertEqual(self.node.log().count("WRONGPASS"), 1, self.node.log())


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
