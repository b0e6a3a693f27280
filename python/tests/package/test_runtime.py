# SPDX-License-Identifier: Apache-2.0
"""init and shutdown, and objects that outlive the runtime."""
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from tandem import ray


def test_second_init_is_refused():
    assert ray.is_initialized()
    with pytest.raises(RuntimeError):
        ray.init()
    ray.init(ignore_reinit_error=True)
    with pytest.raises(RuntimeError):
        ray.init(colour="red")


def test_objects_that_outlive_the_runtime_raise():
    @ray.remote
    class Actor:
        def method(self):
            return 1

    actor = Actor.remote()
    ref = ray.put(5)
    array = ray.get(ray.put(np.arange(1 << 18)))
    assert ray.get(actor.method.remote()) == 1
    ray.shutdown()
    assert not ray.is_initialized()
    assert array.sum() == sum(range(1 << 18))
    ray.init(num_cpus=4, log_to_driver=False)
    with pytest.raises(Exception, match="has stopped"):
        ray.get(ref)
    with pytest.raises(Exception, match="has stopped"):
        actor.method.remote()
    assert ray.get(ray.put(6)) == 6


def test_shutdown_while_threads_wait():
    from tandem.ray.util.placement_group import placement_group

    @ray.remote
    class Sleeper:
        def sleep(self):
            time.sleep(1000)

    outcomes = []

    def wait(ref):
        try:
            ray.get(ref)
        except Exception as error:
            outcomes.append(str(error))

    ref = Sleeper.remote().sleep.remote()
    future = ref.future()
    thread = threading.Thread(target=wait, args=(ref,))
    thread.start()
    placement_group([{"CPU": 1000}])
    time.sleep(0.2)
    ray.shutdown()
    thread.join(30)
    assert len(outcomes) == 1 and "has stopped" in outcomes[0]
    with pytest.raises(Exception, match="has stopped"):
        future.result(30)
    ray.init(num_cpus=4, log_to_driver=False)


def test_values_can_be_freed():
    from tandem.ray.internal import free
    ref = ray.put(np.zeros(1 << 18))
    free([ref])
    with pytest.raises(ray.exceptions.ObjectFreedError):
        ray.get(ref)


def test_implicit_init_and_classes_of_main():
    program = """
from tandem import ray
class Error(Exception):
    pass
@ray.remote
class Actor:
    def fail(self):
        raise Error("mine")
try:
    ray.get(Actor.remote().fail.remote())
except Error as error:
    print("caught", isinstance(error, Error))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout == "caught True\n", done.stderr


def test_output_of_actors_reaches_the_driver():
    program = """
from tandem import ray
@ray.remote
class Speaker:
    def speak(self):
        print("spoken words")
ray.init(num_cpus=1)
ray.get(Speaker.remote().speak.remote())
import time
time.sleep(1)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert "pid=" in done.stdout + done.stderr and "spoken words" in done.stdout + done.stderr
