# SPDX-License-Identifier: Apache-2.0
"""TorchRL's weight-sync schemes over Tandem. All but the first test need PyTorch and TorchRL."""
import functools
import inspect
import pickle
import warnings

import pytest

from tandem import _tandem, ray

# The actors import PyTorch and TorchRL, which takes long on a busy machine.
SECONDS = 120
MISSING = "skipped: the Python package torchrl is missing"


@pytest.fixture(name="torchrl")
def torchrl_fixture():
    pytest.importorskip("torchrl", reason=MISSING)
    from tandem import torchrl
    return torchrl


@pytest.fixture(name="theirs")
def theirs_fixture():
    return pytest.importorskip("torchrl.weight_update", reason=MISSING)


def test_the_tables_of_c_name_schemes_and_strategies():
    assert list(_tandem.TORCHRL_SCHEMES.values()) == list(_tandem.SCHEMES)
    assert _tandem.TORCHRL_SCHEMES["RayWeightSyncScheme"] == "actors"
    assert _tandem.STRATEGIES == ["tensordict", "state_dict", "module"]


def test_the_names_are_those_of_torchrl(torchrl, theirs):
    schemes = {name for name in theirs.__all__ if name.endswith("Scheme") and name != "WeightSyncScheme"}
    assert _tandem.TORCHRL_SCHEMES.keys() == schemes
    for name in schemes:
        scheme = getattr(torchrl, name)()
        assert isinstance(scheme, theirs.WeightSyncScheme)
        if name != "RayModuleTransformScheme":  # Its transport is that of RayWeightSyncScheme.
            scheme.init_on_sender(model_id="policy", num_workers=1)
            assert scheme.shared_transport.scheme == _tandem.TORCHRL_SCHEMES[name]
    assert list(torchrl.STRATEGIES) == _tandem.STRATEGIES
    transports = {name for name in theirs.__all__ if name.endswith("Transport")} - {"InitialSyncTransport"}
    assert transports == {cls.__name__ for cls in torchrl.Transport.__subclasses__()} - {"NoTransport"}


def test_transports_have_the_methods_of_torchrls_protocols(torchrl, theirs):
    for protocol in (theirs.TransportBackend, theirs.InitialSyncTransport):
        for name, function in vars(protocol).items():
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            ours = inspect.signature(getattr(torchrl.Transport, name)).parameters
            assert list(inspect.signature(function).parameters) == list(ours), name


def policy_of(value):
    import torch
    policy = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    policy.register_buffer("scratch", torch.zeros(2), persistent=False)
    with torch.no_grad():
        for tensor in [*policy.parameters(), *policy.buffers()]:
            tensor.fill_(value)
    return policy


def values_of(policy, names=None):
    tensors = {**dict(policy.named_parameters()), **dict(policy.named_buffers())}
    return {float(tensor.float().mean()) for name, tensor in tensors.items() if names is None or name in names}


@ray.remote(max_concurrency=2)
class Collector:
    """Has a policy and a scheme that receives it, as a remote collector of TorchRL has."""

    def use(self, pickled):
        """Begin with another policy and a scheme."""
        self.policy = self.module = policy_of(0)
        self.parameters = list(self.policy.parameters())
        self.scheme = pickle.loads(pickled)
        self._receiver_schemes = {"policy": self.scheme}
        self.scheme.init_on_receiver(model_id="policy", context=self, worker_idx=0)
        with pytest.raises(RuntimeError, match="synchronized"):
            self.scheme.receive()

    def connect(self):
        self.scheme.connect(worker_idx=0)
        return self.scheme.version

    def cascade_execute(self, address, *args):
        from torchrl.weight_update.utils import _resolve_attr
        return _resolve_attr(self, address)(*args)

    def _init_weight_sync_scheme(self, scheme, model_id):
        """Connect as the actor of a RayModuleTransform does."""
        self.scheme = scheme
        scheme.init_on_receiver(model_id=model_id, context=self)
        scheme.connect()

    def _receive_weights_scheme(self):
        self.scheme.receive()

    def values(self, names=None):
        return values_of(self.policy, names)

    def has_its_parameters(self):
        """Tell whether the policy has the parameters that it was made with, and memory of its own."""
        parameters = list(self.policy.parameters())
        received = {tensor.data_ptr() for tensor in self.scheme.shared_transport._buffers.values()}
        return all(one is other for one, other in zip(parameters, self.parameters, strict=True)) and not (
            received & {parameter.data_ptr() for parameter in parameters})

    def receive_into(self, timeout):
        """Receive into weights without a model, and return their values."""
        from tensordict import TensorDict
        weights = TensorDict.from_module(policy_of(0)).data
        self.scheme.shared_transport.receive_weights(timeout, weights=weights)
        return {float(tensor.float().mean()) for tensor in weights.values(True, True)}

    def error(self):
        try:
            self.scheme.receive(SECONDS)
        except Exception as error:
            return type(error).__name__


