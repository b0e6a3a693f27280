# SPDX-License-Identifier: Apache-2.0
"""TorchRL's weight-sync schemes over tandem.weights (docs/schemes.md). TorchRL 0.14.1 must be installed.

    from tandem.torchrl import RayWeightSyncScheme          # instead of torchrl.weight_update

    collector = RayCollector(..., weight_sync_schemes={"policy": RayWeightSyncScheme()})
    collector.update_policy_weights_()

The classes have the names of TorchRL's schemes, strategies and transports. The schemes extend TorchRL's
WeightSyncScheme. A pickled copy of the sender's scheme is the receiver's scheme. Receivers are actors of Tandem, such
as the collectors of a RayCollector. These are the differences from TorchRL's own schemes:

- A version goes live at all receivers or at none. Each receiver compares each tensor with the sender's checksum. A send
  that fails raises an exception that names the receiver, changes nothing, and may be repeated. A send fails if a
  receiver dies in it; the next one goes to the others, and a warning names a remote collector that has died.
- Every receiver calls receive(), also with SharedMemWeightSyncScheme: weights never change under a running policy. A
  sender with remote collectors makes them call it. receive(timeout) raises EOFError when the sender has ended.
- All receivers get each version; a send to some workers only is refused.

The sender copies the weights to host memory once, and each receiver copies them from host memory to its model, which
may be on any device.
"""
import functools
import hashlib
import re
import uuid
import warnings

import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.weight_update import WeightStrategy, WeightSyncScheme
from torchrl.weight_update.utils import _resolve_model

from tandem import _tandem, ray
from tandem import weights as tandem_weights
from tandem.ray import exceptions

__all__ = ["STRATEGIES", "DistributedTransport", "DistributedWeightSyncScheme", "MPTransport", "ModuleStrategy",
           "MultiProcessWeightSyncScheme", "NoTransport", "NoWeightSyncScheme", "RPCTransport", "RPCWeightSyncScheme",
           "RayModuleTransformScheme", "RayTransport", "RayWeightSyncScheme", "SharedMemTransport",
           "SharedMemWeightSyncScheme", "StateDictStrategy", "TensorDictStrategy", "Transport"]


# ---- strategies ---------------------------------------------------------------------------------


class TensorDictStrategy(WeightStrategy):
    """Takes weights as a TensorDict, as TorchRL does by default."""

    def __init__(self):
        super().__init__("tensordict")


class _InPlaceStrategy(WeightStrategy):
    """A strategy that writes into the tensors of its destination and never replaces them."""

    def apply_weights(self, destination, weights, inplace=True):
        """Write weights in any form into a module, a dict or a TensorDict."""
        if not inplace:
            raise ValueError(f"apply_weights(inplace=False) failed: {type(self).__name__} writes in place only. "
                             "Use the strategy \"tensordict\" to replace the tensors")
        self._write(destination, tensors_of(weights))

    def _write(self, destination, tensors):
        _copy_into(tensors_of(destination), tensors)


class StateDictStrategy(_InPlaceStrategy):
    """Takes the state_dict() of a module, and writes it by load_state_dict()."""

    def __init__(self):
        super().__init__("tensordict")  # TorchRL warns that its own strategy "state_dict" is experimental.
        self.extract_as = "state_dict"

    def _write(self, destination, tensors):
        if isinstance(destination, torch.nn.Module):
            destination.load_state_dict(tensors)
        else:
            super()._write(destination, tensors)


class ModuleStrategy(_InPlaceStrategy):
    """Takes the parameters and buffers of a module by name, also buffers that its state_dict() leaves out."""

    def __init__(self):
        super().__init__("tensordict")

    def extract_weights(self, source):
        """Return the parameters and buffers of a module, or the tensors of another form, by name."""
        return tensors_of(source)


