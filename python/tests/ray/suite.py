# SPDX-License-Identifier: Apache-2.0
"""What the files of the suite share: the size of the cluster, marks, small actors and one way to wait."""
import asyncio
import os
import time

import pytest
import ray

CLUSTER = {
    "num_cpus": 4,
    "num_gpus": 4,
    "resources": {"widget": 2},
    "namespace": "suite",
    "log_to_driver": False,
    "include_dashboard": False,
}

# Seconds after which a test gives up waiting for something that should take a moment.
PATIENCE = 60

shows = pytest.mark.shows
refuses = pytest.mark.refuses


def eventually(condition, patience=PATIENCE):
    """Waits until the condition is true and returns its value; fails after `patience` seconds."""
    deadline = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.05)


class CustomError(Exception):
    """An exception of the user's own, with a field."""

    def __init__(self, code):
        super().__init__(f"custom error {code}")
        self.code = code

    def __reduce__(self):
        return (CustomError, (self.code,))


@ray.remote(num_cpus=0)
class Echo:
    """An actor without state."""

    def echo(self, value=None):
        return value

    def collect(self, *positional, **named):
        return positional, named

    def pid(self):
        return os.getpid()

    def sleep(self, seconds, value=None):
        time.sleep(seconds)
        return value

    def fail(self, exception):
        raise exception

    def environment(self, name):
        return os.environ.get(name)


@ray.remote(num_cpus=0)
class Counter:
    """An actor with one number as its state."""

    def __init__(self, start=0):
        self.number = start

    def add(self, amount=1):
        self.number += amount
        return self.number

    def value(self):
        return self.number

    def pid(self):
        return os.getpid()

    def exit(self):
        os._exit(3)


@ray.remote(num_cpus=0)
class Gate:
    """A method call that returns only after the test has opened the gate."""

    def __init__(self):
        self.event = asyncio.Event()

    async def wait(self, value="open"):
        await self.event.wait()
        return value

    async def open(self):
        self.event.set()


@ray.remote(num_cpus=0)
def identity(value):
    return value


@ray.remote(num_cpus=0, max_retries=0)
def fail_with(exception):
    raise exception