@pytest.fixture(name="actors", scope="module")
def actors_fixture():
    """Two actors for all tests, because it takes long until an actor has imported TorchRL."""
    pytest.importorskip("torchrl", reason=MISSING)
    return [Collector.remote() for _ in range(2)]


def use(collectors, scheme):
    """Let collectors receive the policy of a scheme."""
    ray.get(on_all(collectors, "use", pickle.dumps(scheme)))


def on_all(collectors, method, *args):
    return [getattr(collector, method).remote(*args) for collector in collectors]


RECEIVE = "_receiver_schemes['policy'].receive_version"


@pytest.mark.parametrize("name, strategy", [("SharedMemWeightSyncScheme", "tensordict"),
                                            ("MultiProcessWeightSyncScheme", "state_dict"),
                                            ("DistributedWeightSyncScheme", "module")])
def test_weights_come_to_two_receivers(torchrl, actors, name, strategy):
    scheme = getattr(torchrl, name)(strategy, timeout=SECONDS)
    policy = policy_of(1)
    # Only the strategies tensordict and module take the buffer that is no part of the state_dict.
    expected = set(dict(policy.state_dict())) if strategy == "state_dict" else None
    use(actors, scheme)
    scheme.init_on_sender(model_id="policy", model=policy, num_workers=2)
    connected = on_all(actors, "connect")
    scheme.connect()
    assert ray.get(connected) == [1, 1]
    assert ray.get(on_all(actors, "values", expected)) == [{1.0}] * 2
    assert ray.get(on_all(actors, "has_its_parameters")) == [True, True]
    received = on_all(actors, "cascade_execute", RECEIVE, SECONDS)
    scheme.send(policy_of(2))
    assert ray.get(received) == [2, 2] and scheme.version == 2
    assert ray.get(on_all(actors, "values", expected)) == [{2.0}] * 2
    if strategy == "state_dict":
        assert ray.get(actors[0].values.remote({"scratch"})) == {0.0}
    assert ray.get(actors[0].cascade_execute.remote("_receiver_schemes['policy'].receive", 0)) is None
    if strategy == "tensordict":
        received = on_all(actors, "receive_into", SECONDS)
        scheme.send(policy_of(3))
        assert ray.get(received) == [{3.0}] * 2
        assert ray.get(on_all(actors, "values")) == [{2.0}] * 2
    scheme.shutdown()
    assert ray.get(actors[0].error.remote()) == "EOFError"