# The strategies by name. The names are those of the table in colocate/scheme/strategy.c.
STRATEGIES = dict(zip(_tandem.STRATEGIES, (TensorDictStrategy, StateDictStrategy, ModuleStrategy), strict=True))


def tensors_of(source):
    """Return the tensors of a module, a TensorDict or a dict by name, such as "net.0.weight"."""
    if isinstance(source, torch.nn.Module):
        # Tied tensors have each of their names, as in a TensorDict and in a state_dict().
        return {**dict(source.named_parameters(remove_duplicate=False)),
                **dict(source.named_buffers(remove_duplicate=False))}
    if isinstance(source, TensorDictBase):
        keys = source.keys(include_nested=True, leaves_only=True)
        tensors = {key if isinstance(key, str) else ".".join(key): source.get(key) for key in keys}
    elif isinstance(source, dict):
        tensors = source
    else:
        raise TypeError(f"reading weights failed: {type(source).__name__} is not a module, a TensorDict or a dict. "
                        "Give weights in one of these forms")
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"reading weights failed: {name!r} is of the type {type(tensor).__name__}. Only tensors "
                            "can be sent: leave extra state out")
    return tensors


def _copy_into(destination, source):
    """Copy tensors by name, which need to have equal names and shapes on both sides."""
    if source.keys() != destination.keys():
        raise KeyError(f"copying weights failed: {sorted(source.keys() ^ destination.keys())} are on one side only. "
                       "Sender and receivers need the same model")
    for name, tensor in destination.items():
        if source[name].shape != tensor.shape:
            raise ValueError(f"copying weights failed: {name} has the shape {tuple(source[name].shape)} instead of "
                             f"{tuple(tensor.shape)}. Sender and receivers need the same model")
    with torch.no_grad():
        for name, tensor in destination.items():
            tensor.copy_(source[name])


def _buffers_like(tensors):
    """Return contiguous tensors in host memory with the names, shapes and dtypes of others."""
    return {name: torch.empty(tuple(tensor.shape), dtype=tensor.dtype) for name, tensor in tensors.items()}


# ---- transports ---------------------------------------------------------------------------------


