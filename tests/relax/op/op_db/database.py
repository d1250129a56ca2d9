"""The entries of ``op_db`` by name, and their samples as values and a call that can be repeated in another dtype."""

from __future__ import annotations

import sys
import types
import unittest
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

if "expecttest" not in sys.modules:
    try:
        import expecttest  # noqa: F401
    except ModuleNotFoundError:
        # The module that holds op_db also defines PyTorch's own TestCase, whose base class is in this package.
        sys.modules["expecttest"] = types.ModuleType("expecttest")
        sys.modules["expecttest"].TestCase = unittest.TestCase  # type: ignore[attr-defined]

from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core


def _name(info: Any) -> str:
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name


ENTRIES: dict[str, Any] = {_name(info): info for info in op_db}
SEED = 20
core.extract_test_fn = lambda: None  # looks for a unittest in the stack, among all modules that are loaded: slowly


@dataclass(frozen=True)
class Sample:
    """One call: its tensors, with values that are exact in float32 too, and where they stand among its arguments."""

    info: Any
    tensors: list[torch.Tensor]
    wanted: list[bool]  # of each tensor: whether it has a gradient
    leaves: list[Any]
    spec: Any

    @staticmethod
    def of(info: Any, given: Any) -> Sample:
        leaves, spec = pytree.tree_flatten((given.input, given.args, given.kwargs))
        places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        wanted = [leaves[k].requires_grad for k in places]
        return Sample(info, [_rounded(leaves[k].detach()) for k in places], wanted, leaves, spec)

    def arguments(self, tensors: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments, with these in place of the tensors."""
        left = iter(tensors)
        leaves = [next(left) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        first, args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return (first, *args), kwargs

    def in_dtype(self, dtype: torch.dtype) -> list[torch.Tensor]:
        """The tensors, those of float64 in that dtype, as leaves of autograd."""
        pairs = zip(self.tensors, self.wanted, strict=True)
        return [(t.to(dtype) if t.dtype == torch.float64 else t).clone().requires_grad_(w) for t, w in pairs]

    def call(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """What PyTorch computes of them, as a flat list."""
        args, kwargs = self.arguments(tensors)
        with warnings.catch_warnings():  # of what is deprecated
            warnings.simplefilter("ignore")
            results = self.info.op(*args, **kwargs)
        return [leaf for leaf in pytree.tree_leaves(results) if leaf is not None]

    def __str__(self) -> str:
        def told(leaf: Any) -> str:
            if isinstance(leaf, torch.Tensor):
                return f"{tuple(leaf.shape)}" + ("" if leaf.dtype == torch.float64 else str(leaf.dtype)[5:])
            return repr(leaf)

        args, kwargs = pytree.tree_map(told, pytree.tree_unflatten(self.leaves, self.spec)[1:])
        first = pytree.tree_map(told, pytree.tree_unflatten(self.leaves, self.spec)[0])
        return f"{_name(self.info)}{(first, *args)} {kwargs}"


def _rounded(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float().double() if tensor.dtype == torch.float64 else tensor


def samples(name: str) -> Iterator[Sample]:
    """The samples of an entry: in float64, or, of an operator of integers or bools, in one of these."""
    info = ENTRIES[name]
    yield from _samples(info, next(d for d in (torch.float64, torch.int64, torch.bool) if d in info.dtypes))


def integer_samples(name: str) -> Iterator[Sample]:
    """The samples in int64 of an entry whose others are in float64."""
    info = ENTRIES[name]
    if torch.float64 in info.dtypes and torch.int64 in info.dtypes:
        yield from _samples(info, torch.int64)


def _samples(info: Any, dtype: torch.dtype) -> Iterator[Sample]:
    torch.manual_seed(SEED)
    differentiable = info.supports_autograd and dtype == torch.float64
    for given in info.sample_inputs("cpu", dtype, requires_grad=differentiable):
        yield Sample.of(info, given)
