"""What users add: operators of their own, and what is known of them.

    register("own.swish", "x / (1 + exp(-x))")
    get("own.swish").set_num_inputs(1)
    get("own.swish").add_type_rel("Identity")
    register_lower("own.swish", lambda x: ops.divide(x, ops.add(ops.exp(ops.negative(x)), relax.const(1.0))))

An operator without ``register_lower`` (or ``register_compute``, which takes tensor expressions) has a type, if it has a
relation, but no value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.ir.errors import ArgumentError, UserError
from pullback.relay.op.registry import Op, define, get


def register(op_name: str, describe: str = "", lower: Callable[..., Any] | None = None) -> Op:
    """Make ``op_name`` an operator: of any number of arguments, until ``set_num_inputs`` or ``add_argument`` says it.

    ``lower(*graph expressions, **attributes)`` is its meaning, see ``pullback.relay.op.registry``.

    Raises ArgumentError where there is one of that name.
    """
    if op_name in Op.registry:
        raise ArgumentError(f"there is a relay operator {op_name!r} already", hint="choose another name")
    return define(op_name, "args*", lower, tuples=True, doc=describe)


def register_lower(op_name: str, lower: Callable[..., Any] | None = None) -> Any:
    """Give an operator its meaning in ops of the graph IR; a decorator without the second argument."""

    def write(function: Callable[..., Any]) -> Callable[..., Any]:
        vars(get(op_name))["lower"] = function
        return function

    return write if lower is None else write(lower)


def register_compute(op_name: str, compute: Callable[..., Any] | None = None, level: int = 10) -> Any:
    """Give an operator its meaning as tensor expressions: ``compute(attrs, inputs, out_type)`` returns a list of them.

    It is an op of the graph IR then, ``relax.relay.NAME``, whose gradient is that of its loops. Such an operator has no
    attributes.
    """

    def write(function: Callable[..., Any]) -> Callable[..., Any]:
        vars(get(op_name))["lower"] = _of_tensor_expressions(op_name, function)
        return function

    return write if compute is None else write(compute)


def _of_tensor_expressions(name: str, compute: Callable[..., Any]) -> Callable[..., Any]:
    from pullback import ir
    from pullback.relax.op.register import register_op

    made: dict[int, Any] = {}

    def lower(*args: Any, **attrs: Any) -> Any:
        if attrs:
            hint = "relay.op.register_lower takes attributes"
            raise UserError(f"operator {name}: a compute with attributes is not supported", hint=hint)
        count = len(args)
        if count not in made:
            names = [f"x{i}" for i in range(count)]
            scope: dict[str, Any] = {"compute": compute}
            body = f"    found = compute(None, [{', '.join(names)}], None)\n"
            body += "    return found[0] if len(found) == 1 else tuple(found)\n"
            exec(f"def function({', '.join(names)}):\n{body}", scope)
            full = f"relay.{name}.{count}"
            if ir.Op.find(f"relax.{full}") is not None:  # an earlier compute of the operator
                full += f".{len(ir.Op.registry)}"
            made[count] = register_op(full)(scope["function"])
        return made[count](*args)

    return lower


def register_pattern(op_name: str, pattern: int, level: int = 10) -> None:
    """Say how an operator may be fused, one of :class:`OpPattern`."""
    get(op_name).set_attr("TOpPattern", pattern, level)


def register_stateful(op_name: str, stateful: bool, level: int = 10) -> None:
    """Say that an operator has effects, so that its calls are neither merged nor left out."""
    get(op_name).set_attr("TOpIsStateful", stateful, level)


def register_attr(op_name: str, name: str, value: Any = None, level: int = 10) -> Any:
    """Note something about an operator for :meth:`Op.get_attr`; a decorator without a value."""

    def write(noted: Any) -> Any:
        get(op_name).set_attr(name, noted, level)
        return noted

    return write if value is None else write(value)


def _of_compiler(name: str) -> Callable[..., Any]:
    """A hook of the reference's own passes: noted, and found by ``get_attr``."""

    def register_hook(op_name: str, value: Any = None, level: int = 10) -> Any:
        return register_attr(op_name, name, value, level)

    register_hook.__name__ = f"register_{name}"
    register_hook.__doc__ = f"Note the operator's {name}, which passes of that kind look up: ``get_attr({name!r})``."
    return register_hook


register_legalize = _of_compiler("FTVMLegalize")
register_alter_op_layout = _of_compiler("FTVMAlterOpLayout")
register_convert_op_layout = _of_compiler("FTVMConvertOpLayout")
register_strategy = _of_compiler("FTVMStrategy")
register_shape_func = _of_compiler("FShapeFunc")
register_external_compiler = _of_compiler("TExternalCompiler")
register_fake_quantization_to_integer = _of_compiler("FTVMFakeQuantizationToInteger")
register_mixed_precision_conversion = _of_compiler("FTVMMixedPrecisionConversionType")