class Transport:
    """Carries the versions of one model by a scheme of tandem.weights.

    It has the methods of TorchRL's TransportBackend and InitialSyncTransport. model is the ID that sender and receivers
    share; timeout, in seconds, bounds each connect and each send. A sender also has receivers, the number of receivers
    that its first send waits for, and remote_receives. Each of the latter is a function that makes a remote receiver
    begin to receive one version; it returns a function that waits until the receiver has applied that version.
    """

    scheme = None  # Name of the scheme in tandem.weights.
    connects_late = False  # True if connect() has no traffic, and the first version connects both sides.

    def __init__(self, model, *, receivers=1, remote_receives=(), timeout=60.0):
        self.model = model
        self.version = 0  # Number of the version that was sent or received last; 0 before the first one.
        self._receivers_count = receivers
        self._remote_receives = list(remote_receives)
        self._pending = []  # Pairs of a remote receive that has begun and of the function that waits for its end.
        self._is_sending = False  # True between sender.send_async() and sender.wait().
        self._timeout = timeout
        self._first_weights = None
        self._buffers = None  # Tensors in host memory by name, which a sender sends or a receiver receives.
        self._sender = None
        self._receiver = None

    # ---- the sender

    def set_first_weights(self, weights):
        """Set the weights that setup_connection_and_weights_on_sender() sends."""
        self._first_weights = weights

    def setup_connection_and_weights_on_sender(self):
        """Wait for the receivers and send the first weights."""
        if self.connects_late:
            return
        if self._first_weights is None:
            raise RuntimeError(f"connect() of {self.model} failed: there are no weights to send. "
                               "Call set_first_weights() first")
        self._connect_sender(self._first_weights)
        self._first_weights = None

    def send_weights(self, weights):
        """Send weights to all receivers, and return when all have them."""
        self.send_weights_async(weights)
        self.wait_ack()

    def send_weights_async(self, weights):
        """Begin to send a copy of weights; wait_ack() waits for the end. A late connect happens here."""
        is_first = self.connects_late and self.version == 0
        if not is_first:
            if self._sender is None:
                raise RuntimeError(f"send() of {self.model} failed: there is no connection. Call connect() first")
            _copy_into(self._buffers, tensors_of(weights))
        self._pending = [(receive, receive()) for receive in self._remote_receives]
        if is_first:
            self._connect_sender(weights)
        else:
            self._sender.send_async()
            self._is_sending = True

    def wait_ack(self):
        """Wait until all receivers have what send_weights_async() sends, and remote ones have applied it."""
        pending, self._pending = self._pending, []
        if self._is_sending:
            self._is_sending = False
            self.version = self._sender.wait()  # The sender's own timeout bounds the send and names the receiver.
        for receive, wait in pending:
            try:
                wait()
            except exceptions.ActorDiedError as error:
                # The sender leaves out receivers that have died before a send.
                self._remote_receives.remove(receive)
                warnings.warn(f"send() of {self.model} leaves out a remote receiver: {error}", RuntimeWarning,
                              stacklevel=2)

    def _connect_sender(self, weights):
        tensors = tensors_of(weights)
        if self._sender is None:
            self._buffers = _buffers_like(tensors)
            self._sender = tandem_weights.Sender(self.model, self._buffers, receivers=self._receivers_count,
                                                 scheme=self.scheme, timeout=self._timeout)
        _copy_into(self._buffers, tensors)
        self._sender.connect()
        self.version = 1

    # ---- a receiver

    def setup_connection_and_weights_on_receiver(self, *, worker_idx=None, weights=None, model=None, strategy=None):
        """Wait for the sender, receive the first weights and apply them. Return them, or None if it connects late.

        The names and shapes that are received are those of weights, or of the model if weights is None. All receivers
        get the same; worker_idx is only a number in TorchRL's messages.
        """
        return None if self.connects_late else self._connect_receiver(weights, model, strategy)

    def receive_weights(self, timeout=None, *, weights=None, model=None, strategy=None):
        """Receive one version and apply it to the model, or copy it to weights if there is no model.

        It returns what was received, as a TensorDict whose tensors change with the next version, or None if nothing has
        come within timeout seconds (None: it waits without limit). It raises EOFError if the sender has ended. The
        first version of a transport that connects late is awaited for the timeout of the transport.
        """
        if self._receiver is None:
            if not self.connects_late:
                raise RuntimeError(f"receive() of {self.model} failed: there is no connection. Call connect() first")
            return self._connect_receiver(weights, model, strategy)
        try:
            self.version = self._receiver.receive(timeout)
        except exceptions.GetTimeoutError:
            return None
        return self._apply(weights, model, strategy)

    def _connect_receiver(self, weights, model, strategy):
        self._buffers = _buffers_like(tensors_of(model if weights is None else weights))
        self._receiver = tandem_weights.Receiver(self.model, self._buffers, timeout=self._timeout)
        try:
            self._receiver.connect()
            with self._receiver.read() as reading:
                self.version = reading.version
            return self._apply(weights, model, strategy)
        except Exception:
            self.shutdown()  # Another connect begins with another receiver.
            raise

    def _apply(self, weights, model, strategy):
        """Apply what was received to the model or to weights, and return it."""
        received = TensorDict({}, batch_size=[])
        for name, tensor in self._buffers.items():
            received.set(tuple(name.split(".")), tensor)
        if model is not None:
            (TensorDictStrategy() if strategy is None else strategy).apply_weights(model, received)
        elif weights is not None:
            _copy_into(tensors_of(weights), self._buffers)
        return received

    # ---- both

    def shutdown(self):
        """End the sender, after which receivers get EOFError, or the receiver, which later sends leave out."""
        for end in (self._sender, self._receiver):
            if end is not None:
                end.shutdown()
        self._sender = self._receiver = None


