# SPDX-License-Identifier: Apache-2.0
"""The weight transfer engine `tandem` of vLLM: whole tensors by name from Tandem into vLLM's parameters.

The tensors are those of a tandem.weights.Receiver of the worker, or of this process. vLLM's parameters are changed
after all tensors are there, so that an update that fails before that leaves the old weights served.
"""
import dataclasses

from vllm.distributed.weight_transfer.base import (WeightTransferEngine, WeightTransferInitInfo,
                                                   WeightTransferUpdateInfo)
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from tandem import weights


@dataclasses.dataclass
class InitInfo(WeightTransferInitInfo):
    """Where updates come from: the ID of a Sender's model, and (name, dtype, shape) of each of its tensors."""
    model: str
    tensors: list
    timeout: float = 60.0


@dataclasses.dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """One update: a dict of tensors of this process, or None for the next version of the sender."""
    tensors: dict | None = None
    timeout: float = 60.0


class TandemWeightTransferEngine(WeightTransferEngine[InitInfo, UpdateInfo]):
    """What vLLM's workers call between start_weight_update() and finish_weight_update()."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo

    def __init__(self, *args):
        super().__init__(*args)
        self._receiver = None
        self._is_connected = False
        self._own = None  # Tensors of the last update that came from this process.
        self.version = 0  # Version that is served; 0 before the first update.

    def init_transfer_engine(self, init_info):
        """Make the receiver; the first update waits for the sender."""
        specs = {name: weights.Spec(dtype, shape) for name, dtype, shape in init_info.tensors}
        self._receiver = weights.Receiver(init_info.model, specs, timeout=init_info.timeout)

    def start_weight_update(self):
        """Do nothing: the parameters stay as they are until the tensors have arrived."""

    def finish_weight_update(self):
        """Do nothing: receive_weights() has finished the update."""

    def receive_weights(self, update_info):
        """Wait for a version and put it into vLLM's parameters."""
        if update_info.tensors is not None:
            self._own = update_info.tensors
            self._replace(self._own)
            self.version += 1
            return
        if self._receiver is None:
            raise RuntimeError("vLLM's weight transfer engine `tandem` has no sender: call "
                               "init_weight_transfer_engine() with the ID and the tensors of its model")
        self._own = None
        if self._is_connected:
            self._receiver.receive(update_info.timeout)
        else:
            self._receiver.connect()
            self._is_connected = True
        with self._receiver.read() as reading:
            self._replace({name: reading[name].torch() for name in reading.keys()})
            self.version = reading.version

    def _replace(self, tensors):
        """Put whole tensors of the model, by their names in Hugging Face's files, into vLLM's parameters."""
        initialize_layerwise_reload(self.model)
        try:
            loaded = self.model.load_weights(iter(tensors.items()))
        finally:
            finalize_layerwise_reload(self.model, self.model_config)
        renew_copies(self.model)
        if loaded is not None:
            missing = sorted({name for name, _ in self.model.named_parameters()} - set(loaded))
            if missing:
                raise RuntimeError(f"the update has no tensor for {len(missing)} parameters of vLLM, the first is "
                                   f"{missing[0]}: the engine serves a mixture until the next update")

    def call_with_tensors(self, function):
        """Return function(tensors) with the tensors of the last update, which are valid meanwhile."""
        if self._own is not None:
            return function(self._own)
        if not self._is_connected:
            raise RuntimeError("no update has come yet")
        with self._receiver.read() as reading:
            return function({name: reading[name].torch() for name in reading.keys()})

    def shutdown(self):
        """End the receiver."""
        if self._receiver is not None:
            self._receiver.shutdown()
            self._receiver = None
            self._is_connected = False


def renew_copies(model):
    """Pack anew what vLLM's CPU kernels keep beside a parameter.

    vLLM's layerwise reload packs the layers that load a tensor. An lm_head that is tied to the embedding loads none,
    and would be served from the packed copy of the old weights.
    """
    for layer in model.modules():
        if hasattr(layer, "cpu_linear") and layer.weight.numel() > 0:
            layer.quant_method.process_weights_after_loading(layer)
