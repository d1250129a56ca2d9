"""The table of ONNX's operators.

A converter is called with the node's inputs in order, None for one that is left out, and its attributes as keywords,
those that the node lacks with the schema's default where it has one. Inputs are graph values; attributes are ints,
floats, strings, lists of them, and arrays for tensors. It returns a graph value, or a tuple of them where the operator
has several results.

    @ONNX.register("Softmax-13")
    def softmax(x, *, axis): ...

``Softmax-13`` converts Softmax from version 13 on, up to the next number that the table has; ``Softmax`` all versions
before the least of them. The version is that of the model's opset, never one above. Names of domains other than ai.onnx
come with them: ``ai.onnx.ml.Binarizer``.

Where the value of an input decides a shape or an attribute, a converter asks for it (``known.py``). With a parameter
``node`` it is given the node itself (:class:`pullback.relax.frontend.onnx.replay.Node`): how many results are asked
for, the opset, the bodies of loops. ``VALUES`` says which inputs have to be known, by operator: initialisers there are
constants, not parameters.
"""

from __future__ import annotations

from pullback.relax.frontend.converters import Converters

ONNX = Converters("onnx")

DEFAULT_DOMAINS = ("", "ai.onnx")

VALUES: dict[str, tuple[int, ...]] = {  # the inputs of an operator whose values have to be known
    "AffineGrid": (1,), "BitCast": (0,), "BlackmanWindow": (0,), "CenterCropPad": (1,), "Col2Im": (1, 2),
    "Compress": (1,), "ConstantOfShape": (0,), "CumProd": (1,), "CumSum": (1,), "DFT": (1, 2), "Dropout": (1, 2),
    "Expand": (1,), "HammingWindow": (0,), "HannWindow": (0,), "MaxUnpool": (2,), "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonMaxSuppression": (0, 1, 2, 3, 4), "NonZero": (0,), "OneHot": (1,), "Pad": (1, 2, 3), "Range": (0, 1, 2),
    "ReduceL1": (1,), "ReduceL2": (1,), "ReduceLogSum": (1,), "ReduceLogSumExp": (1,), "ReduceMax": (1,),
    "ReduceMean": (1,), "ReduceMin": (1,), "ReduceProd": (1,), "ReduceSum": (1,), "ReduceSumSquare": (1,),
    "Reshape": (1,), "Resize": (1, 2, 3), "STFT": (1, 3), "SequenceAt": (1,), "SequenceErase": (1,),
    "SequenceInsert": (2,), "Slice": (1, 2, 3, 4), "Split": (1,), "SplitToSequence": (1,), "Squeeze": (1,),
    "Tile": (1,), "TopK": (1,), "Trilu": (1,), "Unique": (0,), "Unsqueeze": (1,), "Upsample": (1,),
}  # fmt: skip

FIXED: dict[str, tuple[int, ...]] = {  # other inputs that are no weights: initialisers there are constants too
    "Clip": (1, 2), "DequantizeLinear": (1, 2), "If": (0,), "Loop": (0, 1), "QLinearConv": (1, 2, 4, 5, 6, 7),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7), "QuantizeLinear": (1, 2),
}  # fmt: skip


def domain_of(domain: str) -> str:
    """A domain's name, "" for ai.onnx."""
    return "" if domain in DEFAULT_DOMAINS else domain


def name_of(domain: str, op_type: str) -> str:
    """An operator's name in the table, without its version."""
    return f"{domain}.{op_type}" if domain_of(domain) else op_type


def keys_of(domain: str, op_type: str, version: int) -> tuple[str, ...]:
    """The names under which a version of an operator may stand in the table, the most exact first."""
    name = name_of(domain, op_type)
    return (*(f"{name}-{v}" for v in range(version, 0, -1)), name)