class SharedMemTransport(Transport):
    """Buckets lie in shared memory, once on each node."""

    scheme = _tandem.TORCHRL_SCHEMES["SharedMemWeightSyncScheme"]


class MPTransport(Transport):
    """Buckets travel inside calls."""

    scheme = _tandem.TORCHRL_SCHEMES["MultiProcessWeightSyncScheme"]


class DistributedTransport(Transport):
    """Buckets are broadcast in a group of the sender and its receivers."""

    scheme = _tandem.TORCHRL_SCHEMES["DistributedWeightSyncScheme"]


class RPCTransport(Transport):
    """Buckets travel by reference. As in TorchRL, connect() has no traffic: the first send connects both sides."""

    scheme = _tandem.TORCHRL_SCHEMES["RPCWeightSyncScheme"]
    connects_late = True


class RayTransport(Transport):
    """Buckets travel by reference."""

    scheme = _tandem.TORCHRL_SCHEMES["RayWeightSyncScheme"]


class _ModuleTransport(RayTransport):
    """Carries the module of a RayModuleTransform, whose actor is called to connect and to receive."""

    connects_late = True


class NoTransport(Transport):
    """Versions are counted and agreed on. No bytes travel, and models stay as they are."""

    scheme = _tandem.TORCHRL_SCHEMES["NoWeightSyncScheme"]

    def _apply(self, weights, model, strategy):
        return None


# ---- schemes ------------------------------------------------------------------------------------


def _ray_receive(collector, address, timeout):
    """Make a remote collector of Ray receive a version, and return a function that waits for the end."""
    return functools.partial(ray.get, collector.cascade_execute.remote(address, timeout))


def _rpc_receive(collector, address, timeout):
    """Make a collector in a worker of torch.distributed.rpc receive a version, and return a function that waits."""
    return collector.rpc_async().cascade_execute(address, timeout).wait


def _transform_receive(transform):
    """Make the actor of a RayModuleTransform receive a version, and return a function that waits for the end."""
    return functools.partial(ray.get, transform._actor._receive_weights_scheme.remote())


def _model_of(name, model_id):
    """Return the ID of a model in tandem.weights, which has letters, digits, ".", "-" and "_", at most 47."""
    model = f"{name}.{model_id}"
    if re.fullmatch(r"[A-Za-z0-9._-]{1,47}", model):
        return model
    return f"{name}.{hashlib.sha256(model_id.encode()).hexdigest()[:16]}"


def _refuse(method, options):
    """Raise NotImplementedError if there are options of TorchRL's schemes that the schemes of Tandem do not have."""
    if options:
        raise NotImplementedError(
            f"{method}({', '.join(options)}) failed: all receivers are actors of Tandem that get the same weights, so "
            f"there is no {' and no '.join(options)}. Give num_workers, or remote collectors such as a RayCollector's")


