# SPDX-License-Identifier: Apache-2.0
"""Actor classes and handles in the process that calls."""
import inspect
import pickle
import time
import types

import cloudpickle

from tandem import _tandem
from tandem.ray import _options
from tandem.ray import _runtime
from tandem.ray import _serialization
from tandem.ray.exceptions import ActorAlreadyExistsError, ActorDiedError, ActorUnavailableError, RayError
from tandem.ray.object_ref import ObjectRef, ObjectRefGenerator

_NAME_SECONDS = 2.0  # At most this long .remote() waits until the new actor has its name.
_FIND_MILLISECONDS = 10000  # At most this long get_actor() waits for the reply of the cluster.
_LABEL_CHARACTERS = 63
_METADATA_BYTES_MAX = 256 << 10
_IS_GENERATOR = "streaming"
# Option of generators: how many items may wait for their reader; -1 for any number.
BACKPRESSURE = "_generator_backpressure_num_objects"


def method(*args, **kwargs):
    """Decorate a method with num_returns, concurrency_group and other options of its calls."""
    valid = ("num_returns", "concurrency_group", "max_task_retries", "retry_exceptions", "enable_task_events",
             "_generator_backpressure_num_objects", "tensor_transport")
    if args or not kwargs or any(name not in valid for name in kwargs):
        raise AssertionError(f"The @ray.method decorator must be applied using at least one of the arguments {valid}, for "
                         "example @ray.method(num_returns=2)")
    _options.check(kwargs, _options.METHOD_OPTIONS, "method")

    def annotate(function):
        function.__tandem_method_options__ = kwargs
        return function
    return annotate


def methods_of(cls):
    """Return {name: options} of the methods of a class."""
    found = {}
    for name, function in inspect.getmembers(cls, inspect.isroutine):
        if name.startswith("__") and not _is_own_special_method(name, function):
            continue
        options = dict(getattr(function, "__tandem_method_options__", {}))
        options["yields"] = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
        if "num_returns" not in options and options["yields"]:
            options["num_returns"] = _IS_GENERATOR
        options["parameters"] = _parameters_of(cls, name, function)
        found[name] = options
    return found


def _is_own_special_method(name, function):
    """Return whether a method such as __len__ is one that handles have: the class defines it, and handles do not."""
    return (inspect.isfunction(function) or inspect.ismethod(function)) and not hasattr(ActorHandle, name)


