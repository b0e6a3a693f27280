# SPDX-License-Identifier: Apache-2.0
"""init() and shutdown(), and what is true of the whole process."""
import atexit
import contextlib
import os
import socket
import sys
import tempfile
import threading
import uuid
import warnings

from tandem import _tandem

_lock = threading.RLock()

# Keywords of Ray's init() that have no meaning for Tandem and change no result.
_IGNORED = frozenset((
    "configure_logging", "logging_level", "logging_format", "logging_config", "include_dashboard", "dashboard_host",
    "dashboard_port", "ignore_reinit_error", "_temp_dir", "_metrics_export_port", "_system_config",
    "_plasma_directory", "_redis_password", "_redis_username", "_node_ip_address", "_enable_object_reconstruction",
    "_tracing_startup_hook", "_node_name", "allow_multiple", "enable_object_reconstruction",
    "enable_resource_isolation", "cgroup_path", "system_reserved_cpu", "system_reserved_memory", "_memory",
    "_skip_env_hook", "job_config", "_object_spilling_directory", "bundle_resource_label_selector"))

# Variables that only a new process can take up, because interpreters and libraries read them when they start.
_AT_START = ("LD_", "PYTHON", "OMP_", "OPENBLAS_", "MKL_", "MALLOC_", "GLIBC_", "TANDEM_")

_STORE_SHARE = 0.3  # Part of the machine's memory in which a private node keeps large values.

job_runtime_env = {}
own_group = None  # The parts of the placement group that this actor was created in; None without one.
own_resources = {}  # What this actor asked for.
own_group_captures = False  # Whether actors that this actor creates are in that group, too.