class _Scheme(WeightSyncScheme):
    """A scheme of TorchRL for one model over a transport of Tandem.

    strategy is "tensordict", "state_dict" or "module". name is the first part of the ID that sender and receivers
    share, by default a random one, which pickled copies of the scheme keep. timeout, in seconds, bounds each connect
    and each send.
    """

    _transport_class = Transport

    def __init__(self, strategy="tensordict", *, name=None, timeout=60.0):
        if strategy not in STRATEGIES:
            raise ValueError(f"{type(self).__name__}() failed: the strategy {strategy!r} is unknown. Give one of "
                             f"{', '.join(STRATEGIES)}")
        if name is not None and not re.fullmatch(r"[A-Za-z0-9._-]{1,30}", name):
            raise ValueError(f"{type(self).__name__}() failed: the name {name!r} is not possible. Give 1 to 30 "
                             "letters, digits, \".\", \"-\" or \"_\"")
        super().__init__()
        self._strategy = STRATEGIES[strategy]()
        self.strategy_str = self._strategy.extract_as  # The form in which a RayCollector takes the weights.
        self._name = uuid.uuid4().hex[:12] if name is None else name
        self._timeout = timeout

    @property
    def model(self):
        """Model that weights are taken from or applied to. The context's factory makes a policy if there is none."""
        if self._model_ref is None and self.context is not None:
            model = _resolve_model(self.context, self._model_id)
            if model is None and self._model_id == "policy":
                model = self.context.policy = self.context.policy_factory[0]()
            if model is None:
                raise AttributeError(f"finding the model {self._model_id} failed: it is None in {self.context}. Give "
                                     "the model to the collector")
            self.model = model
        return None if self._model_ref is None else self._model_ref()

    @model.setter
    def model(self, model):
        WeightSyncScheme.model.fset(self, model)

    @property
    def version(self):
        """Number of the version that was sent or received last; 0 before the first one."""
        return 0 if self._shared_transport is None else self._shared_transport.version

    def create_transport(self, **options):
        """Return a transport of the model; options are those of Transport."""
        return self._transport_class(_model_of(self._name, self._model_id), timeout=self._timeout, **options)

    def _init_on_sender_impl(self, *, model_id, context=None, model=None, weights=None, num_workers=None,
                             remote_collectors=None, **others):
        self.model_id = model_id
        self.context = context
        if model is not None:
            self.model = model
        if weights is not None:
            self.weights = weights
        receives = self._remote_receives(context, remote_collectors)
        if not receives and hasattr(context, "update_policy_weights_"):
            raise NotImplementedError(f"init_on_sender() of {model_id} failed: {type(context).__name__} is a collector "
                                      "without remote collectors, and only actors can receive. Use a RayCollector")
        _refuse("init_on_sender", others)
        count = len(receives) or num_workers or getattr(context, "num_workers", None)
        if not count:
            raise ValueError(f"init_on_sender() of {model_id} failed: the number of receivers is unknown. Give "
                             "num_workers or remote_collectors")
        self.shared_transport = self.create_transport(receivers=count, remote_receives=receives)

    def _remote_receives(self, context, remote_collectors):
        """Return functions that make the remote collectors receive a version, if there are remote collectors."""
        collectors, receive = remote_collectors or getattr(context, "remote_collectors", None), _ray_receive
        if not collectors:
            collectors, receive = getattr(context, "collector_rrefs", None), _rpc_receive
        address = f"_receiver_schemes['{self._model_id}'].receive_version"
        return [functools.partial(receive, collector, address, self._timeout) for collector in collectors or ()]

    def _init_on_receiver_impl(self, *, model_id, context=None, model=None, worker_idx=None, **others):
        _refuse("init_on_receiver", others)
        self.model_id = model_id
        self.context = context
        self._worker_idx = worker_idx
        if model is not None:
            self.model = model
        self.shared_transport = self.create_transport()

    def _setup_connection_and_weights_on_sender_impl(self, *, worker_idx=None, weights=None):
        if not self._shared_transport.connects_late:
            self._shared_transport.set_first_weights(self.prepare_weights(weights, self._model_id, self._strategy))
        elif weights is not None:
            raise ValueError(f"connect(weights=...) of {self._model_id} failed: {type(self).__name__} sends no weights "
                             "when it connects. Give them to send()")
        self._shared_transport.setup_connection_and_weights_on_sender()

    def _setup_connection_and_weights_on_receiver_impl(self, *, worker_idx=None):
        # The transport applies the weights in place. TorchRL would apply them a second time, and make the tensors of
        # the transport the model's parameters.
        self._shared_transport.setup_connection_and_weights_on_receiver(
            worker_idx=self._worker_idx if worker_idx is None else worker_idx, weights=self.weights, model=self.model,
            strategy=self._strategy)

    def prepare_weights(self, weights, model_id, strategy, context=None):
        """Return the weights to send: those given, or those of init_on_sender(), or those of the model."""
        if weights is None:
            weights = self.weights
        if weights is None:
            raise RuntimeError(f"sending the weights of {model_id} failed: there are none, and no model. Give them to "
                               "connect() and send()")
        return strategy.extract_weights(weights) if isinstance(weights, torch.nn.Module) else weights

    def send(self, weights=None, worker_ids=None):
        """Send weights, or those of the model, to all receivers, and return when all have them."""
        if worker_ids is not None:
            raise NotImplementedError(f"send(worker_ids={worker_ids}) of {self._model_id} failed: all receivers get "
                                      "each version. Leave worker_ids out")
        super().send(weights)

    def receive_version(self, timeout=None):
        """Receive one version and return its number only, for remote callers that do not need the weights."""
        self.receive(timeout)
        return self.version

    def shutdown(self):
        """End this side of the scheme."""
        super().shutdown()
        if getattr(self, "_shared_transport", None) is not None:
            self._shared_transport.shutdown()

    def __getstate__(self):
        state = super().__getstate__()
        state["_shared_transport"] = None
        state.pop("_weights", None)
        return state


