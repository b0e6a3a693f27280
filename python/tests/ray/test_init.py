# SPDX-License-Identifier: Apache-2.0
"""ray.init, its keywords, the implicit start, ray.is_initialized and ray.shutdown.

Each test starts the clusters that it needs, so this file is the slowest.
"""
import os
import re

import pytest
import ray
from ray.exceptions import RaySystemError

from suite import Counter, Echo, eventually, identity, refuses, shows

QUIET = {"include_dashboard": False, "log_to_driver": False}


@pytest.fixture(autouse=True)
def no_cluster():
    """Nothing is started before and after each test."""
    assert not ray.is_initialized()
    yield
    ray.shutdown()


@shows("ray.init", "ray.is_initialized", "ray.shutdown")
def test_init_starts_and_shutdown_ends():
    assert ray.is_initialized() is False
    ray.init(num_cpus=1, **QUIET)
    assert ray.is_initialized() is True
    assert ray.get(identity.remote(1)) == 1
    assert ray.shutdown() is None
    assert ray.is_initialized() is False


@shows("ray.shutdown")
def test_shutdown_without_init_does_nothing():
    ray.shutdown()
    ray.shutdown()


@shows("ray.init", "ray.shutdown")
def test_a_second_cluster_is_another_one():
    """Remote functions and classes of the first cluster work in the second."""
    ray.init(num_cpus=1, num_gpus=1, namespace="first", **QUIET)
    counter = Counter.options(name="of the first", lifetime="detached").remote()
    assert ray.get(counter.add.remote()) == 1
    assert ray.get(identity.remote("first")) == "first"
    ray.shutdown()
    ray.init(num_cpus=3, namespace="first", **QUIET)
    assert ray.cluster_resources()["CPU"] == 3 and "GPU" not in ray.cluster_resources()
    assert ray.get(identity.remote("second")) == "second"
    assert ray.get(Counter.remote(4).add.remote()) == 5
    with pytest.raises(ValueError):
        ray.get_actor("of the first")


@shows("ray.init", "ray.init resources")
def test_resources_are_those_given():
    ray.init(num_cpus=2, num_gpus=3, resources={"sensor": 1, "arm": 2}, **QUIET)
    total = ray.cluster_resources()
    assert (total["CPU"], total["GPU"], total["sensor"], total["arm"]) == (2, 3, 1, 2)


@shows("ray.init", "ray.init resources")
def test_resources_are_detected_where_none_are_given():
    ray.init(**QUIET)
    assert ray.cluster_resources()["CPU"] == os.cpu_count()
    assert ray.cluster_resources()["memory"] > 0


@shows("ray.init")
def test_init_returns_a_context_that_ends_the_cluster():
    with ray.init(num_cpus=1, **QUIET) as context:
        assert ray.is_initialized()
        assert context["node_id"] == ray.nodes()[0]["NodeID"]
        assert context.address_info["node_id"] == context["node_id"]
    assert not ray.is_initialized()


@shows("ray.init", "ray.init resources")
def test_ignore_reinit_error_keeps_the_cluster():
    ray.init(num_cpus=2, **QUIET)
    ray.init(num_cpus=4, ignore_reinit_error=True, **QUIET)
    assert ray.cluster_resources()["CPU"] == 2


@shows("ray.init", "namespace")
def test_a_name_space_is_made_up_where_none_is_given():
    ray.init(num_cpus=1, **QUIET)
    space = ray.get_runtime_context().namespace
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", space)
    counter = Counter.options(name="here").remote()
    assert ray.get_actor("here") == counter


@shows("ray.init runtime_env")
def test_variables_of_the_job_reach_actors_and_tasks():
    ray.init(num_cpus=1, runtime_env={"env_vars": {"SUITE_JOB": "job", "SUITE_BOTH": "job"}}, **QUIET)
    plain = Echo.remote()
    assert ray.get([plain.environment.remote("SUITE_JOB"), plain.environment.remote("SUITE_BOTH")]) == ["job", "job"]
    own = Echo.options(runtime_env={"env_vars": {"SUITE_BOTH": "actor"}}).remote()
    assert ray.get([own.environment.remote("SUITE_JOB"), own.environment.remote("SUITE_BOTH")]) == ["job", "actor"]

    @ray.remote(num_cpus=0)
    def read():
        return os.environ["SUITE_JOB"]

    assert ray.get(read.remote()) == "job"
    assert "SUITE_JOB" not in os.environ


@shows("ray.init runtime_env")
def test_the_driver_can_read_the_runtime_env_of_the_job():
    ray.init(num_cpus=1, runtime_env={"env_vars": {"SUITE_JOB": "1"}}, **QUIET)
    assert ray.get_runtime_context().runtime_env["env_vars"]["SUITE_JOB"] == "1"


@shows("ray.init runtime_env")
def test_the_working_directory_of_the_job_is_that_of_its_actors(tmp_path):
    (tmp_path / "data.txt").write_text("data", encoding="ascii")
    (tmp_path / "module_of_the_job.py").write_text("VALUE = 3\n", encoding="ascii")
    ray.init(num_cpus=1, runtime_env={"working_dir": str(tmp_path)}, **QUIET)

    @ray.remote(num_cpus=0)
    class Reader:
        def read(self):
            import module_of_the_job
            return open("data.txt", encoding="ascii").read(), module_of_the_job.VALUE

    assert ray.get(Reader.remote().read.remote()) == ("data", 3)


@refuses("ray.init runtime_env")
@pytest.mark.parametrize("environment, exception", [
    ({"env_vars": {"A": 1}}, TypeError), ({"working_dir": "/no/such/directory"}, ValueError),
    ({"working_dir": 5}, TypeError),
], ids=str)
def test_an_impossible_runtime_env_of_the_job_is_refused(environment, exception):
    with pytest.raises(exception):
        ray.init(num_cpus=1, runtime_env=environment, **QUIET)


