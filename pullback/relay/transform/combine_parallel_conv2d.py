"""CombineParallelConv2D: convolutions of one image are one, of all their filters.

    %0 = nn.conv2d(%x, %w1); %1 = nn.conv2d(%x, %w2); …
                                 →    %0 = nn.conv2d(%x, concatenate((%w1, %w2, …))); strided_slice(%0, …); …

Elementwise ops behind them that all have in common are done on the one result.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.module import IRModule
from pullback.relay.expr import Call, Expr, Function, Tuple, call_op
from pullback.relay.transform.infra import FunctionPass
from pullback.relay.transform.parallel_branches import Branch, Combiner
from pullback.relay.transform.parts import same_call
from pullback.relay.ty import TensorType


@dataclass(frozen=True)
class CombineParallelConv2D(FunctionPass):
    """Combine at least ``min_num_branches`` convolutions of the same input and the same window.

    Checks: all attributes but the number of channels agree, and kernels have one size. What else a branch reads depends
    neither on a Let inside nor on another such convolution.
    """

    min_num_branches: int = 3

    typed = True
    opt_level = 4
    required = ("InferType",)

    def function(self, function: Function, module: IRModule) -> Function:
        return _Convolutions(self.min_num_branches).run(function)


_SAME = ("strides", "padding", "dilation", "groups", "data_layout", "kernel_layout", "out_layout", "out_dtype")


def joined(exprs: list[Expr], axis: int) -> Call:
    return call_op("concatenate", Tuple(tuple(exprs)), axis=axis)


def sliced(data: Expr, axis: int, start: int, size: int) -> Expr:
    """``size`` elements of an axis, all of those before it."""
    return call_op(
        "strided_slice", data, begin=[0] * axis + [start], end=[-1] * axis + [size], strides=[1] * (axis + 1),
        slice_mode="size",
    )  # fmt: skip


class _Convolutions(Combiner):
    name = "nn.conv2d"

    def supports(self, call: Call) -> bool:
        return call.attrs.groups == 1 and call.attrs.kernel_layout.isalpha()

    def together(self, a: Call, b: Call) -> bool:
        layout = a.attrs.kernel_layout
        if any(a.attrs[name] != b.attrs[name] for name in _SAME):
            return False
        first, second = (c.args[1].checked_as(TensorType).shape for c in (a, b))
        return all(first[layout.index(letter)] == second[layout.index(letter)] for letter in "HW")

    def combined(self, branches: list[Branch]) -> Call:
        first = branches[0][0]
        weight = joined([branch[0].args[1] for branch in branches], first.attrs.kernel_layout.index("O"))
        channels = sum(_channels(branch[0]) for branch in branches)
        return same_call(first, [first.args[0], weight], channels=channels)

    def fits(self, a: Call, b: Call, index: int) -> bool:
        first, second = (c.args[index].checked_as(TensorType) for c in (a, b))
        axis = self._axis(a, index)
        if first.dtype != second.dtype or first.ndim != second.ndim or axis < 0:
            return False
        place = a.checked_as(TensorType).ndim - first.ndim + axis
        for call, given in ((a, first), (b, second)):
            if given.shape[axis] != call.checked_as(TensorType).shape[place]:
                return False
        return all(i == axis or first.shape[i] == second.shape[i] for i in range(first.ndim))

    def _axis(self, call: Call, index: int) -> int:
        """Where the channels are in an argument."""
        return self.axis - call.checked_as(TensorType).ndim + call.args[index].checked_as(TensorType).ndim

    def following(self, data: Expr, calls: list[Call], parent: int) -> Call:
        first = calls[0]
        args = [
            data if i == parent else joined([call.args[i] for call in calls], self._axis(first, i))
            for i in range(len(first.args))
        ]
        return same_call(first, args)

    def parts(self, data: Expr, branches: list[Branch], depth: int) -> list[Expr]:
        found, start = [], 0
        for branch in branches:
            found.append(sliced(data, self.axis, start, _channels(branch[0])))
            start += _channels(branch[0])
        return found

    axis = 1  # of the channels, in the results of the group that is being combined

    def _combine(self, branches: list[Branch], replaced: dict[object, Expr]) -> None:
        attrs = branches[0][0].attrs
        self.axis = (attrs.out_layout or attrs.data_layout).index("C")
        super()._combine(branches, replaced)


def _channels(call: Call) -> int:
    return call.args[1].checked_as(TensorType).shape[call.attrs.kernel_layout.index("O")]
