# SPDX-License-Identifier: Apache-2.0
"""Element types of tensors: libtandem's numbers, and the names of PyTorch and numpy."""

# The numbers are those of enum tdm_dtype in include/tandem/dtype.h.
_NUMBERS = {"float32": 1, "float16": 2, "bfloat16": 3, "float8_e4m3fn": 4, "int64": 5, "int32": 6, "uint8": 7,
            "float64": 8, "int8": 9, "int16": 10, "uint16": 11, "uint32": 12, "uint64": 13, "bool": 14}
_NAMES = {number: name for name, number in _NUMBERS.items()}
_SIZES = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "int64": 8, "int32": 4, "uint8": 1,
          "float64": 8, "int8": 1, "int16": 2, "uint16": 2, "uint32": 4, "uint64": 8, "bool": 1}
# Names in safetensors files.
_SAFETENSORS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "I64": "int64",
                "I32": "int32", "U8": "uint8", "F64": "float64", "I8": "int8", "I16": "int16", "U16": "uint16",
                "U32": "uint32", "U64": "uint64", "BOOL": "bool"}
# What numpy stores a type as that it does not have.
_STORED_AS = {"bfloat16": "uint16", "float8_e4m3fn": "uint8"}


def dtype_name(dtype):
    """Return the name of a type: "float32" for itself, torch.float32, numpy.float32, and "F32" of safetensors."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or str(dtype)
    name = _SAFETENSORS.get(name, name.removeprefix("torch."))
    if name not in _NUMBERS and isinstance(dtype, type):
        name = dtype.__name__
    if name not in _NUMBERS:
        raise ValueError(f"the dtype {dtype} is not one of {', '.join(_NUMBERS)}")
    return name


def dtype_number(dtype):
    """Return libtandem's number of a type."""
    return _NUMBERS[dtype_name(dtype)]


def dtype_of_number(number):
    """Return the name of the type with libtandem's number."""
    return _NAMES[number]


def dtype_size(name):
    """Return the bytes of one element."""
    return _SIZES[name]


def numpy_dtype(name):
    """Return the name of numpy's type of the same size; bfloat16 is stored as uint16."""
    return _STORED_AS.get(name, name)


def product(shape):
    """Return the number of elements of a shape."""
    count = 1
    for length in shape:
        count *= length
    return count


def local_tensor(tensor):
    """Return the local shard of a DTensor, any other object itself."""
    to_local = getattr(tensor, "to_local", None)
    return tensor if to_local is None else to_local()


def is_torch(tensor):
    """Return whether the object is a tensor of PyTorch, without importing it."""
    return hasattr(tensor, "data_ptr") and hasattr(tensor, "untyped_storage")


def bytes_of(data):
    """Return the elements of a tensor, an array, or a buffer in row-major order as bytes."""
    data = local_tensor(data)
    if is_torch(data):
        import torch
        flat = data.detach().cpu().contiguous().reshape(-1)
        data = flat.view(torch.uint8).numpy() if flat.numel() else b""
    return data.tobytes() if hasattr(data, "tobytes") else bytes(data)


def address_of(data):
    """Return the address of the first element of a tensor, an array, or a writable buffer; of a number, the number."""
    if isinstance(data, int):
        return data
    data = local_tensor(data)
    if is_torch(data):
        return data.data_ptr()
    interface = getattr(data, "__array_interface__", None)
    if interface is not None:
        return interface["data"][0]
    import ctypes
    view = memoryview(data).cast("B")
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) if view.nbytes else 0