class ClientContext(dict):
    """The result of init(): a dict with the attributes of Ray's context."""

    def __init__(self, info):
        super().__init__(node_id=info["node_id"], node_ip_address=node_ip_address(), address=info["address"],
                         gcs_address=info["address"], session_dir=info["directory"], webui_url="")
        self.address_info = dict(self)
        self.dashboard_url = ""
        self.python_version = sys.version.split()[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutdown()

    def disconnect(self):
        shutdown()


def node_ip_address():
    """Return the address of this machine in its network."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # Sends nothing.
            return probe.getsockname()[0]
    except OSError:
        return "127.0.0.1"


def _has_gpu():
    """Return whether this machine has an NVIDIA GPU."""
    return os.path.exists("/dev/nvidiactl")


def _started_node():
    """Return the address of the node that `tandem start` has started on this machine, or None."""
    parent = os.environ.get("TMPDIR") or "/tmp"
    path = f"{parent}/tandem-started-{os.geteuid()}/tandemd.sock"
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return None
    return "unix:" + path


def _address_of(address):
    """Return the address of a node for an address as Ray has it; None for a private node."""
    if address in (None, "", "auto"):
        address = os.environ.get("RAY_ADDRESS") or address
    if address == "local":
        return None
    if address in (None, "", "auto"):
        found = os.environ.get("TANDEM_ADDRESS") or _started_node()
        if address == "auto" and not found:
            raise ConnectionError('no node was found for address="auto": start one with `tandem start --head`')
        return found
    if address.startswith("ray://"):
        raise NotImplementedError("tandem.ray has no Ray client (feature: init(address=\"ray://...\"))")
    return address


@contextlib.contextmanager
def _environment(settings):
    """Set variables for the daemon that is started meanwhile."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _node_settings(num_gpus, resources, labels, object_store_memory):
    """Return the variables that tell a private node what it offers, as Ray's nodes do."""
    store = int(object_store_memory or _STORE_SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    offered = {"object_store_memory": store, f"node:{node_ip_address()}": 1, "node:__internal_head__": 1,
               **(resources or {})}
    texts = [f"{name}={amount}" for name, amount in offered.items()]
    settings = {"TANDEM_RESOURCES": ",".join(filter(None, [os.environ.get("TANDEM_RESOURCES"), *texts]))}
    if labels:
        settings["TANDEM_LABELS"] = ",".join(filter(None, [
            os.environ.get("TANDEM_LABELS"), *(f"{name}={value}" for name, value in labels.items())]))
    if "TANDEM_GPUS" not in os.environ and (num_gpus == 0 or (num_gpus is None and not _has_gpu())):
        settings["TANDEM_GPUS"] = "0"  # Without it a private node has virtual GPUs.
    return settings


def _session_directory(parent):
    """Return a new directory for a private node's sockets and logs; None for the usual place."""
    if parent is None:
        return None
    os.makedirs(parent, exist_ok=True)
    return tempfile.mkdtemp(prefix="s-", dir=parent)


def is_initialized():
    """Return whether this process has joined a node."""
    return _tandem.is_running()


def _check(num_cpus, num_gpus, resources, namespace):
    """Raise the exceptions that Ray's init() raises for wrong arguments."""
    for name, value in (("num_cpus", num_cpus), ("num_gpus", num_gpus)):
        if value is not None and value < 0:
            raise ValueError(f"{name} must not be negative: {value}")
    if namespace == "":
        raise ValueError('"" is not a valid namespace. If you wanted to use an anonymous namespace, omit the argument.')
    for name, amount in (resources or {}).items():
        if name in ("CPU", "GPU"):
            raise AssertionError(f"{name} must not be in resources; use num_cpus and num_gpus")
        if amount > 1 and amount != int(amount):
            raise ValueError(f"Resource quantities >1 must be whole numbers. The specified quantity of {name} is "
                             f"{amount}")


def require_initialized():
    """Raise RaySystemError if this process has not joined a node."""
    if not _tandem.is_running():
        from tandem.ray.exceptions import RaySystemError
        raise RaySystemError("Ray has not been started yet. You can start Ray with 'ray.init()'.")


def _check_address(address, arguments):
    """Raise ValueError if an argument that only a new node can honour comes with the address of a node."""
    given = [name for name, value in arguments.items() if value is not None and value != {}]
    if address is not None and given:
        raise ValueError(f"When connecting to an existing cluster, {' and '.join(given)} must not be provided. The "
                         f"cluster was found at {address}; init(address=\"local\", ...) starts a private node beside it, "
                         f"and `tandem stop` ends a node that `tandem start` has started.")


def _is_again(ignore_reinit_error):
    """Return whether this process has joined a node before; raises RuntimeError if that is not to be ignored."""
    if is_initialized() and not ignore_reinit_error:
        raise RuntimeError("Maybe you called ray.init twice by accident? This error can be suppressed by passing "
                           "in 'ignore_reinit_error=True' or by calling 'ray.shutdown()' prior to 'ray.init()'.")
    return is_initialized()


def init(address=None, *, num_cpus=None, num_gpus=None, resources=None, labels=None, object_store_memory=None,
         local_mode=False, log_to_driver=True, namespace=None, runtime_env=None, **kwargs):
    """Join a node, or start a private one that ends with this process. See Ray's init()."""
    global job_runtime_env
    unknown = [name for name in kwargs if name not in _IGNORED]
    if unknown:
        raise RuntimeError(f"Unknown keyword argument(s): {', '.join(unknown)}")
    if local_mode:
        raise NotImplementedError("tandem.ray has no local mode (feature: init(local_mode=True))")
    if not isinstance(kwargs.get("_system_config") or {}, dict):
        raise TypeError("The _system_config must be a dict.")
    _check(num_cpus, num_gpus, resources, namespace)
    with _lock:
        if _is_again(kwargs.get("ignore_reinit_error")):
            return ClientContext(_tandem.describe())
        address = _address_of(address)
        _check_address(address, {"num_cpus": num_cpus, "num_gpus": num_gpus, "resources": resources, "labels": labels,
                                 "object_store_memory": object_store_memory})
        from tandem.ray import _runtime_env
        job_runtime_env = _runtime_env.of_driver(runtime_env)
        settings = _node_settings(num_gpus, resources, labels, object_store_memory)
        namespace = namespace or os.environ.get("TANDEM_NAMESPACE") or str(uuid.uuid4())
        with _environment({} if address is not None else settings):
            _tandem.start(address, namespace, int(num_cpus or 0), int(num_gpus or 0), 1 if log_to_driver else -1,
                          int(object_store_memory or 0), _session_directory(kwargs.get("_temp_dir")))
        if address is not None and log_to_driver:
            from tandem.ray import _driver_output
            _driver_output.start()
        atexit.register(shutdown)
        return ClientContext(_tandem.describe())


def shutdown(_exiting_interpreter=False):
    """Leave the node. Actors that are not detached end, and references become invalid."""
    with _lock:
        if _tandem.is_running() and not _tandem.describe()["actor_id"]:
            from tandem.ray import remote_function
            from tandem.ray import _driver_output
            _driver_output.stop()
            remote_function.forget_workers()
            _tandem.stop()


def ensure_initialized():
    """Join a node if this process has not, as Ray's implicit init() does."""
    if not _tandem.is_running():
        init()


def warn_once(text, _warned=set()):
    """Print a warning, once for each text."""
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, stacklevel=3)


def split_environment(variables):
    """Return (start, later): the variables as NAME=value that need a new process, and the others as a dict."""
    start = [f"{name}={value}" for name, value in variables.items() if name.startswith(_AT_START)]
    later = {name: value for name, value in variables.items() if not name.startswith(_AT_START)}
    return start, later