def _parameters_of(cls, name, function):
    """Return (name, kind, has default) of the parameters of a method, without self; None if they are not known."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    if not isinstance(inspect.getattr_static(cls, name), (staticmethod, classmethod)):
        parameters = parameters[1:]
    return [(parameter.name, int(parameter.kind), parameter.default is not parameter.empty)
            for parameter in parameters]


def _check_arguments(parameters, args, kwargs):
    """Raise TypeError for arguments that the method does not take."""
    if parameters is None:
        return
    if not kwargs and len(args) == len(parameters) and all(kind <= 1 for _, kind, _ in parameters):
        return
    inspect.Signature([
        inspect.Parameter(name, inspect._ParameterKind(kind), default=None if has_default else inspect.Parameter.empty)
        for name, kind, has_default in parameters]).bind(*args, **kwargs)


def is_asynchronous(cls):
    """Return whether a class has a coroutine method, so that its methods run in an event loop."""
    return any(inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
               for _, function in inspect.getmembers(cls, inspect.isroutine))


def _runs_out_of_order(cls, options):
    """Return whether a call that waits for its arguments does not delay later calls."""
    is_concurrent = is_asynchronous(cls) or (options.get("max_concurrency") or 1) > 1
    allowed = options.get("allow_out_of_order_execution")
    if is_concurrent and allowed is False:
        raise ValueError("Async and threaded actors run their calls in any order: set "
                         "allow_out_of_order_execution=True, or leave it out.")
    return is_concurrent if allowed is None else bool(allowed)


def _resolve_arguments(args, kwargs):
    """Return (args, kwargs, extra, awaited).

    References among the arguments themselves are replaced by the callee with their values. The value of a reference
    that is large and there already is fetched by the callee and read in place; other values travel with the call, which
    is sent when they are there.
    """
    places = []
    awaited = []

    def take(value, key):
        if not isinstance(value, ObjectRef):
            return value
        if getattr(value, "_is_large", False):
            places.append((key, None))
            return value
        places.append((key, len(awaited)))
        awaited.append(value)
        return None
    args = tuple([take(value, index) for index, value in enumerate(args)])
    kwargs = {name: take(value, name) for name, value in kwargs.items()}
    return args, kwargs, places, awaited


def pack_arguments(args, kwargs, more=None):
    """Return (pickle, buffers, objects, awaited) of the arguments of a call."""
    places = awaited = None
    for value in args:
        if isinstance(value, ObjectRef):
            break
    else:
        if not kwargs or not any(isinstance(value, ObjectRef) for value in kwargs.values()):
            return *_serialization.dump_arguments(args, kwargs, more), None
    args, kwargs, places, awaited = _resolve_arguments(args, kwargs)
    more = {**(more or {}), "places": places}
    return *_serialization.dump((args, kwargs, more)), awaited or None


def failed_ref(error):
    """Return a reference whose value is the exception."""
    return _serialization.put(error, _serialization.ERROR)


def label_of(name):
    """Return a name of at most 63 ASCII characters for a function or method, as libtandem needs it."""
    return name.encode("ascii", "replace").decode().replace("?", "_")[:_LABEL_CHARACTERS]


def _class_label_of(name):
    """Return the name of a class, cut to the bytes that libtandem has for it."""
    return name.encode()[:_LABEL_CHARACTERS].decode(errors="ignore")


def submit(actor, name, args, kwargs, num_returns, max_retries=-3, more=None):
    """Call a method of an _tandem.Actor and return what .remote() returns."""
    if len(name) > _LABEL_CHARACTERS or not name.isascii():
        more = {**(more or {}), "name": name}
        name = label_of(name)
    head, buffers, objects, awaited = pack_arguments(args, kwargs, more)
    try:
        if num_returns == 1:
            return actor.call(name, _serialization.CALL, head, buffers, objects, awaited, 1, max_retries)
        if num_returns in (_IS_GENERATOR, "dynamic"):
            return ObjectRefGenerator(actor.stream(name, _serialization.STREAM, head, buffers, objects, awaited, 0,
                                                   max_retries))
        if num_returns == 0:
            actor.call(name, _serialization.CALL, head, buffers, objects, awaited, 1, max_retries)
            return None
        return actor.call(name, _serialization.SEVERAL + num_returns, head, buffers, objects, awaited, num_returns,
                          max_retries)
    except (ActorDiedError, ActorUnavailableError) as error:
        if num_returns in (1, 0):
            return failed_ref(error)
        if isinstance(num_returns, int):
            return [failed_ref(error) for _ in range(num_returns)]
        raise


class ActorMethod:
    """A method of a handle; .remote() calls it."""
    __slots__ = ("_handle", "_name", "_num_returns", "_group", "_max_retries", "_parameters", "_retry",
                 "_actor_retries", "_ahead")

    def __init__(self, handle, name, num_returns=1, group=None, max_retries=-3, parameters=None, retry=None,
                 actor_retries=0, ahead=None):
        self._handle = handle
        self._name = name
        self._num_returns = num_returns
        self._group = group
        self._max_retries = max_retries
        self._parameters = parameters
        self._retry = retry  # Which exceptions of the method make it run again.
        self._actor_retries = actor_retries
        self._ahead = ahead  # How many items of a generator may wait for their reader.

    def __call__(self, *args, **kwargs):
        raise TypeError("Actor methods cannot be called directly. Instead of running "
                        f"'object.{self._name}()', try 'object.{self._name}.remote()'.")

    def options(self, **options):
        """Return the method with other options for its calls."""
        _options.check(options, _options.METHOD_OPTIONS, "actor method")
        retries = options.get("max_task_retries")
        return ActorMethod(self._handle, self._name, options.get("num_returns", self._num_returns) or 1,
                           options.get("concurrency_group", self._group),
                           self._max_retries if retries is None else retries or -2, self._parameters,
                           options.get("retry_exceptions", self._retry), self._actor_retries,
                           options.get(BACKPRESSURE, self._ahead))

    def _yields(self):
        """Return whether the method is a generator; True if that is not known."""
        return self._handle._methods.get(self._name, {}).get("yields", True)

    def remote(self, *args, **kwargs):
        """Call the method and return a reference to its result."""
        if self._num_returns == _IS_GENERATOR and not self._yields():
            raise ValueError(f"num_returns=\"streaming\" needs a generator, and {self._name}() does not yield")
        _check_arguments(self._parameters, args, kwargs)
        more = None
        if self._group is not None or self._retry:
            retries = self._actor_retries if self._max_retries == -3 else self._max_retries
            more = {"group": self._group, "retry": (retries, self._retry)}
        if self._ahead and self._num_returns == _IS_GENERATOR:
            more = {**(more or {}), "ahead": self._ahead}
        result = submit(self._handle._actor, self._name, args, kwargs, self._num_returns, self._max_retries, more)
        if self._num_returns == 1:
            result._actor_id = self._handle._text_of_id()
        return result

    def bind(self, *args, **kwargs):
        """Raise NotImplementedError, because there are no compiled graphs."""
        raise NotImplementedError("tandem.ray has no compiled graphs (feature: ActorMethod.bind)")


class ActorHandle:
    """A handle to an actor. Its attributes are the actor's methods."""

    __class_getitem__ = classmethod(types.GenericAlias)

    def __init__(self, actor, class_name, methods):
        self._actor = actor
        self._class_name = class_name
        self._methods = methods
        self._id_text = None

    def _text_of_id(self):
        """Return the ID of the actor as text."""
        if self._id_text is None:
            self._id_text = self._actor.describe()["id"]
        return self._id_text

    def _method(self, name):
        options = self._methods.get(name)
        if options is None:
            return None
        retries = options.get("max_task_retries")
        return ActorMethod(self, name, options.get("num_returns") or 1, options.get("concurrency_group"),
                           -3 if retries is None else retries or -2, options["parameters"],
                           options.get("retry_exceptions"), options.get("actor_retries", 0),
                           options.get(BACKPRESSURE))

    def __getattr__(self, name):
        if name.startswith("_"):
            if name in ("__ray_call__", "__ray_ready__", "__ray_terminate__"):
                return ActorMethod(self, name)
            if name in ("_methods", "_actor", "_id_text"):
                raise AttributeError(name)
        found = self._method(name)
        if found is None:
            raise AttributeError(f"'ActorHandle' object has no attribute '{name}'")
        return found  # Not kept: a handle in a reference cycle would keep its actor alive for long.

    @property
    def _ray_actor_id(self):
        return ActorID.from_hex(self._text_of_id())

    @property
    def _actor_id(self):
        return self._ray_actor_id

    @property
    def _ray_is_cross_language(self):
        return False

    def __dir__(self):
        return list(self._methods)

    def __repr__(self):
        return f"Actor({self._class_name}, {self._text_of_id()})"

    def __hash__(self):
        return hash(self._text_of_id())

    def __eq__(self, other):
        return isinstance(other, ActorHandle) and self._ray_actor_id == other._ray_actor_id

    def __reduce__(self):
        _runtime.require_initialized()
        return _import_handle, (self._actor.export(), self._class_name, self._methods)

    def _serialization_helper(self):
        """Return (bytes, None, False), of which _deserialization_helper() makes the handle in any process."""
        _runtime.require_initialized()
        return cloudpickle.dumps((self._actor.export(), self._class_name, self._methods), 5), None, False

    @classmethod
    def _deserialization_helper(cls, state, weak_ref, outer_object_ref=None):
        """Return the handle of which _serialization_helper() made the bytes."""
        return _import_handle(*pickle.loads(state))


