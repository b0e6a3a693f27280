# SPDX-License-Identifier: Apache-2.0
"""Values as bytes: cloudpickle with out-of-band buffers, references and handles.

dump() gives the parts of a value that tandem._tandem sends: a pickle, the buffers that it refers to, and the references
and handles in it. The pickler of this module writes a reference or handle as its index in the last list; load() finds
the object through the thread's current list. libtandem sees that list and keeps what it refers to alive. Buffers are
written to shared memory once and are read in place: numpy arrays of a received value are read-only views.

Any other pickler writes a reference or handle in its portable form (`__reduce__`), also while a value is dumped.
"""
import io
import pickle
import sys
import threading

import cloudpickle

from tandem import _tandem
from tandem.ray import _tensors

# Meanings of the integer in a value. Calls use CALL, STREAM or SEVERAL + the number of results.
VALUE, ERROR, CALL, STREAM, SEVERAL = 0, 1, 0, 2, 16

_SIMPLE = frozenset((type(None), bool, int, float, str, bytes))
NOTHING = pickle.dumps(None, 5)  # The pickle of None.
_current = threading.local()
_ARRAY_TYPES_MAX = 1000
_array_types = {}  # (class, shape, dtype) of arrays by the text that describes them, to read the text once.


_reducers = {}


def register_reducer(cls, reduce):
    """Let reduce(object, add) give what objects of a class are pickled as inside of values, or NotImplemented.

    add() takes a Ref or Actor of the object and returns its index for get_object().
    """
    _reducers[cls] = reduce


class _Pickler(cloudpickle.Pickler):
    """Pickles one value; `objects` collects its references and handles."""

    knows_torch = False  # True once storages of PyTorch have reducers.

    def __init__(self, file, buffers, objects):
        super().__init__(file, protocol=5, buffer_callback=buffers.append)
        self._objects = objects
        if not self.knows_torch and "torch" in sys.modules:
            found = _tensors.reducers()
            _reducers.update(found)
            _Pickler.knows_torch = bool(found)

    def _add(self, handle):
        self._objects.append(handle)
        return len(self._objects) - 1

    def reducer_override(self, obj):
        reduce = _reducers.get(type(obj))
        reduced = NotImplemented if reduce is None else reduce(obj, self._add)
        return super().reducer_override(obj) if reduced is NotImplemented else reduced


def get_object(index):
    """Return the Ref or Actor with that index in the value that this thread is unpickling."""
    return _current.objects[index]


def dump(value):
    """Return (pickle, buffers, objects) of any value; the lists are None if they are empty."""
    if value is None:
        return NOTHING, None, None
    if type(value) in _SIMPLE:
        return pickle.dumps(value, 5), None, None
    array = _dump_array(value)
    if array is not None:
        return array
    buffers = []
    objects = []
    with io.BytesIO() as file:
        _Pickler(file, buffers, objects).dump(value)
        head = file.getvalue()
    return head, [buffer.raw() for buffer in buffers] or None, objects or None


def _dump_array(value):
    """Return what dump() returns for a numpy array of numbers, with a short text in place of a pickle; else None.

    Both directions are several times as fast as a pickle of an array, most of all when the processor's caches hold
    the data of a large array and no code. No pickle begins with the byte 0.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray:
        return None
    dtype = value.dtype
    if dtype.kind not in "biufc" or dtype.metadata is not None or not value.flags.c_contiguous or not value.size:
        return None
    return f"\0{dtype.str}/{','.join(map(str, value.shape))}".encode(), [pickle.PickleBuffer(value).raw()], None


def _array_type(head):
    """Return (class, shape, dtype) of an array from the text of its _dump_array()."""
    import numpy
    dtype, _, shape = head[1:].decode().partition("/")
    found = numpy.ndarray, tuple(map(int, shape.split(","))) if shape else (), numpy.dtype(dtype)
    if len(_array_types) >= _ARRAY_TYPES_MAX:
        _array_types.clear()
    _array_types[head] = found
    return found


def dump_arguments(args, kwargs, extra):
    """Return what dump((args, kwargs, extra)) returns, faster if the arguments are simple."""
    if all(type(value) in _SIMPLE for value in args) and (
            not kwargs or all(type(value) in _SIMPLE for value in kwargs.values())):
        return pickle.dumps((args, kwargs, extra), 5), None, None
    return dump((args, kwargs, extra))


def load(head, buffers, objects):
    """Return the value of its parts."""
    if type(head) is bytes and head[:1] == b"\0":
        cls, shape, dtype = _array_types.get(head) or _array_type(head)
        return cls(shape, dtype, buffers[0])
    if not objects:
        return pickle.loads(head, buffers=buffers)
    outer = getattr(_current, "objects", None)
    _current.objects = objects
    try:
        return pickle.loads(head, buffers=buffers)
    finally:
        _current.objects = outer


def read(parts):
    """Return the value that Ref._get() gave, or raise the exception in it."""
    kind, head, buffers, objects, _ = parts
    if kind == VALUE:
        return load(head, buffers, objects)
    if kind == ERROR:
        error = load(head, buffers, objects)
        raise error.as_instanceof_cause() if hasattr(error, "as_instanceof_cause") else error
    raise TypeError("the value was made by a program in C, which tandem.ray cannot read")


def put(value, kind=VALUE):
    """Store a value and return its reference."""
    head, buffers, objects = dump(value)
    return _tandem.put(kind, head, buffers, objects, None)
