"""``I``: modules, and literals that both IRs use.

@I.ir_module
class MLP:
    I.module_attrs({"param_num": 6, "state_num": 0})

    @R.function
    def backbone(x: R.Tensor((64, 784), "float32"), …): …
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, overload

import numpy as np

from pullback.ir.errors import ScriptError
from pullback.ir.module import GlobalVar, IRModule

__all__ = ["GlobalVar", "array", "bytes", "full", "ir_module", "module_attrs", "opaque", "scalar", "tensor"]


if TYPE_CHECKING:

    class ModuleClass(type, IRModule):
        """The class of decorated classes, as mypy has it: they are modules (``pullback/mypy_plugin.py``)."""


@overload
def ir_module(cls: type) -> IRModule: ...
@overload
def ir_module(cls: None = None) -> Callable[[type], IRModule]: ...
def ir_module(cls: type | None = None) -> IRModule | Callable[[type], IRModule]:
    """Decorator: the IRModule that the class describes."""
    from pullback.script.parser.entry import module_from_class

    frame = sys._getframe(1)
    if cls is None:
        return lambda c: module_from_class(c, frame)
    return module_from_class(cls, frame)


def module_attrs(attrs: Mapping[str, Any] | None = None, **misplaced: Any) -> None:
    """Attributes of the module, written in the class body (Python runs this line too, without effect)."""
    if not isinstance(attrs, Mapping) or misplaced:
        given = ", ".join(f"{k}=" for k in misplaced) or repr(attrs)
        hint = 'write I.module_attrs({"param_num": 2, "state_num": 0})'
        raise ScriptError(f"I.module_attrs takes one dictionary, not {given}", hint=hint)


def array(values: Any, dtype: str) -> np.ndarray:
    """An array literal: numbers and nested lists of them."""
    return np.asarray(values).astype(_dtype(dtype))


def scalar(value: Any, dtype: str) -> np.generic:
    """A NumPy scalar literal."""
    return _dtype(dtype).type(value)


def full(shape: Sequence[int], value: Any, dtype: str) -> np.ndarray:
    """An array literal: the same number everywhere."""
    return np.broadcast_to(array(value, dtype), tuple(shape)).copy()


def bytes(data: str, shape: Sequence[int], dtype: str) -> np.ndarray:
    """An array literal: its elements' bytes, little-endian, in base64."""
    values = np.frombuffer(base64.b64decode(data, validate=True), _dtype(dtype)).reshape(tuple(shape))
    return values if sys.byteorder == "little" else values.byteswap()


def tensor(values: np.ndarray) -> Any:
    """A runtime tensor literal."""
    from pullback.runtime import tensor as make

    return make(values)


def opaque(description: str) -> NoReturn:
    """What the printer writes for a value that has no script form; it cannot be read back."""
    raise ScriptError(f"the printed text left something out: {description}")


def _dtype(name: str) -> np.dtype:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)