def _reduce_handle(handle, add):
    """Pickle a handle inside of a value."""
    return _load_handle, (add(handle._actor), handle._class_name, handle._methods)


def _load_handle(index, class_name, methods):
    """Rebuild a handle inside of a value."""
    return ActorHandle(_serialization.get_object(index), class_name, methods)


def _import_handle(form, class_name, methods):
    """Rebuild a handle that was pickled by itself, as ray.cloudpickle.dumps(handle) does."""
    _runtime.require_initialized()
    return ActorHandle(_tandem.import_actor(form), class_name, methods)


_serialization.register_reducer(ActorHandle, _reduce_handle)


class ActorID:
    """The ID of an actor."""

    def __init__(self, binary):
        if not isinstance(binary, bytes):
            raise TypeError(f"Unsupported type: {type(binary)}")
        self._binary = binary

    @classmethod
    def from_hex(cls, text):
        """Return the ID that these hexadecimal digits stand for."""
        return cls(bytes.fromhex(text))

    def hex(self):
        """Return the ID as hexadecimal digits."""
        return self._binary.hex()

    def binary(self):
        """Return the ID as bytes."""
        return self._binary

    def is_nil(self):
        """Return False, because the ID of an actor is never nil."""
        return False

    def __eq__(self, other):
        return isinstance(other, ActorID) and self._binary == other._binary

    def __hash__(self):
        return hash(self._binary)

    def __repr__(self):
        return f"ActorID({self.hex()})"


