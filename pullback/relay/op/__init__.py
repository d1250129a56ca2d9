"""relay's operators. Importing this package registers them all; one file a family.

Each operator is a name here too, as Python calls it: ``op.add``, ``op.nn.dense``. The reference's modules are
namespaces: ``op.transform``, ``op.tensor``, ``op.reduce``, ``op.algorithm``, ``op.nn``, ``op.image``, ``op.vision``,
``op.random``, ``op.annotation``, ``op.dyn``, and ``op.op`` with what registers operators.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from pullback.relay.op import (  # noqa: F401
    adjoint,
    annotate,
    boxes,
    convolution,
    copies,
    create,
    dense,
    draw,
    dynamic,
    elementwise,
    index,
    join,
    layout,
    loss,
    masks,
    normalization,
    order,
    pool,
    shape,
    signal,
    slices,
    sparse,
    spatial,
    user,
)
from pullback.relay.op import reduce as _reduce
from pullback.relay.op.gradient_rules import register_gradient
from pullback.relay.op.gradients import register_gradients
from pullback.relay.op.namespace import Namespace
from pullback.relay.op.registry import Op, OpPattern, get
from pullback.relay.op.user import (
    register,
    register_alter_op_layout,
    register_compute,
    register_convert_op_layout,
    register_external_compiler,
    register_fake_quantization_to_integer,
    register_legalize,
    register_lower,
    register_mixed_precision_conversion,
    register_pattern,
    register_shape_func,
    register_stateful,
    register_strategy,
)

_REGISTERING = {
    function.__name__: function
    for function in (
        get,
        register,
        register_compute,
        register_gradient,
        register_lower,
        register_pattern,
        register_stateful,
    )
}
_HOOKS = {
    "register_alter_op_layout": register_alter_op_layout,
    "register_convert_op_layout": register_convert_op_layout,
    "register_external_compiler": register_external_compiler,
    "register_fake_quantization_to_integer": register_fake_quantization_to_integer,
    "register_legalize": register_legalize,
    "register_mixed_precision_conversion": register_mixed_precision_conversion,
    "register_shape_func": register_shape_func,
    "register_strategy": register_strategy,
}

_REDUCTIONS = ["sum", "max", "min", "prod", "all", "any", "mean", "argmax", "argmin", "variance"]
_ORDERS = ["sort", "argsort", "topk", "searchsorted"]
_FUNCTIONS: dict[str, Any] = {  # of several operators, or of other arguments than the operator's
    "std": _reduce.std,
    "mean_variance": _reduce.mean_variance,
    "mean_std": _reduce.mean_std,
    "logsumexp": _reduce.logsumexp,
    "matrix_set_diag": masks.matrix_set_diag,
    "unique": order.unique,
    "segment_sum": order.segment_sum,
    "reverse_reshape": get("contrib_reverse_reshape"),
    "stop_fusion": get("annotation.stop_fusion"),
    "checkpoint": get("annotation.checkpoint"),
}
_NN = {"dropout_raw": dense.dropout_raw, "sparse_dense": spatial.sparse_dense}
_RANDOM = {
    "threefry_key": draw.threefry_key,
    "threefry_generate": draw.threefry_generate,
    "uniform": draw.uniform,
    "normal": draw.normal,
}
_ANNOTATIONS = {name: get(name) for name in ("on_device", "device_copy")}
_VISION = {"nms": get("vision.non_max_suppression")}

_NAMESPACES = {
    "nn": Namespace("relay.nn", "nn", functions=_NN),
    "image": Namespace("relay.image", "image"),
    "vision": Namespace("relay.vision", "vision", functions=_VISION),
    "random": Namespace("relay.random", "random", functions=_RANDOM),
    "annotation": Namespace("relay.annotation", "annotation", functions=_ANNOTATIONS),
    "dyn": Namespace(
        "relay.op.dyn",
        "dyn",
        functions={"nn": Namespace("relay.op.dyn.nn", "dyn.nn"), "image": Namespace("relay.op.dyn.image", "dyn.image")},
    ),
    "transform": Namespace("relay.op.transform", functions=_FUNCTIONS),
    "tensor": Namespace("relay.op.tensor"),
    "reduce": Namespace("relay.op.reduce", names=_REDUCTIONS, functions=_FUNCTIONS),
    "algorithm": Namespace("relay.op.algorithm", names=_ORDERS),
    "op": Namespace("relay.op.op", names=(), functions=_REGISTERING | _HOOKS | {"Op": Op, "OpPattern": OpPattern}),
}
_ALL = Namespace("relay.op", functions=_FUNCTIONS | _REGISTERING | _HOOKS | {"device_copy": get("device_copy")})


def __getattr__(name: str) -> Any:
    return getattr(_ALL, name)


def __dir__() -> list[str]:
    return sorted({*_ALL.__dir__(), *_NAMESPACES, *__all__})


_MODULES = {name: value for name, value in globals().items() if isinstance(value, ModuleType)}
for _name in [name for name in _MODULES if name not in ("annotate", "sys")]:
    if _name in Op.registry:  # op.where is the operator, and would be so if there were a file of that name
        globals()[_name] = Op.registry[_name]
for _name, _namespace in _NAMESPACES.items():  # from pullback.relay.op.nn import dense
    _module = ModuleType(f"{__name__}.{_name}", f"The operators of {_namespace!r}.")
    vars(_module).update(__getattr__=_namespace.__getattr__, __dir__=_namespace.__dir__)
    sys.modules[_module.__name__] = globals()[_name] = _module

__all__ = ["Op", "OpPattern", "get", *_NAMESPACES, *_REGISTERING, *_HOOKS]

register_gradients()
