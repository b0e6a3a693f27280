# SPDX-License-Identifier: Apache-2.0
"""runtime_env: env_vars, working_dir, py_executable, and keys and values that are refused."""
import os
import sys

import pytest
import ray
from ray.runtime_env import RuntimeEnv

from suite import Counter, Echo, refuses, shows

pytestmark = pytest.mark.usefixtures("cluster")


@ray.remote(num_cpus=0)
def variable(name):
    return os.environ.get(name)


def with_variables(**variables):
    return {"runtime_env": {"env_vars": variables}}


@shows("runtime_env env_vars")
def test_an_actor_sees_its_variables():
    actor = Echo.options(**with_variables(SUITE_COLOR="blue")).remote()
    assert ray.get(actor.environment.remote("SUITE_COLOR")) == "blue"


@shows("runtime_env env_vars")
def test_a_task_sees_its_variables():
    assert ray.get(variable.options(**with_variables(SUITE_COLOR="green")).remote("SUITE_COLOR")) == "green"


@shows("runtime_env env_vars")
def test_other_actors_do_not_see_them():
    colored = Echo.options(**with_variables(SUITE_SECRET="1")).remote()
    ray.get(colored.environment.remote("SUITE_SECRET"))
    assert ray.get(Echo.remote().environment.remote("SUITE_SECRET")) is None
    assert "SUITE_SECRET" not in os.environ


@shows("runtime_env env_vars")
def test_two_actors_have_different_values():
    actors = [Echo.options(**with_variables(SUITE_RANK=str(rank))).remote() for rank in range(2)]
    assert ray.get([actor.environment.remote("SUITE_RANK") for actor in actors]) == ["0", "1"]


@shows("runtime_env env_vars")
def test_the_decorator_may_have_variables():
    @ray.remote(num_cpus=0, runtime_env={"env_vars": {"SUITE_DECORATED": "yes"}})
    class Decorated:
        def read(self):
            return os.environ.get("SUITE_DECORATED")

    assert ray.get(Decorated.remote().read.remote()) == "yes"


@shows("runtime_env env_vars")
def test_a_variable_may_replace_one_of_the_environment():
    actor = Echo.options(**with_variables(LANG="C.UTF-8-SUITE")).remote()
    assert ray.get(actor.environment.remote("LANG")) == "C.UTF-8-SUITE"


@shows("runtime_env env_vars")
def test_a_variable_may_be_empty():
    actor = Echo.options(**with_variables(SUITE_EMPTY="")).remote()
    assert ray.get(actor.environment.remote("SUITE_EMPTY")) == ""


@shows("runtime_env env_vars")
def test_a_variable_may_refer_to_one_that_exists():
    actor = Echo.options(**with_variables(PATH="/first:${PATH}")).remote()
    path = ray.get(actor.environment.remote("PATH"))
    assert path.startswith("/first:") and path.endswith(os.environ["PATH"])


@shows("runtime_env env_vars")
def test_many_variables_arrive():
    variables = {f"SUITE_MANY_{number}": str(number) for number in range(100)}

    @ray.remote(num_cpus=0, runtime_env={"env_vars": variables})
    def read():
        return {name: value for name, value in os.environ.items() if name.startswith("SUITE_MANY_")}

    assert ray.get(read.remote()) == variables


@shows("runtime_env env_vars")
def test_a_value_may_have_spaces_lines_and_equal_signs():
    value = "a = b; c\n\"d\" 'e'"
    actor = Echo.options(**with_variables(SUITE_ODD=value)).remote()
    assert ray.get(actor.environment.remote("SUITE_ODD")) == value


@shows("runtime_env env_vars")
def test_a_long_value_arrives():
    actor = Echo.options(**with_variables(SUITE_LONG="x" * 10_000)).remote()
    assert ray.get(actor.environment.remote("SUITE_LONG")) == "x" * 10_000


@shows("runtime_env env_vars")
def test_children_inherit_the_variables_of_their_actor():
    @ray.remote(num_cpus=0)
    class Parent:
        def child_variable(self):
            return ray.get(variable.remote("SUITE_INHERITED"))

    parent = Parent.options(**with_variables(SUITE_INHERITED="from the parent")).remote()
    assert ray.get(parent.child_variable.remote()) == "from the parent"


@shows("runtime_env env_vars")
def test_children_add_their_variables_to_those_of_their_actor():
    @ray.remote(num_cpus=0)
    class Parent:
        def child_variables(self):
            child = Echo.options(runtime_env={"env_vars": {"SUITE_B": "child"}}).remote()
            return ray.get([child.environment.remote("SUITE_A"), child.environment.remote("SUITE_B")])

    parent = Parent.options(**with_variables(SUITE_A="parent", SUITE_B="parent")).remote()
    assert ray.get(parent.child_variables.remote()) == ["parent", "child"]


@shows("runtime_env env_vars")
def test_variables_are_set_before_modules_are_imported():
    @ray.remote(num_cpus=0, runtime_env={"env_vars": {"PYTHONHASHSEED": "0", "PYTHONOPTIMIZE": "1"}})
    def flags():
        return sys.flags.optimize

    assert ray.get(flags.remote()) == 1


@refuses("runtime_env env_vars")
@pytest.mark.parametrize("variables", [{"A": 1}, {1: "a"}, ["A=1"], "A=1", {"A": None}], ids=str)
def test_variables_that_are_not_texts_are_a_type_error(variables):
    with pytest.raises(TypeError):
        Echo.options(runtime_env={"env_vars": variables}).remote()