@shows("ray.init")
def test_the_keywords_that_torchrl_passes_are_accepted():
    ray.init(address=None, num_cpus=1, num_gpus=None, resources=None, object_store_memory=100 * 1024 * 1024,
             local_mode=False, ignore_reinit_error=False, include_dashboard=None, dashboard_host="127.0.0.1",
             dashboard_port=None, job_config=None, configure_logging=True, logging_level="info", logging_format=None,
             log_to_driver=False, namespace=None, runtime_env=None)
    assert ray.get(identity.remote("accepted")) == "accepted"


@shows("ray.init")
def test_labels_of_the_node_are_those_given():
    ray.init(num_cpus=1, labels={"zone": "a"}, **QUIET)
    assert ray.nodes()[0]["Labels"]["zone"] == "a"


@shows("ray.init")
def test_the_folder_of_temporary_files_can_be_chosen(tmp_path_factory):
    folder = tmp_path_factory.mktemp("t")
    if len(str(folder)) > 60:
        pytest.skip("the path is too long for sockets")
    ray.init(num_cpus=1, _temp_dir=str(folder), **QUIET)
    assert ray.get(identity.remote(1)) == 1
    assert os.listdir(folder)


@shows("ray.init")
def test_address_local_starts_a_cluster():
    ray.init(address="local", num_cpus=1, **QUIET)
    assert ray.cluster_resources()["CPU"] == 1


@refuses("ray.init")
def test_init_twice_is_a_runtime_error():
    ray.init(num_cpus=1, **QUIET)
    with pytest.raises(RuntimeError):
        ray.init(num_cpus=1, **QUIET)
    assert ray.get(identity.remote("still there")) == "still there"


@refuses("ray.init resources")
@pytest.mark.parametrize("keywords, exception", [
    ({"resources": {"CPU": 1}}, AssertionError), ({"num_cpus": -1}, ValueError),
    ({"resources": {"sensor": 1.5}}, ValueError),
], ids=str)
def test_impossible_resources_of_the_node_are_refused(keywords, exception):
    with pytest.raises(exception):
        ray.init(**{**QUIET, **keywords})


@refuses("ray.init")
@pytest.mark.parametrize("keywords, exception", [
    ({"cpus": 1}, RuntimeError), ({"local_mode": True}, RuntimeError), ({"namespace": 5}, TypeError),
    ({"namespace": ""}, ValueError), ({"_system_config": "text"}, TypeError), ({"storage": "/somewhere"}, RuntimeError),
], ids=str)
def test_an_impossible_keyword_of_init_is_refused(keywords, exception):
    with pytest.raises(exception):
        ray.init(**{**QUIET, **keywords})


@shows("implicit start")
def test_put_starts_a_cluster():
    assert ray.get(ray.put(1)) == 1
    assert ray.is_initialized()


@shows("implicit start")
def test_a_task_starts_a_cluster():
    assert ray.get(identity.remote(2)) == 2
    assert ray.is_initialized()


@shows("implicit start")
def test_an_actor_starts_a_cluster():
    assert ray.get(Counter.remote(3).value.remote()) == 3
    assert ray.is_initialized()


@shows("implicit start")
def test_a_placement_group_starts_a_cluster():
    group = ray.util.placement_group([{"CPU": 1}])
    assert ray.get(group.ready(), timeout=60) == group
    assert ray.is_initialized()


@shows("implicit start")
def test_the_runtime_context_starts_a_cluster():
    assert ray.get_runtime_context().get_node_id()
    assert ray.is_initialized()


@shows("implicit start")
def test_init_after_an_implicit_start_is_a_runtime_error():
    ray.put(1)
    with pytest.raises(RuntimeError):
        ray.init(**QUIET)


@shows("implicit start")
@pytest.mark.parametrize("declare", [lambda: ray.remote(int), lambda: ray.method(num_returns=2), ray.is_initialized],
                         ids=["remote", "method", "is_initialized"])
def test_declarations_start_no_cluster(declare):
    declare()
    assert not ray.is_initialized()


@refuses("implicit start")
@pytest.mark.parametrize("ask", [ray.nodes, ray.cluster_resources, ray.available_resources],
                         ids=lambda function: function.__name__)
def test_questions_about_the_cluster_start_none(ask):
    with pytest.raises(RaySystemError):
        ask()
    assert not ray.is_initialized()


@refuses("ray.is_initialized")
def test_is_initialized_takes_no_argument():
    with pytest.raises(TypeError):
        ray.is_initialized(True)


@shows("ray.is_initialized")
def test_is_initialized_is_true_in_actors():
    ray.init(num_cpus=1, **QUIET)

    @ray.remote(num_cpus=0)
    def inside():
        return ray.is_initialized()

    assert ray.get(inside.remote()) is True


@shows("ray.is_initialized")
def test_is_initialized_is_true_for_each_thread():
    import threading
    ray.init(num_cpus=1, **QUIET)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(ray.is_initialized()))
    thread.start()
    thread.join()
    assert seen == [True]


@refuses("ray.shutdown")
def test_shutdown_takes_no_positional_text():
    with pytest.raises(TypeError):
        ray.shutdown(True, True)


@shows("ray.shutdown")
def test_processes_of_actors_end_with_shutdown():
    ray.init(num_cpus=1, **QUIET)
    echo = Echo.remote()
    pid = ray.get(echo.pid.remote())
    ray.shutdown()

    def ended():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    eventually(ended)