class SharedMemWeightSyncScheme(_Scheme):
    """TorchRL's scheme of this name, over shared memory of Tandem."""

    _transport_class = SharedMemTransport


class MultiProcessWeightSyncScheme(_Scheme):
    """TorchRL's scheme of this name; buckets travel inside calls."""

    _transport_class = MPTransport


class DistributedWeightSyncScheme(_Scheme):
    """TorchRL's scheme of this name, by broadcasts of a group of Tandem."""

    _transport_class = DistributedTransport


class RPCWeightSyncScheme(_Scheme):
    """TorchRL's scheme of this name; buckets travel by reference, and the first send connects."""

    _transport_class = RPCTransport


class RayWeightSyncScheme(_Scheme):
    """TorchRL's scheme of this name; buckets travel by reference."""

    _transport_class = RayTransport


class RayModuleTransformScheme(_Scheme):
    """TorchRL's scheme of this name: the receiver is the actor of the RayModuleTransform that was given the scheme.

    The first send connects both sides. Buckets travel as with RayWeightSyncScheme, because the scheme "module" of
    tandem/weights.h is for actors in C.
    """

    _transport_class = _ModuleTransport

    def __init__(self, strategy="tensordict", *, name=None, timeout=60.0):
        super().__init__(strategy, name=name, timeout=timeout)
        self._transform = None  # The RayModuleTransform of the sender.

    def _set_transform(self, ray_transform):
        self._transform = ray_transform

    def _init_on_sender_impl(self, *, model_id="module", **options):
        if self._transform is None:
            raise ValueError(f"init_on_sender() of {model_id} failed: the scheme has no transform. Give the scheme to "
                             "a RayModuleTransform first")
        super()._init_on_sender_impl(model_id=model_id, num_workers=1, **options)

    def _remote_receives(self, context, remote_collectors):
        return [functools.partial(_transform_receive, self._transform)]

    def _setup_connection_and_weights_on_sender_impl(self, *, worker_idx=None, weights=None):
        super()._setup_connection_and_weights_on_sender_impl(worker_idx=worker_idx, weights=weights)
        ray.get(self._transform._actor._init_weight_sync_scheme.remote(self, self._model_id))

    def _init_on_receiver_impl(self, *, model_id, context=None, **options):
        super()._init_on_receiver_impl(model_id=model_id, context=context, model=context.module, **options)

    def receive(self, timeout=None):
        """Receive one version. The transform's actor gives no timeout, and then waits as long as a send may take."""
        return super().receive(self._timeout if timeout is None else timeout)

    def __getstate__(self):
        return {**super().__getstate__(), "_transform": None}


class NoWeightSyncScheme(_Scheme):
    """TorchRL's scheme of this name; versions are counted, and models stay as they are."""

    _transport_class = NoTransport
