# SPDX-License-Identifier: Apache-2.0
"""Weights from a trainer to receivers in other processes, without a job (include/tandem/weights.h, docs/schemes.md).

    # In the trainer, a driver or an actor:
    sender = tandem.weights.Sender("policy", model.state_dict(), receivers=2)
    sender.connect()                    # waits for the receivers and sends version 1
    version = sender.send()             # after each step; the tensors are read in place

    # In each receiving actor:
    receiver = tandem.weights.Receiver("policy", model.state_dict())
    receiver.connect()                  # waits for the sender and the first weights
    version = receiver.receive(timeout=60)  # the tensors have the new weights

Every send makes a version: it is staged beside the weights that are served, every tensor is compared with the sender's
checksum, and every receiver votes. All receivers then serve the new version, or all keep the old one. A send that
fails raises an exception that names the receiver and the tensor, changes nothing, and may be repeated: ActorDiedError
for a receiver that died, after which the next send goes without it; GetTimeoutError for one that did not come in time.
EOFError says that the sender has ended.

Several models are committed together if the names of their models come with their tensors:

    sender = tandem.weights.Sender({"actor": actor.state_dict(), "critic": critic.state_dict()})
    receiver = tandem.weights.Receiver({"actor": actor.state_dict(), "critic": critic.state_dict()})

Each send then makes one version of all of them, which goes live at all receivers of all models or at none. A receiver
may have some of the models only. In read() all models have the same version.

Tensors are CPU tensors of PyTorch, arrays of numpy, or writable buffers, all contiguous. Neither side copies them more
often than it must: the sender's are read when it sends, and a receiver's are written when a version goes live.
"""
import contextlib
import threading

from tandem import _tandem
from tandem._dtypes import address_of, dtype_name, dtype_number, dtype_size, is_torch, product
from tandem.job import TensorView
from tandem.ray import exceptions as _exceptions  # noqa: F401  (makes failures exceptions of their own types)

__all__ = ["Receiver", "Sender", "Spec"]

_DAY_MS = 24 * 60 * 60 * 1000