class ActorClass:
    """A class whose objects are actors; .remote() creates one. Its type has the name of the user's class, as in Ray."""

    def __new__(cls, user_class, options):
        return super().__new__(type(f"ActorClass({user_class.__name__})", (cls,), {}))

    def __init__(self, cls, options):
        self.__ray_metadata__ = self
        self._cls = cls
        self._options = options
        self._pickle = None
        self.__name__ = cls.__name__
        self.__qualname__ = cls.__qualname__
        self.__module__ = cls.__module__
        self.__doc__ = cls.__doc__

    @property
    def __ray_actor_class__(self):
        return self._cls

    @property
    def modified_class(self):
        """Return the class itself."""
        return self._cls

    @property
    def _default_options(self):
        return dict(self._options)

    def __call__(self, *args, **kwargs):
        raise TypeError(f"Actors cannot be instantiated directly. Instead of '{self.__name__}()', use "
                        f"'{self.__name__}.remote()'.")

    def __mro_entries__(self, bases):
        raise TypeError("Inheriting from Ray actor classes is not currently supported. Please don't inherit from class "
                        f"{self.__name__} after it has been decorated.")

    def options(self, **options):
        """Return a class with other options."""
        if "concurrency_groups" in options:
            raise ValueError("Passing in `concurrency_groups` in `.options` is not allowed. Pass it in ray.remote")
        _options.check(options, _options.ACTOR_OPTIONS, "actor")
        return _ActorClassWithOptions(self, {**self._options, **options})

    def remote(self, *args, **kwargs):
        """Create an actor and return its handle."""
        return self._create(self._options, args, kwargs)

    def bind(self, *args, **kwargs):
        """Raise NotImplementedError, because there are no compiled graphs."""
        raise NotImplementedError("tandem.ray has no compiled graphs (feature: ActorClass.bind)")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._cls, name)

    def __dir__(self):
        return sorted({*super().__dir__(), *dir(self._cls)})

    def __reduce__(self):
        return _load_class, (self._cls, self._options)

    def _create(self, options, args, kwargs):
        """Create an actor with these options."""
        _runtime.ensure_initialized()
        cls = self._cls
        inspect.signature(cls.__init__).bind(None, *args, **kwargs) if cls.__init__ is not object.__init__ else None
        creation, environment = _options.creation_of(options, 0)
        creation.update(
            name=options.get("name"), namespace=options.get("namespace"),
            detached=1 if options.get("lifetime") == "detached" else 0,
            get_if_exists=1 if options.get("get_if_exists") else 0, max_restarts=options.get("max_restarts") or 0,
            max_task_retries=options.get("max_task_retries") or 0,
            max_pending_calls=options.get("max_pending_calls") or 0,
            allow_out_of_order=1 if _runs_out_of_order(cls, options) else 0)
        if creation["name"] == "":
            raise ValueError("Actor name cannot be an empty string.")
        if (creation["name"] is not None and not creation["get_if_exists"]
                and _id_of_name(creation, _FIND_MILLISECONDS) is not None):
            raise _taken(creation)
        if self._pickle is None:
            self._pickle = cloudpickle.dumps(cls, 5)
        methods = methods_of(cls)
        _check_groups(cls, methods, options.get("concurrency_groups") or {})
        for method_options in methods.values():
            method_options["actor_retries"] = options.get("max_task_retries") or 0
        metadata = cloudpickle.dumps((cls.__name__, methods), 5)
        if len(metadata) <= _METADATA_BYTES_MAX:  # Otherwise get_actor() asks the actor.
            creation["metadata"] = metadata
        more = {"class": self._pickle, "methods": methods, "class_name": cls.__name__,
                "max_concurrency": options.get("max_concurrency"),
                "groups": options.get("concurrency_groups") or {}}
        actor = create(cls.__name__, creation, environment, args, kwargs, more)
        if creation["name"] is not None:
            _wait_for_name(actor, creation)
        return ActorHandle(actor, cls.__name__, methods)


