# SPDX-License-Identifier: Apache-2.0
"""Weights from a sender to receivers in actors, without a job."""
import os
import threading
import uuid

import numpy
import pytest

from tandem import ray, weights


@ray.remote(max_concurrency=2)
class Engine:
    """Receives a model of two tensors."""

    def __init__(self, model, **options):
        self.matrix = numpy.zeros((4, 3), "float32")
        self.receiver = weights.Receiver(model, {"matrix": self.matrix, "kept": weights.Spec("int64", (6,)),
                                                 "part": weights.Spec("int32", (4, 2), part=(1, 2))}, timeout=20,
                                         **options)

    def connect(self):
        self.receiver.connect()
        return self.tensors()

    def receive(self, timeout=20):
        return self.receiver.receive(timeout)

    def tensors(self):
        with self.receiver.read() as reading:
            assert list(reading.keys()) == ["matrix", "kept", "part"]
            kept = reading["kept"].numpy()
            assert not kept.flags.writeable
            return reading.version, self.matrix.tolist(), kept.tolist(), reading["part"].numpy().tolist()

    def attached(self):
        with self.receiver.read() as reading:
            return reading.attached

    def error(self, timeout):
        try:
            self.receiver.receive(timeout)
        except Exception as error:
            return type(error).__name__

    def die(self):
        os._exit(1)


def tensors(first):
    return {"matrix": numpy.arange(first, first + 12, dtype="float32").reshape(4, 3),
            "kept": numpy.arange(first, first + 6), "part": numpy.arange(first, first + 8, dtype="int32").reshape(4, 2)}


def expected(version, first):
    model = tensors(first)
    return version, model["matrix"].tolist(), model["kept"].tolist(), model["part"][2:].tolist()


@pytest.fixture
def model():
    return "m-" + uuid.uuid4().hex[:12]


@pytest.mark.parametrize("scheme", ["shared", "processes", "distributed"])
def test_all_receivers_serve_each_version(model, scheme):
    engines = [Engine.remote(model) for _ in range(2)]
    source = tensors(0)
    with weights.Sender(model, source, receivers=2, scheme=scheme, timeout=20, bucket_bytes=32) as sender:
        first = [engine.connect.remote() for engine in engines]
        sender.connect()
        assert ray.get(first) == [expected(1, 0)] * 2
        for name, tensor in tensors(100).items():
            source[name][...] = tensor
        received = [engine.receive.remote() for engine in engines]
        assert sender.send() == 2 and sender.receivers_count == 2
        assert ray.get(received) == [2, 2]
        assert ray.get([engine.tensors.remote() for engine in engines]) == [expected(2, 100)] * 2
        assert ray.get(engines[0].error.remote(0)) == "GetTimeoutError"
        received = [engine.receive.remote() for engine in engines]
        sender.send_async()
        assert sender.wait(20) == 3 and ray.get(received) == [3, 3]
    assert ray.get(engines[0].error.remote(20)) == "EOFError"


def test_attached_bytes_reach_all_receivers_with_their_version(model):
    engines = [Engine.remote(model) for _ in range(2)]
    with weights.Sender(model, tensors(0), receivers=2, timeout=20) as sender:
        sender.attach(b"step 0")
        first = [engine.connect.remote() for engine in engines]
        sender.connect()
        ray.get(first)
        assert ray.get([engine.attached.remote() for engine in engines]) == [b"step 0"] * 2
        for data in (bytearray(b"\x80\x00\xff"), b"", bytes(4 << 20)):
            sender.attach(data)
            received = [engine.receive.remote() for engine in engines]
            sender.send()
            ray.get(received)
            assert ray.get([engine.attached.remote() for engine in engines]) == [data] * 2
        with pytest.raises(ray.exceptions.RayError, match="4194305 bytes are attached to a version, at most 4194304"):
            sender.attach(bytes((4 << 20) + 1))


@ray.remote(max_concurrency=2)
class Pair:
    """Receives an actor and a critic, or one of them, as a set."""

    def __init__(self, models, **options):
        self.models = {model: {"w": numpy.zeros(5)} for model in models}
        self.receiver = weights.Receiver(self.models, timeout=20, **options)

    def connect(self):
        self.receiver.connect()

    def receive(self):
        return self.receiver.receive(20)

    def read(self):
        with self.receiver.read() as reading:
            assert list(reading.keys()) == list(self.models)
            return reading.version, {model: (reading[model].version, reading[model].attached,
                                             reading[model]["w"].numpy().tolist()) for model in reading.keys()}