def test_remote_collectors_receive_and_one_that_died_is_left_out(torchrl, actors):
    scheme = torchrl.RayWeightSyncScheme(timeout=SECONDS)
    policy = policy_of(1)
    collectors = [actors[0], Collector.remote()]
    use(collectors, scheme)
    scheme.init_on_sender(model_id="policy", model=policy, remote_collectors=collectors)
    connected = on_all(collectors, "connect")
    scheme.connect()
    assert ray.get(connected) == [1, 1]
    scheme.send(policy_of(2))
    assert ray.get(on_all(collectors, "values")) == [{2.0}] * 2
    ray.kill(collectors[1])
    with pytest.warns(RuntimeWarning, match="leaves out a remote receiver.*died"):
        scheme.send(policy_of(3))
    assert ray.get(collectors[0].values.remote()) == {3.0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheme.send(policy_of(4))
    assert ray.get(collectors[0].values.remote()) == {4.0}
    scheme.shutdown()


class Reference:
    """Stands in for the RRef of a collector in a worker of torch.distributed.rpc."""

    def __init__(self, collector):
        self.collector = collector

    def rpc_async(self):
        return self

    def cascade_execute(self, *args):
        future = Reference(self.collector)
        future.wait = functools.partial(ray.get, self.collector.cascade_execute.remote(*args))
        return future


class Context:
    """Has collectors as TorchRL's RPCCollector has them."""

    def __init__(self, collectors):
        self.collector_rrefs = [Reference(collector) for collector in collectors]


def test_the_first_send_of_the_rpc_scheme_connects(torchrl, actors):
    scheme = torchrl.RPCWeightSyncScheme(timeout=SECONDS)
    policy = policy_of(1)
    use(actors, scheme)
    context = Context(actors)
    # As in TorchRL, receivers connect before the sender is initialized, and its connect() does not wait for them.
    assert ray.get(on_all(actors, "connect")) == [0, 0]
    scheme.init_on_sender(model_id="policy", model=policy, context=context, num_workers=2)
    with pytest.raises(ValueError, match="Give them to send"):
        scheme.connect(weights=policy)
    scheme.connect()
    assert scheme.version == 0
    for version in (1, 2):
        scheme.send(policy_of(version + 1))
        assert scheme.version == version
        assert ray.get(on_all(actors, "values")) == [{version + 1.0}] * 2
    scheme.shutdown()


class Transform:
    """Has an actor as TorchRL's RayModuleTransform has one."""

    def __init__(self, actor):
        self._actor = actor


def test_the_actor_of_a_transform_is_called(torchrl, actors):
    scheme = torchrl.RayModuleTransformScheme("module", timeout=SECONDS)
    with pytest.raises(ValueError, match="Give the scheme to a RayModuleTransform"):
        scheme.init_on_sender()
    use(actors[:1], scheme)
    scheme._set_transform(Transform(actors[0]))
    scheme.init_on_sender()
    scheme.connect()
    for version in (1, 2):
        scheme.send(policy_of(version + 1))
        assert scheme.version == version and ray.get(actors[0].values.remote()) == {version + 1.0}
    scheme.shutdown()
    with pytest.raises(RuntimeError, match="there is no connection. Call connect"):
        scheme.send(policy_of(4))


def test_a_scheme_without_bytes_counts_versions(torchrl, actors):
    scheme = torchrl.NoWeightSyncScheme(timeout=SECONDS)
    policy = policy_of(1)  # A scheme keeps a weak reference to its model.
    collector = actors[0]
    use([collector], scheme)
    scheme.init_on_sender(model_id="policy", model=policy, remote_collectors=[collector])
    connected = collector.connect.remote()
    scheme.connect()
    assert ray.get(connected) == 1
    scheme.send()
    assert scheme.version == 2 and ray.get(collector.values.remote()) == {0.0}
    scheme.shutdown()


def test_mistakes_are_named(torchrl):
    with pytest.raises(ValueError, match="'pickle' is unknown. Give one of tensordict, state_dict, module"):
        torchrl.RayWeightSyncScheme("pickle")
    with pytest.raises(ValueError, match="1 to 30 letters"):
        torchrl.RayWeightSyncScheme(name="a/b")
    scheme = torchrl.RayWeightSyncScheme(timeout=0.3)
    with pytest.raises(RuntimeError, match="initialized on sender"):
        scheme.send({})
    with pytest.raises(ValueError, match="number of receivers is unknown"):
        scheme.init_on_sender(model_id="policy")
    collector = type("LocalCollector", (), {"num_workers": 2, "update_policy_weights_": None})()
    with pytest.raises(NotImplementedError, match="LocalCollector is a collector without remote collectors"):
        scheme.init_on_sender(model_id="policy", context=collector, num_workers=2)
    # TorchRL's MultiSyncCollector gives ctx, the context of multiprocessing.
    with pytest.raises(NotImplementedError, match="no ctx and no params_map"):
        scheme.init_on_sender(model_id="policy", num_workers=1, ctx=None, params_map={})
    with pytest.raises(NotImplementedError, match="no store_info"):
        pickle.loads(pickle.dumps(scheme)).init_on_receiver(model_id="policy", store_info={})
    scheme.init_on_sender(model_id="policy", num_workers=1)
    with pytest.raises(RuntimeError, match="there are none, and no model"):
        scheme.connect()
    with pytest.raises(ray.exceptions.GetTimeoutError, match="0 of 1"):
        scheme.connect(weights=policy_of(1))
    scheme.synchronized_on_sender = True
    with pytest.raises(NotImplementedError, match="worker_ids=\\[0\\].*Leave worker_ids out"):
        scheme.send(worker_ids=[0])
    scheme.shutdown()


def test_weights_that_do_not_fit_are_refused(torchrl):
    import torch
    with pytest.raises(KeyError, match="'other'.* on one side only"):
        torchrl.ModuleStrategy().apply_weights(policy_of(1), {"other": torch.zeros(1)})
    policy = policy_of(1)
    weights = torchrl.tensors_of(policy)
    with pytest.raises(ValueError, match=r"0.weight has the shape \(1, 3\) instead of \(2, 3\)"):
        torchrl.ModuleStrategy().apply_weights(policy, {**weights, "0.weight": torch.zeros(1, 3)})
    for strategy in ("state_dict", "module"):
        with pytest.raises(ValueError, match="in place only"):
            torchrl.STRATEGIES[strategy]().apply_weights(policy, weights, inplace=False)
    with pytest.raises(TypeError, match="'_extra_state' is of the type dict"):
        torchrl.tensors_of({"_extra_state": {}})
    with pytest.raises(TypeError, match="NoneType is not a module"):
        torchrl.tensors_of(None)


def test_models_with_any_id_have_different_ids(torchrl):
    ids = [torchrl._model_of("name", model_id) for model_id in ("policy", "env.a[0]", "env.a-0-", "x" * 99, "x" * 100)]
    assert ids[0] == "name.policy" and len(set(ids)) == len(ids)
    assert all(len(model) <= 47 and "[" not in model for model in ids)
