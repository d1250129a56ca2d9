"""Uses the exported library from Python without pullback: python ctypes_example.py dist/libdigits.so (needs NumPy)."""

import ctypes
import sys
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_void_p

import numpy as np

ALIGNMENT, BATCH, PIXELS, CLASSES = 64, 16, 64, 10  # as in digits.h


def load(path):
    """The library, with the types of the functions that are used here."""
    library = ctypes.CDLL(path)
    signatures = {
        "bytes": (c_size_t, c_int),
        "init": (c_int, c_void_p, c_size_t, c_int, POINTER(c_void_p)),
        "close": (None, c_void_p),
        "last_error": (c_char_p, c_void_p),
        "step": (c_int, c_void_p, POINTER(c_float), POINTER(c_int64), POINTER(c_double)),
        "predict": (c_int, c_void_p, POINTER(c_float), c_int64, POINTER(c_float)),
        "parameter_count": (c_int64, c_void_p),
        "get_parameters": (c_int, c_void_p, POINTER(c_float), c_int64),
        "set_parameters": (c_int, c_void_p, POINTER(c_float), c_int64),
        "add_parameters": (c_int, c_void_p, POINTER(c_float), c_int64, c_double),
        "load": (c_int, c_void_p, c_char_p),
        "save": (c_int, c_void_p, c_char_p),
    }
    for name, (result, *arguments) in signatures.items():
        function = getattr(library, f"digits_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class Digits:
    """An instance; what fails raises RuntimeError with the library's words."""

    def __init__(self, path, threads=1):
        self.library = load(path)
        size = self.library.digits_bytes(threads)
        self.memory = np.zeros(size + ALIGNMENT, np.uint8)
        begin = -self.memory.ctypes.data % ALIGNMENT
        self.handle = c_void_p()
        if self.library.digits_init(self.memory.ctypes.data + begin, size, threads, byref(self.handle)):
            raise RuntimeError("digits_init failed")

    def close(self):
        self.library.digits_close(self.handle)
        self.handle = c_void_p()

    def call(self, name, *arguments):
        if getattr(self.library, f"digits_{name}")(self.handle, *arguments):
            raise RuntimeError(self.library.digits_last_error(self.handle).decode())

    def step(self, images, labels):
        loss = c_double()
        self.call("step", floats(images, (BATCH, PIXELS)), integers(labels, (BATCH,)), byref(loss))
        return loss.value

    def predict(self, images):
        scores = np.empty((len(images), CLASSES), np.float32)
        self.call("predict", floats(images, (len(images), PIXELS)), len(images), floats(scores, scores.shape))
        return scores

    def parameters(self):
        values = np.empty(self.library.digits_parameter_count(self.handle), np.float32)
        self.call("get_parameters", floats(values, values.shape), values.size)
        return values

    def set_parameters(self, values):
        self.call("set_parameters", floats(values, values.shape), values.size)

    def add_parameters(self, delta, scale):
        self.call("add_parameters", floats(delta, delta.shape), delta.size, scale)


def floats(array, shape):
    return pointer(array, shape, np.float32, c_float)


def integers(array, shape):
    return pointer(array, shape, np.int64, c_int64)


def pointer(array, shape, dtype, kind):
    """The address of an array's elements: C reads as many as the header says, so their number is checked here."""
    if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
        raise ValueError(f"expected a C-ordered {np.dtype(dtype)} of shape {shape}, got {array.dtype} {array.shape}")
    return array.ctypes.data_as(POINTER(kind))


if __name__ == "__main__":
    images = np.fromfile("images.bin", np.float32).reshape(-1, PIXELS)
    labels = np.fromfile("labels.bin", np.int64)
    model = Digits(sys.argv[1])
    print(f"accuracy {np.mean(model.predict(images).argmax(1) == labels):.3f}")
    for _ in range(5):
        for first in range(0, len(images) - BATCH + 1, BATCH):
            loss = model.step(images[first : first + BATCH], labels[first : first + BATCH])
    print(f"loss {loss:.4f}, accuracy {np.mean(model.predict(images).argmax(1) == labels):.3f}")
    model.call("save", b"digits.safetensors")
    try:
        model.step(images[:BATCH], labels[:BATCH] + 100)
    except RuntimeError as error:
        print(f"refused: {error}")
    model.close()
