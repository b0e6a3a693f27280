# SPDX-License-Identifier: Apache-2.0
"""redis_servers.py - real Redis servers and nodes of Tandem that use them, all on loopback addresses."""
import os
import pathlib
import socket
import subprocess
import time

START_SECONDS = 30  # Longest wait for a server.


def free_port(first=[20000 + os.getpid() % 12000]):  # pylint: disable=dangerous-default-value
    """Returns a port at 127.0.0.1 that is free, below those that the kernel gives to other sockets."""
    while True:
        first[0] = 20000 + (first[0] - 20000 + 1) % 12000
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", first[0]))
                return first[0]
            except OSError:
                continue


def wait_until(holds, what, seconds=START_SECONDS):
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {seconds} s")
        time.sleep(0.02)


class Server:
    """A redis-server, also one that is a Sentinel, with its files in a directory of its own."""

    def __init__(self, directory, *words, configuration=None, password=None):
        self.port = free_port()
        self.password = password  # Password of the default user, which the configuration sets.
        self.directory = pathlib.Path(directory, f"redis-{self.port}")
        self.directory.mkdir()
        line = ["redis-server"]
        if configuration:
            path = self.directory / "redis.conf"
            path.write_text(configuration)
            line.append(str(path))
        line += ["--port", self.port, "--bind", "127.0.0.1", "--dir", self.directory, "--save", "", *words]
        with (self.directory / "log").open("wb") as log:
            self.process = subprocess.Popen([str(word) for word in line], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log)
        wait_until(lambda: self.ask("PING") == "PONG", "redis-server replies")

    def ask(self, *words, text=None):
        login = ["--no-auth-warning", "-a", self.password] if self.password else []
        done = subprocess.run(["redis-cli", "-p", str(self.port), *login, *map(str, words)], capture_output=True,
                              text=True, input=text, stdin=None if text is not None else subprocess.DEVNULL, check=False)
        return (done.stdout + done.stderr).strip()

    def end(self):
        self.process.kill()
        self.process.wait()


class Node:
    """A node of `tandem start`, in a TMPDIR of its own."""

    def __init__(self, build, directory, url):
        self.build = build
        self.directory = pathlib.Path(directory)
        self.directory.mkdir()
        file = self.directory / "url"
        file.touch(0o600)
        file.write_text(url + "\n")
        token = self.directory.parent / "token"
        if not token.exists():
            token.touch(0o600)
            token.write_bytes(os.urandom(32))
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("TANDEM_")}
        self.environment.update(TMPDIR=str(self.directory), TANDEM_TOKEN_FILE=str(token), TANDEM_LEASE_MS="5000")

    def run(self, *words, program="tandem", address=False):
        environment = {**self.environment, **({"TANDEM_ADDRESS": "auto"} if address else {})}
        return subprocess.run([str(self.build / program), *map(str, words)], env=environment, capture_output=True,
                              text=True, timeout=100, check=False)

    def start(self, *words):
        return self.run("start", "--redis-file", self.directory / "url", "--node-ip-address", "127.0.0.1", "--num-cpus",
                        2, *words)

    def log(self):
        return next(self.directory.glob("tandem-started-*/tandemd.log")).read_text()

    def stop(self):
        return self.run("stop")
