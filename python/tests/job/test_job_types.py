# SPDX-License-Identifier: Apache-2.0
"""What the classes of a job library get and return, without a job."""
import ctypes

import numpy
import pytest

from tandem import _job_rank, job
from tandem._dtypes import bytes_of, dtype_name


def test_memory_is_shown_in_place():
    array = numpy.zeros(6, "float32")
    memory = job.Memory("rows", array.ctypes.data, array.nbytes)
    numpy.frombuffer(memory.buffer, "float32")[2] = 7
    assert array.tolist() == [0, 0, 7, 0, 0, 0]
    assert numpy.from_dlpack(memory).view("float32")[2] == 7 and memory.__dlpack_device__() == (1, 0)
    with pytest.raises(TypeError, match="the region rows is on a GPU"):
        job.Memory("rows", 4096, 8, 1).buffer


def test_a_view_has_the_strides_of_its_tensor():
    array = numpy.arange(12, dtype="int32").reshape(3, 4)
    view = job.TensorView("t", "int32", (2, 3), (1, 4), array.ctypes.data)
    assert view.numpy().tolist() == array.T[:2].tolist() and view.size_bytes == 24
    assert job.TensorView("t", "int32", (0, 3), (3, 1), array.ctypes.data).numpy().shape == (0, 3)


def test_a_view_of_torch():
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    view = job.TensorView("t", torch.bfloat16, (3, 2), (1, 3), tensor.data_ptr())
    assert torch.equal(view.torch(), tensor.T)
    with pytest.raises(ValueError, match="not contiguous"):
        job.Slice("t", tensor.T)


def test_elements_are_bytes_in_row_major_order():
    array = numpy.arange(6, dtype="int16").reshape(2, 3)
    assert bytes_of(array.T) == numpy.array([0, 3, 1, 4, 2, 5], "int16").tobytes()
    assert bytes_of(memoryview(array.tobytes())) == bytes_of(array.tobytes()) == bytes_of(array)


def test_elements_of_torch_are_bytes_in_row_major_order():
    torch = pytest.importorskip("torch")
    tensor = torch.tensor([[1, 2], [3, 4]], dtype=torch.bfloat16, requires_grad=True)
    wanted = numpy.array([0x3f80, 0x4040, 0x4000, 0x4080], "uint16").tobytes()
    assert bytes_of(tensor.T) == wanted and bytes_of(torch.nn.Parameter(tensor.detach().T.contiguous())) == wanted
    assert bytes_of(torch.empty(0, 3)) == b""


def test_types_have_the_names_of_all_libraries():
    assert [dtype_name(dtype) for dtype in ("bfloat16", "torch.bfloat16", "BF16", numpy.float32, numpy.dtype("int8"))] \
        == ["bfloat16"] * 3 + ["float32", "int8"]
    with pytest.raises(ValueError, match="complex64 is not one of float32"):
        dtype_name("complex64")


def test_slices_name_their_tensors():
    tensors = [job.Tensor("a", "float32", (4, 2)), job.Tensor("b", "float32", (3,))]
    array, buffer = numpy.zeros(4, "float32"), bytearray(12)
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    plain = _job_rank._Rank._plain_slices(
        [job.Slice(tensors[0], array, (1, 0), (2, 2)), job.Slice("b", buffer), job.Slice(0, 4096, (3,), (5,), flat=True),
         job.Slice("b", 8192, dtype="bfloat16")], tensors)
    assert plain == [(0, False, (1, 0), (2, 2), array.ctypes.data, 0, 0), (1, False, (0,), (3,), address, 0, 0),
                     (0, True, (3,), (5,), 4096, 0, 0), (1, False, (0,), (3,), 8192, 3, 0)]
    with pytest.raises(KeyError, match="tensor c"):
        _job_rank._Rank._plain_slices([job.Slice("c", 0)], tensors)
    with pytest.raises(ValueError, match="no offset"):
        _job_rank._Rank._plain_slices([job.Slice("a", 0, flat=True)], tensors)
    with pytest.raises(ValueError, match="5 dimensions"):
        job.Tensor("x", "int8", (1,) * 5)


def test_settings_have_dotted_paths():
    context = job.Context({"trainer": {"lr": 0.5}, "cluster": {"device": "cuda"}})
    assert context.setting("trainer.lr") == 0.5 and context.setting("trainer.none", 3) == 3
    assert context.setting("trainer.lr.more") is None and context.device == "cuda"