@shows("runtime_env working_dir")
def test_a_job_runs_in_its_working_directory(tmp_path):
    """The directory belongs to the job, so a process of its own connects as another driver."""
    (tmp_path / "data.txt").write_text("from the directory", encoding="ascii")
    assert in_another_driver(tmp_path, """
    @ray.remote(num_cpus=0)
    def read():
        return open("data.txt", encoding="ascii").read()
    print(ray.get(read.remote()))
    """) == ["from the directory"]


@shows("runtime_env working_dir")
def test_modules_of_the_working_directory_can_be_imported(tmp_path):
    (tmp_path / "module_of_the_directory.py").write_text("VALUE = 17\n", encoding="ascii")
    assert in_another_driver(tmp_path, """
    @ray.remote(num_cpus=0)
    class Reader:
        def read(self):
            import module_of_the_directory
            return module_of_the_directory.VALUE
    print(ray.get(Reader.remote().read.remote()))
    """) == ["17"]


@shows("runtime_env working_dir")
def test_subdirectories_of_the_working_directory_are_there(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "deep.txt").write_text("deep", encoding="ascii")
    assert in_another_driver(tmp_path, """
    @ray.remote(num_cpus=0)
    def read():
        return open("sub/deep.txt", encoding="ascii").read()
    print(ray.get(read.remote()))
    """) == ["deep"]


def in_another_driver(working_dir, body):
    """Runs the body in a driver whose job has this working directory; returns the lines that it printed."""
    import subprocess
    import textwrap
    script = (f"import ray\nray.init(num_cpus=2, runtime_env={{'working_dir': {str(working_dir)!r}}}, "
              f"log_to_driver=False, include_dashboard=False)\n{textwrap.dedent(body)}\nray.shutdown()\n")
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True, timeout=240,
                          cwd="/")
    return done.stdout.splitlines()


@refuses("runtime_env working_dir")
def test_a_working_directory_that_does_not_exist_is_a_value_error():
    with pytest.raises(ValueError):
        Echo.options(runtime_env={"working_dir": "/no/such/directory"}).remote()


@refuses("runtime_env working_dir")
def test_a_working_directory_that_is_no_text_is_a_type_error():
    with pytest.raises(TypeError):
        Echo.options(runtime_env={"working_dir": 5}).remote()


@shows("runtime_env py_executable")
def test_an_actor_runs_with_the_interpreter_that_was_named():
    actor = Echo.options(runtime_env={"py_executable": sys.executable}).remote()
    assert ray.get(actor.echo.remote("interpreted"), timeout=120) == "interpreted"


@shows("runtime_env py_executable")
def test_an_interpreter_may_have_arguments():
    @ray.remote(num_cpus=0, runtime_env={"py_executable": f"{sys.executable} -O"})
    class Optimized:
        def level(self):
            return sys.flags.optimize

    assert ray.get(Optimized.remote().level.remote(), timeout=120) == 1


@shows("runtime_env py_executable")
def test_an_interpreter_may_be_a_link(tmp_path):
    wrapper = tmp_path / "interpreter"
    wrapper.write_text(f'#!/bin/sh\nSUITE_WRAPPED=yes exec {sys.executable} "$@"\n', encoding="ascii")
    wrapper.chmod(0o755)
    actor = Echo.options(runtime_env={"py_executable": str(wrapper)}).remote()
    assert ray.get(actor.environment.remote("SUITE_WRAPPED"), timeout=120) == "yes"


@refuses("runtime_env py_executable")
def test_an_interpreter_and_an_image_together_are_a_value_error():
    with pytest.raises(ValueError):
        Echo.options(runtime_env={"py_executable": sys.executable, "image_uri": "image"}).remote()


@refuses("runtime_env")
@pytest.mark.parametrize("wrong", ["text", 5, ["env_vars"]], ids=repr)
def test_a_runtime_env_of_another_type_is_a_type_error(wrong):
    with pytest.raises(TypeError):
        Counter.options(runtime_env=wrong).remote()


@refuses("runtime_env")
def test_pip_and_conda_together_are_a_value_error():
    with pytest.raises(ValueError):
        Counter.options(runtime_env={"pip": ["a"], "conda": {"dependencies": ["b"]}}).remote()


@refuses("runtime_env")
def test_conda_of_another_type_is_a_type_error():
    with pytest.raises(TypeError):
        Counter.options(runtime_env={"conda": 5}).remote()


@refuses("runtime_env")
def test_a_setup_timeout_that_is_no_number_is_a_type_error():
    with pytest.raises(TypeError):
        Counter.options(runtime_env={"config": {"setup_timeout_seconds": "long"}}).remote()


@shows("runtime_env")
def test_an_empty_runtime_env_changes_nothing():
    assert ray.get(Counter.options(runtime_env={}).remote(2).value.remote()) == 2


@shows("runtime_env")
def test_no_runtime_env_changes_nothing():
    assert ray.get(Counter.options(runtime_env=None).remote(3).value.remote()) == 3


@shows("runtime_env")
def test_an_object_of_the_class_runtime_env_is_accepted():
    actor = Echo.options(runtime_env=RuntimeEnv(env_vars={"SUITE_OBJECT": "yes"})).remote()
    assert ray.get(actor.environment.remote("SUITE_OBJECT")) == "yes"


@shows("runtime_env")
def test_an_actor_can_read_its_runtime_env():
    @ray.remote(num_cpus=0, runtime_env={"env_vars": {"SUITE_READ": "back"}})
    def read():
        return ray.get_runtime_context().runtime_env["env_vars"]["SUITE_READ"]

    assert ray.get(read.remote()) == "back"


@shows("runtime_env")
def test_a_key_that_is_not_known_is_ignored():
    actor = Echo.options(runtime_env={"no_such_key": 1, "env_vars": {"SUITE_KNOWN": "yes"}}).remote()
    assert ray.get(actor.environment.remote("SUITE_KNOWN")) == "yes"