def test_several_models_are_committed_together(model):
    actor, critic = model + ".actor", model + ".critic"
    source = {actor: {"w": numpy.arange(5.0)}, critic: {"w": numpy.arange(5.0) + 10}}
    both, background, alone = (Pair.remote([actor, critic]), Pair.remote([critic, actor], background=True),
                               Pair.remote([critic]))
    with weights.Sender(source, receivers={actor: 2, critic: 3}, scheme={actor: "processes", critic: "shared"},
                        timeout=20) as sender:
        sender.attach(b"first")
        connected = [pair.connect.remote() for pair in (both, background, alone)]
        sender.connect()
        ray.get(connected)
        expected = {actor: (1, b"first", [0, 1, 2, 3, 4]), critic: (1, b"first", [10, 11, 12, 13, 14])}
        assert ray.get([both.read.remote(), background.read.remote()]) == [(1, expected)] * 2
        assert ray.get(alone.read.remote()) == (1, {critic: expected[critic]})
        source[critic]["w"][:] = 7
        received = [pair.receive.remote() for pair in (both, background, alone)]
        assert sender.send() == 2 and sender.receivers_count == 5
        assert ray.get(received) == [2, 2, 2]
        assert ray.get(both.read.remote()) == (2, {actor: (2, b"first", [0, 1, 2, 3, 4]), critic: (2, b"first", [7] * 5)})
        received = [pair.receive.remote() for pair in (both, alone)]
        sender.send_async()
        assert sender.wait(20) == 3 and ray.get(received) == [3, 3]
    with pytest.raises(ray.exceptions.RayError, match="EOFError"):
        ray.get(both.receive.remote())


def test_mistakes_about_sets_are_named(model):
    with pytest.raises(ValueError, match="no models to commit together"):
        weights.Sender({})
    with pytest.raises(ValueError, match="in the dict of models"):
        weights.Sender({model: {}}, {})
    with pytest.raises(ValueError, match="a set has 1 to 16 models, not 17"):
        weights.Sender({f"{model}.{index}": {"w": numpy.zeros(1)} for index in range(17)})
    with pytest.raises(ValueError, match="'fast' is not one of"):
        weights.Sender({model: {"w": numpy.zeros(1)}}, scheme={model: "fast"})
    with pytest.raises(ValueError, match="has no tensors"):
        weights.Receiver(model)


def test_a_thread_receives_in_the_background(model):
    engine = Engine.remote(model, background=True)
    with weights.Sender(model, tensors(5), timeout=20) as sender:
        first = engine.connect.remote()
        sender.connect()
        assert ray.get(first) == expected(1, 5)
        assert sender.send() == 2
        assert ray.get(engine.tensors.remote()) == expected(2, 5)


def test_a_receiver_that_dies_costs_one_send(model):
    engines = [Engine.remote(model) for _ in range(2)]
    with weights.Sender(model, tensors(0), receivers=2, timeout=20) as sender:
        first = [engine.connect.remote() for engine in engines]
        sender.connect()
        ray.get(first)
        engines[1].die.remote()
        for _ in range(2):  # The death is known before the send, or ends it.
            received = engines[0].receive.remote()
            try:
                version = sender.send()
                break
            except ray.exceptions.ActorDiedError:
                with pytest.raises(ray.exceptions.RayError):
                    ray.get(received)
                assert ray.get(engines[0].tensors.remote()) == expected(1, 0)
        assert ray.get(received) == version and sender.receivers_count == 1


def test_a_receiver_of_another_shape_is_refused(model):
    source = tensors(0) | {"kept": numpy.arange(5)}
    engine = Engine.remote(model)
    with weights.Sender(model, source, timeout=3) as sender:
        first = engine.connect.remote()
        with pytest.raises((ray.exceptions.RayError, TimeoutError)):
            sender.connect()
        with pytest.raises(Exception, match="kept"):
            ray.get(first)


def test_no_receiver_comes_in_time(model):
    with weights.Sender(model, tensors(0), timeout=0.3) as sender:
        with pytest.raises(ray.exceptions.GetTimeoutError, match="0 of 1"):
            sender.connect()


