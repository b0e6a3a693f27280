# SPDX-License-Identifier: Apache-2.0
"""failover.py - talks with failover_program.c, whose actors should outlive a failover of Redis."""
import subprocess


class Program:
    """A run of the program: a driver with an actor "kept" and one without a name."""

    def __init__(self, words, environment, **options):
        self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=environment, **options)

    def ask(self, line):
        """Gives the program a line; returns the process ID and the number of calls of each actor that it names."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        said = {}
        while (reply := self.process.stdout.readline().split()) != ["done"]:
            if len(reply) != 3:
                raise AssertionError(f"the program has ended with {self.process.wait()}")
            said[reply[0]] = (int(reply[1]), int(reply[2]))
        return said

    def end(self):
        self.process.stdin.close()
        code = self.process.wait(timeout=60)
        self.process.stdout.close()
        return code