def _check_groups(cls, methods, groups):
    """Raise AssertionError if a method names a concurrency group that its class does not have."""
    for name, options in methods.items():
        group = options.get("concurrency_group")
        if group is not None and group not in groups:
            raise AssertionError(f"{cls.__name__}.{name} is in the concurrency group {group!r}, which the class does "
                                 f"not have: {sorted(groups)}")


def create(name, creation, environment, args, kwargs, more):
    """Create a worker and return its _tandem.Actor. Its settings are read before its arguments."""
    head, buffers, objects, awaited = pack_arguments(args, kwargs, more)
    head = pickle.dumps((_options.worker_settings(creation, environment), head), 5)
    return _tandem.create(_class_label_of(name), creation, _serialization.CALL, head, buffers, objects, awaited)


def _taken(creation):
    """Return the exception that says that another actor has the name."""
    return ActorAlreadyExistsError(f"The name {creation['name']} (namespace={creation['namespace']}) is already taken. "
                                   "Please use a different name or get the existing actor using ray.get_actor(...)")


def _wait_for_name(actor, creation):
    """Wait until a new actor, or with get_if_exists the handle to an existing one, has the name. That does not take as
    long as the constructor, and the time is limited. Raise ActorAlreadyExistsError if another actor was faster."""
    deadline = time.monotonic() + _NAME_SECONDS
    while time.monotonic() < deadline:
        try:
            holder = _id_of_name(creation, int(_NAME_SECONDS * 1000))
            if holder == actor.describe()["id"]:
                return
            if holder is None or creation["get_if_exists"]:
                actor.wait_ready(5)
                continue
        except RayError:
            return  # Its callers will read why.
        raise _taken(creation)


def _id_of_name(creation, timeout_ms):
    """Return the ID of the actor that has the name, or None."""
    try:
        return _tandem.find(creation["namespace"], creation["name"], timeout_ms).describe()["id"]
    except ValueError:
        return None


class _ActorClassWithOptions:
    """An ActorClass with the options of .options()."""

    def __init__(self, actor_class, options):
        self._actor_class = actor_class
        self._options = options

    def remote(self, *args, **kwargs):
        return self._actor_class._create(self._options, args, kwargs)

    def options(self, **options):
        _options.check(options, _options.ACTOR_OPTIONS, "actor")
        return _ActorClassWithOptions(self._actor_class, {**self._options, **options})

    def bind(self, *args, **kwargs):
        return self._actor_class.bind()


def _load_class(cls, options):
    """Rebuild a pickled actor class."""
    return ActorClass(cls, options)


def get_actor(name, namespace=None):
    """Return a handle to the actor of that name."""
    if not name:
        raise ValueError("Please supply a non-empty value to get_actor")
    _runtime.ensure_initialized()
    try:
        actor = _tandem.find(namespace, name, _FIND_MILLISECONDS)
    except ValueError:
        raise ValueError(f"Failed to look up actor with name '{name}'. This could because 1. You are trying to look up "
                         "a named actor you didn't create. 2. The named actor died. 3. You did not use a namespace "
                         "matching the namespace of the actor.") from None
    metadata = actor.metadata()
    if metadata is not None:
        return ActorHandle(actor, *pickle.loads(metadata))
    class_name, methods = _serialization.read(
        actor.call("__tandem_describe__", _serialization.CALL, *_serialization.dump_arguments((), {}, None), None, 1,
                   -3)._get(None))
    return ActorHandle(actor, class_name, methods)


def kill(actor, *, no_restart=True):
    """Kill an actor at once."""
    if not isinstance(actor, ActorHandle):
        raise ValueError(f"ray.kill() only supported for actors. For tasks, try ray.cancel(). Got: {type(actor)}.")
    try:
        actor._actor.kill(not no_restart, 30000)
    except (ActorDiedError, ValueError):
        pass  # It is dead already.


def exit_actor():
    """End the actor that calls this."""
    if not _tandem.is_running() or not _tandem.describe()["actor_id"]:
        raise TypeError("exit_actor API is called on a non-actor worker")
    _tandem.exit_actor()
    raise SystemExit(0)