def test_mistakes_are_named(model):
    with pytest.raises(ValueError, match="'module' is not one of shared, "):
        weights.Sender(model, {}, scheme="module")
    with pytest.raises(ValueError, match="either tensors or relay_of"):
        weights.Sender(model)
    with pytest.raises(ValueError, match="the tensor w is not contiguous"):
        weights.Sender(model, {"w": numpy.zeros((4, 4))[:, 1]})
    with pytest.raises(ValueError, match="no 3 equal parts"):
        weights.Spec("float32", (4, 2), part=(0, 3))
    with pytest.raises(ValueError, match="8 bytes of memory for 16"):
        weights._plain("w", weights.Spec("float32", (4,), into=numpy.zeros(1)))
    with pytest.raises(ray.exceptions.RayError, match="lives in an actor, this is a driver"):
        weights.Receiver(model, {"w": numpy.zeros(3)})
    with pytest.raises(ValueError, match="the dtype complex64"):
        weights.Sender(model, {"w": numpy.zeros(3, "complex64")})


def test_one_thread_at_a_time_uses_a_sender(model):
    with weights.Sender(model, tensors(0), timeout=1) as sender:
        errors = []

        def connect():
            try:
                sender.connect()
            except Exception as error:
                errors.append(error)
        thread = threading.Thread(target=connect)
        thread.start()
        while not sender._lock.locked():
            pass
        with pytest.raises(RuntimeError, match="another thread"):
            sender.send()
        thread.join()
        assert isinstance(errors[0], ray.exceptions.GetTimeoutError)


@ray.remote
class TorchEngine:
    """Receives a state_dict."""

    def __init__(self, model):
        import torch
        self.module = torch.nn.Linear(3, 2).bfloat16()
        self.receiver = weights.Receiver(model, self.module.state_dict(), timeout=20)

    def connect(self):
        self.receiver.connect()
        return {name: tensor.float().tolist() for name, tensor in self.module.state_dict().items()}


def test_a_state_dict_of_torch(model):
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(3, 2).bfloat16()
    engine = TorchEngine.remote(model)
    with weights.Sender(model, module.state_dict(), timeout=20) as sender:
        first = engine.connect.remote()
        sender.connect()
        assert ray.get(first) == {name: tensor.float().tolist() for name, tensor in module.state_dict().items()}


@ray.remote
class Shard:
    """A rank of two that have DTensors, one in uneven parts."""

    def __init__(self, directory, rank):
        import torch
        import torch.distributed
        from torch.distributed.device_mesh import init_device_mesh
        torch.distributed.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=2)
        self.mesh = init_device_mesh("cpu", (2,))

    def distribute(self, tensor):
        from torch.distributed.tensor import Shard, distribute_tensor
        return distribute_tensor(tensor, self.mesh, [Shard(0)])

    def send(self, model):
        import torch
        state = {"uneven": self.distribute(torch.arange(12.0).reshape(3, 4)),
                 "even": self.distribute(torch.arange(4.0, dtype=torch.bfloat16)), "plain": torch.ones(2)}
        with weights.Sender(model, state, timeout=20, receivers=3) as sender:
            sender.connect()
            state["uneven"].to_local().add_(100)
            return sender.send()

    def receive(self, model):
        import torch
        even = self.distribute(torch.zeros(4, dtype=torch.bfloat16))
        with pytest.raises(ValueError, match="2 uneven parts"):
            weights.Receiver(model, {"uneven": self.distribute(torch.zeros(3, 4))})
        with weights.Receiver(model, {"even": even}, timeout=20) as receiver:
            receiver.connect()
            receiver.receive(20)
            return even.to_local().tolist()


@ray.remote
class Whole:
    """Receives the whole tensors."""

    def receive(self, model):
        import torch
        uneven = torch.zeros(3, 4)
        with weights.Receiver(model, {"uneven": uneven, "plain": weights.Spec("float32", (2,))}, timeout=20) as receiver:
            receiver.connect()
            version = receiver.receive(20)
            with receiver.read() as reading:
                return version, uneven.tolist(), reading["plain"].torch().tolist()


def test_dtensors(model, tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    senders = [Shard.remote(str(tmp_path / "a"), rank) for rank in range(2)]
    shards = [Shard.remote(str(tmp_path / "b"), rank) for rank in range(2)]
    whole = Whole.remote().receive.remote(model)
    sent = [sender.send.remote(model) for sender in senders]
    received = [shard.receive.remote(model) for shard in shards]
    assert ray.get(sent) == [2, None]
    assert ray.get(received) == [[0, 1], [2, 3]]
    uneven = (numpy.arange(12.0).reshape(3, 4) + 100).tolist()
    assert ray.get(whole) == (2, uneven, [1, 1])