class Spec:
    """A tensor that is received: dtype and shape of the whole tensor, as the sender has it.

    into is where new versions are copied to, a tensor, an array or a buffer; None: Tandem keeps the bytes, and read()
    shows them in place. part is (index, count): this receiver has part number index of count equal parts of the first
    dimension, and into has room for that part.
    """

    def __init__(self, dtype, shape, into=None, part=None):
        self.dtype = dtype_name(dtype)
        self.shape = tuple(int(length) for length in shape)
        self.into = into
        self.part = part
        if part is not None and (len(self.shape) == 0 or part[1] < 1 or self.shape[0] % part[1] != 0):
            raise ValueError(f"the first dimension of {self.shape} has no {part[1]} equal parts")

    def part_shape(self):
        """Return the shape of what this receiver has."""
        return self.shape if self.part is None else (self.shape[0] // self.part[1], *self.shape[1:])


class Sender:
    """Sends a model, which is an ID and a dict of tensors, such as a state_dict(), or a dict of several models by ID.

    receivers is the number of receivers that connect() waits for; scheme says how the bytes travel ("shared",
    "processes", "distributed" and others of docs/schemes.md); timeout, in seconds, bounds each call; at most
    bucket_bytes are staged at once. With relay_of, a Receiver of this process, its tensors are sent on. Several models
    are committed together; receivers and scheme may then be dicts by ID, and relay_of is not possible.

    A model of DTensors has a Sender with the same arguments on every rank of the mesh. Each method is then called on
    all ranks; rank 0 collects whole tensors and sends them, and the methods of other ranks return None. One thread at a
    time may use a sender, which may stand in a with statement.
    """

    def __init__(self, model, tensors=None, *, receivers=1, scheme="shared", timeout=60.0, bucket_bytes=0,
                 relay_of=None):
        self._sender = None  # Goes first when this object ends: it may still read the tensors.
        if isinstance(model, str) and (tensors is None) == (relay_of is None):
            raise ValueError("a sender has either tensors or relay_of")
        models = _models_of(model, {} if tensors is None and isinstance(model, str) else tensors)
        if relay_of is not None and len(models) > 1:
            raise ValueError("a sender with relay_of sends one model")
        schemes = {name: _scheme_number(_of_model(scheme, name)) for name in models}
        self._lock = threading.Lock()
        self._relay_of = relay_of
        self._sharded = {(name, tensor_name): tensor for name, tensors in models.items()
                         for tensor_name, tensor in tensors.items() if _is_sharded(tensor)}
        if self._sharded and _rank() != 0:
            return
        self._tensors = {(name, tensor_name): _whole_copy(tensor) if (name, tensor_name) in self._sharded else tensor
                         for name, tensors in models.items() for tensor_name, tensor in tensors.items()}
        plain = [(name, schemes[name], [_plain(tensor_name, _spec_of(tensor_name, self._tensors[name, tensor_name]))
                                        for tensor_name in tensors], _of_model(receivers, name))
                 for name, tensors in models.items()]
        self._sender = _tandem.create_sender(plain, _milliseconds(timeout), bucket_bytes,
                                             None if relay_of is None else relay_of._receiver)

    def connect(self):
        """Wait for the receivers and send the first weights."""
        self._collect()
        with self._alone() as sender:
            if sender is not None:
                sender.connect()

    def attach(self, data):
        """Attach bytes, at most 4 MiB, to each version of each model that is sent from now on; b"" ends that.

        A receiver finds them in Reading.attached. A sender with relay_of sends on those of its receiver's version.
        """
        with self._alone() as sender:
            if sender is not None:
                sender.attach(bytes(data))

    def send(self):
        """Send the tensors to all receivers, wait until all serve them, and return the version's number."""
        self._collect()
        with self._alone() as sender:
            return None if sender is None else sender.send()

    def send_async(self):
        """Begin to send; the tensors must not change before wait() has returned."""
        self._collect()
        with self._alone() as sender:
            if sender is not None:
                sender.send_async()

    def wait(self, timeout=None):
        """Return the version of send_async(); GetTimeoutError if the send is still in progress after timeout."""
        with self._alone() as sender:
            return None if sender is None else sender.wait(_milliseconds(timeout))

    @property
    def receivers_count(self):
        """Number of receivers to which the last send went, over all models."""
        return 0 if self._sender is None else self._sender.receivers_count

    def shutdown(self):
        """End the sender; receivers get EOFError from then on."""
        with self._alone() as sender:
            if sender is not None:
                sender.shutdown()

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.shutdown()

    def _collect(self):
        """Let rank 0 have the whole tensors of all shards."""
        for key, tensor in self._sharded.items():
            whole = tensor.full_tensor()
            if self._sender is not None:
                self._tensors[key].copy_(whole)

    @contextlib.contextmanager
    def _alone(self):
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("another thread is in a call of this sender")
        try:
            yield self._sender
        finally:
            self._lock.release()


class Receiver:
    """Receives a model in an actor: a dict from name to a tensor, an array, or a Spec; or a dict of several by ID.

    New versions are copied to the tensors, which must not be used while receive() runs. A DTensor gets its local shard,
    if it is replicated or one of equal parts of the first dimension. A Spec without `into` leaves the bytes where they
    are; read() shows them. With background=True a thread receives all versions after connect(), and reads must be in
    read(). One thread at a time may call connect() and receive(). May stand in a with statement. Several models must
    be some or all of those that their sender commits together.
    """

    def __init__(self, model, tensors=None, *, timeout=60.0, background=False):
        self._receiver = None  # Goes first when this object ends: it may still write the tensors.
        self._lock = threading.Lock()
        self._is_set = not isinstance(model, str)
        self._specs = {name: {tensor_name: tensor if isinstance(tensor, Spec) else _spec_of(tensor_name, tensor)
                              for tensor_name, tensor in tensors.items()}
                       for name, tensors in _models_of(model, tensors).items()}
        self._receiver = _tandem.create_receiver(
            [(name, [_plain(tensor_name, spec) for tensor_name, spec in specs.items()])
             for name, specs in self._specs.items()], _milliseconds(timeout), background)

    def connect(self):
        """Wait for the sender, compare the tensors with its own, and receive the first weights."""
        with self._alone():
            self._ended_is_eof(self._receiver.connect)

    def receive(self, timeout=None):
        """Wait for a version to go live here and return its number.

        GetTimeoutError: none came within timeout seconds (0 looks without waiting). EOFError: the sender has ended.
        Other exceptions say why a version has failed; the tensors are then those of the version before.
        """
        with self._alone():
            return self._ended_is_eof(self._receiver.receive, _milliseconds(timeout))

    @contextlib.contextmanager
    def read(self):
        """Let no version go live inside of a with statement, whose value is a Reading, or a SetReading of several models.

        Any number of threads may read at the same time; receive() must not be called meanwhile.
        """
        version = self._receiver.read_begin()
        try:
            readings = {name: Reading(self._receiver, name, specs, version) for name, specs in self._specs.items()}
            yield SetReading(readings, version) if self._is_set else next(iter(readings.values()))
        finally:
            self._receiver.read_end()

    def shutdown(self):
        """End the receiver; the next send goes without it."""
        with self._alone():
            self._receiver.shutdown()

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.shutdown()

    @staticmethod
    def _ended_is_eof(function, *args):
        try:
            return function(*args)
        except Exception as error:
            if getattr(error, "_tandem_status", None) == _tandem.E_END:
                raise EOFError(str(error)) from None
            raise

    @contextlib.contextmanager
    def _alone(self):
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("another thread is in a call of this receiver")
        try:
            yield
        finally:
            self._lock.release()


class Reading:
    """The tensors of one version, between the begin and the end of Receiver.read().

    reading[name] is a tandem.job.TensorView: reading[name].numpy() and .torch() are views, which must not be used after
    the end. version is the number of the version, attached the bytes that the sender has attached to it (b"" if none).
    """

    def __init__(self, receiver, model, specs, version):
        self._receiver = receiver
        self._model = model
        self._specs = specs
        self._indices = {name: index for index, name in enumerate(specs)}
        self.version = version
        self.attached = receiver.attached(model)

    def __getitem__(self, name):
        shape = self._specs[name].part_shape()
        stride = tuple(product(shape[dimension + 1:]) for dimension in range(len(shape)))
        return TensorView(name, self._specs[name].dtype, shape, stride,
                          self._receiver.address(self._model, self._indices[name]))

    def keys(self):
        """Return the names of the tensors."""
        return self._specs.keys()


class SetReading:
    """The models of one version, between the begin and the end of Receiver.read() of several models.

    reading[model] is the Reading of a model. All models have the version `version`.
    """

    def __init__(self, readings, version):
        self._readings = readings
        self.version = version

    def __getitem__(self, model):
        return self._readings[model]

    def keys(self):
        """Return the IDs of the models."""
        return self._readings.keys()


def _models_of(model, tensors):
    """Return the tensors by ID of model and name, of one model or of a dict of several."""
    if isinstance(model, str):
        if tensors is None:
            raise ValueError(f"the model {model} has no tensors")
        return {model: tensors}
    if tensors is not None:
        raise ValueError("the tensors of several models are in the dict of models")
    if len(model) == 0:
        raise ValueError("there are no models to commit together")
    return dict(model)


def _of_model(value, model):
    """Return the value of an argument for one model, where it is a dict."""
    return value[model] if isinstance(value, dict) else value


def _scheme_number(scheme):
    if scheme == "module" or scheme not in _tandem.SCHEMES:
        raise ValueError(f"the scheme {scheme!r} is not one of "
                         f"{', '.join(name for name in _tandem.SCHEMES if name != 'module')}")
    return _tandem.SCHEMES[scheme]


def _milliseconds(seconds):
    """Return the milliseconds of a timeout; None is a day."""
    if seconds is None:
        return _DAY_MS
    if seconds < 0:
        raise ValueError(f"a timeout of {seconds} seconds")
    return min(_DAY_MS, int(seconds * 1000))


def _rank():
    import torch.distributed
    return torch.distributed.get_rank()


def _is_sharded(tensor):
    """Return whether a tensor is a DTensor of more than one rank."""
    mesh = getattr(tensor, "device_mesh", None)
    return mesh is not None and mesh.size() > 1


def _whole_copy(tensor):
    """Return an empty tensor of the CPU with the shape of a DTensor."""
    import torch
    return torch.empty(tuple(tensor.shape), dtype=tensor.dtype)


def _part_of(name, tensor):
    """Return (index, count) of the local shard of a DTensor, or None if it is replicated."""
    part = None
    for dimension, placement in enumerate(tensor.placements):
        if placement.is_replicate():
            continue
        if part is not None or not placement.is_shard(0):
            raise ValueError(f"the tensor {name} has the placements {tensor.placements}: only one of equal parts of the "
                             "first dimension can be received")
        part = (tensor.device_mesh.get_local_rank(dimension), tensor.device_mesh.size(dimension))
    if part is not None and tensor.shape[0] % part[1] != 0:
        raise ValueError(f"the tensor {name} of {tensor.shape[0]} rows is in {part[1]} uneven parts, which cannot be "
                         "received")
    return part


def _spec_of(name, tensor):
    """Return the Spec of a tensor, an array or a buffer."""
    if hasattr(tensor, "placements") and hasattr(tensor, "to_local"):
        return Spec(tensor.dtype, tensor.shape, tensor.to_local(), _part_of(name, tensor))
    if is_torch(tensor):
        return Spec(tensor.dtype, tensor.shape, tensor)
    if hasattr(tensor, "__array_interface__"):
        return Spec(tensor.dtype, tensor.shape, tensor)
    return Spec("uint8", (memoryview(tensor).nbytes,), tensor)


def _plain(name, spec):
    """Return what the extension wants to know of a tensor, after checks."""
    into = spec.into
    index, count = (0, 0) if spec.part is None else spec.part
    if into is None:
        return name, dtype_number(spec.dtype), spec.shape, 0, index, count
    if is_torch(into):
        if into.device.type != "cpu":
            raise TypeError(f"the tensor {name} is on {into.device}: only tensors on the CPU are supported")
        is_contiguous, size_bytes = into.is_contiguous(), into.numel() * into.element_size()
    else:
        view = memoryview(into) if not hasattr(into, "__array_interface__") else None
        is_contiguous = into.flags.c_contiguous if view is None else view.c_contiguous
        size_bytes = into.nbytes if view is None else view.nbytes
    if not is_contiguous:
        raise ValueError(f"the tensor {name} is not contiguous")
    wanted = product(spec.part_shape()) * dtype_size(spec.dtype)
    if size_bytes != wanted:
        raise ValueError(f"the tensor {name} has {size_bytes} bytes of memory for {wanted}")
    return name, dtype_number(spec.dtype), spec.shape, address_of(into), index, count
