"""relay's operators by name: signature, meaning, type rule and gradient of each.

An operator is *lowered*: its meaning is written once, in ops of the graph IR. From that follow its type rule, its value
over NumPy, its native code and, where no rule is registered, its gradient (``meaning.py``).

    define("nn.dense", "data, weight | units=None, out_dtype=''", lower=lambda data, weight, *, units, out_dtype: …)

``lower`` takes graph expressions (for an argument that is a tuple, a list of them) and the attributes, and returns a
graph expression, or a tuple of them for several results. Every op of the graph IR is an operator too, under its full
name: ``relax.nn.gelu``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from pullback import ir
from pullback.ir.errors import InternalError, NameNotFound, suggestion
from pullback.ir.op import Signature
from pullback.relay import expr as relay
from pullback.relay.attrs import Attrs


class OpPattern:
    """How an operator may be fused, with the reference's numbers."""

    ELEMWISE, BROADCAST, INJECTIVE, COMM_REDUCE, OUT_ELEMWISE_FUSABLE, TUPLE, OPAQUE = 0, 1, 2, 3, 4, 7, 8


@dataclass(frozen=True, eq=False, repr=False)
class Op(ir.Op):
    """An operator of relay; calling it builds a call.

    ``relation(arg_types, attrs)`` returns the result's type where the rule of the lowered form cannot: for sizes that
    are not known. ``complete(arg_types, attrs)`` returns the argument types with those filled in that follow from the
    others and the attributes, such as a weight's. ``returns`` is the number of results, or a function of the call that
    says it, of an op with several. ``adapt(args, attrs)`` changes what Python calls give before a call is built.
    ``shown`` are attributes that text shows even where they have their default.
    """

    registry: ClassVar[dict[str, Op]] = {}  # type: ignore[assignment]

    lower: Callable[..., Any] | None = field(default=None, compare=False)
    relation: Callable[..., Any] | None = field(default=None, compare=False)
    complete: Callable[..., Any] | None = field(default=None, compare=False)
    adapt: Callable[..., Any] | None = field(default=None, compare=False)
    returns: Any = field(default=None, compare=False)
    pattern: int = field(default=OpPattern.OPAQUE, compare=False)
    stateful: bool = field(default=False, compare=False)
    shown: tuple[str, ...] = field(default=(), compare=False)

    @property
    def short(self) -> str:
        return self.name

    @property
    def num_inputs(self) -> int:
        """The most arguments of a call."""
        return len(self.signature.tensors)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args_given, attrs = self.signature.bind(self.name, args, kwargs)
        if self.adapt is not None:
            args_given, attrs = self.adapt(list(args_given), dict(attrs))
        call = relay.Call(self, tuple(args_given), Attrs(attrs))
        count = self.returns(call) if callable(self.returns) else self.returns
        return call if count is None else relay.TupleWrapper(call, count)

    def get_attr(self, attr_name: str) -> Any:
        """What was registered of the operator under that name, such as its gradient; None where nothing was."""
        from pullback.relay.op.attributes import attribute

        return attribute(self, attr_name)

    def has_attr(self, attr_name: str) -> bool:
        return self.get_attr(attr_name) is not None

    def set_attr(self, attr_name: str, value: Any, plevel: int = 10) -> None:
        """Register ``value`` under that name, unless something of a higher level is."""
        from pullback.relay.op.attributes import set_attribute

        set_attribute(self.name, attr_name, value, plevel)

    def __repr__(self) -> str:
        return f"Op({self.name})"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return get, (self.name,)


def _not_of_the_graph(*args: Any, **kwargs: Any) -> Any:
    raise InternalError("an operator of relay has no type rule of the graph IR: it is lowered first")


def define(name: str, signature: str, lower: Callable[..., Any] | None = None, **rules: Any) -> Op:
    """Register the operator ``name``; ``rules`` are the fields of :class:`Op`. A name is registered once."""
    if name in Op.registry:
        raise InternalError(f"operator {name} is defined twice")
    op = Op(name, Signature.parse(signature), _not_of_the_graph, lower=lower, **rules)
    Op.registry[name] = op
    return op


def get(name: str) -> Op:
    """The operator of that name; ``relax.NAME`` is the graph IR's. NameNotFound where there is none."""
    op = Op.registry.get(name)
    if op is None and name.startswith("relax.") and ir.Op.find(name) is not None:
        op = Op.registry[name] = of_graph(ir.Op.get(name))
    if op is None:
        hint = "relay.op.Op.registry has all names; those of the graph IR begin with relax."
        raise NameNotFound(f"there is no relay operator {name!r}{suggestion(name, Op.registry)}", hint=hint)
    return op


def of_graph(op: ir.Op) -> Op:
    """An op of the graph IR as an operator."""

    def lower(*args: Any, **attrs: Any) -> Any:
        if not op.signature.variadic:
            return op(*args, **attrs)
        return op(list(args[0]) if len(args) == 1 and isinstance(args[0], list) else list(args), **attrs)

    signature = replace(op.signature, variadic=False)  # a sequence of tensors is one argument here: a tuple
    return Op(op.name, signature, _not_of_the_graph, lower=lower, doc=op.doc)


relay.set_ops(get)
