# SPDX-License-Identifier: Apache-2.0
"""Failures: exceptions of methods, constructors and arguments; actors that die, restart and retry."""
import os
import sys
import tempfile
import time

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayActorError, RayTaskError


class OutOfBudget(Exception):
    def __init__(self, left):
        super().__init__(f"only {left} left")
        self.left = left


@ray.remote
class Account:
    def __init__(self, amount):
        if amount < 0:
            raise ValueError("an account cannot begin below zero")
        self.amount = amount

    def take(self, amount):
        if amount > self.amount:
            raise OutOfBudget(self.amount)
        self.amount -= amount
        print(f"took {amount}")
        return self.amount

    def divide(self, by):
        return self.amount / by


@ray.remote(max_restarts=2, max_task_retries=-1)
class Fragile:
    """Ends its process in every third call, counted in a file, because the object begins again."""

    def __init__(self, path):
        self.path = path
        self.calls = 0

    def work(self):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write("x")
        if os.path.getsize(self.path) % 3 == 0:
            sys.stdout.flush()
            os._exit(1)
        self.calls += 1
        return self.calls


@ray.remote(max_retries=3, retry_exceptions=[ConnectionError])
def flaky(path):
    with open(path, "a", encoding="utf-8") as file:
        file.write("x")
    if os.path.getsize(path) < 3:
        raise ConnectionError("not yet")
    return os.path.getsize(path)


@ray.remote
def fail():
    raise KeyError("key")


@ray.remote
def pass_on(value):
    return value


ray.init(num_cpus=4)
directory = tempfile.mkdtemp()

account = Account.remote(10)
print("left:", ray.get(account.take.remote(4)))
try:
    ray.get(account.take.remote(100))
except OutOfBudget as error:
    print("OutOfBudget:", error.left, isinstance(error, RayTaskError))
try:
    ray.get(account.divide.remote(0))
except RayTaskError as error:
    print("cause:", repr(error.cause), "Account.divide" in str(error))
print("still there:", ray.get(account.take.remote(1)))

broken = Account.remote(-1)
try:
    ray.get(broken.take.remote(1))
except ActorDiedError as error:
    print("constructor:", "an account cannot begin below zero" in str(error))

try:
    ray.get(pass_on.remote(fail.remote()))
except KeyError as error:
    print("through another task:", type(error).__name__)
try:
    account.take.remote(1, 2, 3)
except TypeError as error:
    print("TypeError:", error)
try:
    account.take(1)
except TypeError:
    print("not called directly")

fragile = Fragile.remote(os.path.join(directory, "fragile"))
print("restarted:", [ray.get(fragile.work.remote()) for _ in range(5)])
try:
    for _ in range(3):
        ray.get(fragile.work.remote())
except RayActorError as error:
    print("no restarts left:", isinstance(error, (ActorDiedError, ActorUnavailableError)))

print("retried:", ray.get(flaky.remote(os.path.join(directory, "flaky"))))
time.sleep(1)  # The output of the actors arrives.
