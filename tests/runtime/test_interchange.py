"""What other libraries give and take: devices, streams, and data that cannot be read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.ir import ArgumentError, UserError
from pullback.runtime import tensor


class Exporter:
    """An array of another library: on some device, which its capsule is asked for."""

    def __init__(self, device: tuple[int, int], error: Exception | None = None) -> None:
        self.device, self.error, self.data = device, error, np.arange(3, dtype="float32")

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        if self.error is not None:
            raise self.error
        return self.data.__dlpack__(**options)


def test_data_of_the_cpu_are_shared():
    held = Exporter((1, 0))
    made = tensor(held)
    assert np.shares_memory(np.asarray(made), held.data) and made.numpy().tolist() == [0, 1, 2]


def test_data_of_other_devices_are_refused():
    with pytest.raises(
        UserError, match=r"lies on another device \(DLPack device 2, index 1\), not in this CPU's memory"
    ):
        tensor(Exporter((2, 1)))


@pytest.mark.parametrize("error", [BufferError("busy"), RuntimeError("busy"), TypeError("busy"), ValueError("busy")])
def test_data_that_cannot_be_exported(error):
    with pytest.raises(ArgumentError, match="cannot read a Exporter: busy"):
        tensor(Exporter((1, 0), error))

    class WithArray(Exporter):
        def __array__(self, *_: Any, **__: Any) -> np.ndarray:
            return self.data

    assert tensor(WithArray((1, 0), error)).numpy().tolist() == [0, 1, 2]


def test_exports():
    held = tensor([1.0, 2.0])
    assert held.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="a CPU tensor has no stream: stream must be None"):
        held.__dlpack__(stream=1)
    with pytest.raises(BufferError, match=r"cannot be exported to DLPack device \(2, 0\)"):
        held.__dlpack__(dl_device=(2, 0))
    assert held.__dlpack__(dl_device=(1, 0)) is not None
    view, copy = np.from_dlpack(held), np.from_dlpack(held, copy=True)
    assert np.shares_memory(view, np.asarray(held)) and not np.shares_memory(copy, np.asarray(held))
