"""Sizes of tensors, assertions, which are dropped, and what cannot be converted."""

from __future__ import annotations

import math
from typing import Any

from pullback.relax.frontend.torch.aten.shape import view
from pullback.relax.frontend.torch.table import ATEN


def view_as_scalar(x: Any) -> Any:
    """``x.item()``: a tensor of shape (), which may stand where numbers and indices do, but not as a size."""
    return view(x, ())


ATEN.same(
    {
        "aten.sym_size": lambda x, dim=None: x.shape if dim is None else x.shape[dim],
        "aten.size": lambda x, dim=None: x.shape if dim is None else x.shape[dim],
        "aten.sym_numel": lambda x: math.prod(x.shape),
        "aten.numel": lambda x: math.prod(x.shape),
        "aten.dim": lambda x: len(x.shape),
        "aten.item": view_as_scalar,
        "aten._local_scalar_dense": view_as_scalar,
        "aten.is_floating_point": lambda x: x.dtype.startswith(("float", "bfloat")),
        "aten.is_same_size": lambda x, y: tuple(x.shape) == tuple(y.shape),
    }
)


def _nothing(*_: Any, **__: Any) -> None:
    """PyTorch checked it when it exported the program; here type rules check."""


for _name in (
    "_assert_async", "_assert_scalar", "_assert_tensor_metadata", "_functional_assert_async",
    "_functional_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size",
    "_functional_sym_constrain_range", "_functional_sym_constrain_range_for_size",
):  # fmt: skip
    ATEN.same({f"aten.{_name}": _nothing})

_BY_DATA = "the size of its result depends on the data"
_NO_COMPLEX = "there are no complex numbers here"
_BY_MEMORY = "it asks how a tensor lies in memory"

for _name in (
    "fft_fft", "fft_fft2", "fft_fftn", "fft_hfft", "fft_ifft", "fft_ifft2", "fft_ifftn", "fft_ihfft", "fft_irfft",
    "fft_irfft2", "fft_irfftn", "fft_rfft", "fft_rfft2", "fft_rfftn", "istft", "stft",
):  # fmt: skip
    ATEN.refuse({f"aten.{_name}": _NO_COMPLEX})
ATEN.refuse(
    {
        "aten._fft_c2c": _NO_COMPLEX,
        "aten._fft_c2r": _NO_COMPLEX,
        "aten._fft_r2c": _NO_COMPLEX,
        "aten.complex": _NO_COMPLEX,
        "aten.view_as_complex": _NO_COMPLEX,
        "aten.view_as_real": _NO_COMPLEX,
        "aten.nonzero": _BY_DATA,
        "aten.nonzero_numpy": _BY_DATA,
        "aten.argwhere": _BY_DATA,
        "aten.masked_select": _BY_DATA,
        "aten.unique_consecutive": _BY_DATA,
        "aten.unique_dim": _BY_DATA,
        "aten._unique": _BY_DATA,
        "aten._unique2": _BY_DATA,
        "aten.bincount": _BY_DATA,
        "aten.as_strided": _BY_MEMORY,
        "aten.as_strided_copy": _BY_MEMORY,
        "aten.as_strided_scatter": _BY_MEMORY,
        "aten.resize": _BY_MEMORY,
        "aten.resize_": _BY_MEMORY,
        "aten.set_": _BY_MEMORY,
        "aten.sym_stride": _BY_MEMORY,
        "aten.stride": _BY_MEMORY,
        "aten.sym_storage_offset": _BY_MEMORY,
        "aten.sym_is_contiguous": _BY_MEMORY,
    }
)
