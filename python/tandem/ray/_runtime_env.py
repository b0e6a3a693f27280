# SPDX-License-Identifier: Apache-2.0
"""Runtime environments: env_vars, py_executable and working_dir."""
import json
import os

from tandem.ray._private.runtime_env.constants import RAY_JOB_CONFIG_JSON_ENV_VAR

_DONE = frozenset(("env_vars", "py_executable", "working_dir"))
# Keys of Ray that change what a program finds; Tandem does not set them up.
_REFUSED = frozenset(("pip", "uv", "conda", "container", "image_uri", "py_modules", "java_jars", "working_dir_files",
                      "worker_process_setup_hook", "mpi"))


class RuntimeEnv(dict):
    """A dict of the keys of a runtime environment."""

    def __init__(self, **kwargs):
        super().__init__({key: value for key, value in kwargs.items() if value is not None})

    def to_dict(self):
        """Return the keys as a plain dict."""
        return dict(self)


def _check_refused_keys(runtime_env):
    """Raise the exceptions that Ray raises for keys that Tandem only refuses, so that a mistake is called one."""
    if runtime_env.get("pip") and runtime_env.get("conda"):
        raise ValueError("runtime_env has both 'pip' and 'conda', of which only one is allowed")
    if runtime_env.get("image_uri") and set(runtime_env) - {"image_uri", "env_vars", "config"}:
        raise ValueError("runtime_env['image_uri'] is allowed together with 'env_vars' and 'config' only")
    conda = runtime_env.get("conda")
    if conda is not None and not isinstance(conda, (str, dict)):
        raise TypeError(f"runtime_env['conda'] must be a str or a dict: {type(conda)}")
    seconds = dict(runtime_env.get("config") or {}).get("setup_timeout_seconds", 0)
    if not isinstance(seconds, int):
        raise TypeError(f"runtime_env['config']['setup_timeout_seconds'] must be an int: {type(seconds)}")


def check(runtime_env):
    """Return the runtime environment as a dict. Raises an exception that names a key which cannot be honoured."""
    if not runtime_env:
        return {}
    _check_refused_keys(runtime_env)
    for key, value in runtime_env.items():
        if key not in _DONE and key not in _REFUSED:
            from tandem.ray import _runtime
            _runtime.warn_once(f"runtime_env: the key {key!r} is ignored")
        elif key in _REFUSED and value:
            raise NotImplementedError(f"tandem.ray does not set up {key!r} (feature: runtime_env[{key!r}])")
    variables = runtime_env.get("env_vars") or {}
    if not isinstance(variables, dict) or not all(
            isinstance(name, str) and isinstance(value, str) for name, value in variables.items()):
        raise TypeError("runtime_env['env_vars'] must be of type Dict[str, str]")
    directory = runtime_env.get("working_dir")
    if directory and ("://" in directory or not os.path.isdir(directory)):
        raise ValueError(f"runtime_env['working_dir'] is not a directory of this machine: {directory}")
    return dict(runtime_env)


def of_driver(own):
    """Return the environment of a driver: that of the submitted job it runs in, with that of init().

    A key or variable that both set is an error, as on Ray, unless RAY_OVERRIDE_JOB_RUNTIME_ENV is 1: then init() wins.
    """
    text = os.environ.get(RAY_JOB_CONFIG_JSON_ENV_VAR)
    if not text:
        return check(own)
    job = dict(json.loads(text).get("runtime_env") or {})
    own = dict(own or {})
    variables = job.pop("env_vars", None) or {}
    own_variables = own.pop("env_vars", None) or {}
    conflicts = job.keys() & own.keys() | variables.keys() & own_variables.keys()
    if conflicts and os.environ.get("RAY_OVERRIDE_JOB_RUNTIME_ENV") != "1":
        raise ValueError(f"Failed to merge the Job's runtime env with that of ray.init(): both set "
                         f"{', '.join(sorted(conflicts))}. Use RAY_OVERRIDE_JOB_RUNTIME_ENV=1 to let ray.init() win.")
    merged = {**job, **own}
    if variables or own_variables:
        merged["env_vars"] = {**variables, **own_variables}
    return check(merged)


def merge(inner):
    """Return the environment of an actor: its own over that of the job."""
    from tandem.ray import _runtime
    outer = _runtime.job_runtime_env
    inner = check(inner)
    if not outer:
        return inner
    merged = {**outer, **inner}
    merged["env_vars"] = {**(outer.get("env_vars") or {}), **(inner.get("env_vars") or {})}
    return merged
