"""relay's operators by name: signature, meaning, type rule and gradient of each.

An operator is *lowered*: its meaning is written once, in ops of the graph IR. From that follow its type rule, its value
over NumPy, its native code and, where no rule is registered, its gradient (``meaning.py``).

    define("nn.dense", "data, weight | units=None, out_dtype=''", lower=lambda data, weight, *, units, out_dtype: …)

``lower`` takes graph expressions (for an argument that is a tuple, a list of them) and the attributes, and returns a
graph expression, or a tuple of them for several results. Every op of the graph IR is an operator too, under its full
name: ``relax.nn.gelu``.

**Operators of values.** ``dyn.reshape(data, newshape)`` takes as an argument what ``reshape`` has as an attribute. The
graph IR has no such op, so these have ``static(values, attrs)`` instead of ``lower``: ``values`` has a NumPy array (for
a tuple, a tuple of them) for each argument, or None where it is not known. Where enough is known it returns
``(name, kept, attrs)``: the call is that of the operator ``name`` on the arguments whose places ``kept`` lists, with
these attributes; else None. An evaluator knows all values, a pass those of constants:
:func:`pullback.relay.op.meaning.resolve` does it for both. What no attribute can say, as a result whose size depends
on all elements (``unique``), has ``numpy(values, attrs)``, which returns the value itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

from pullback import ir
from pullback.ir.errors import CallError, InternalError, NameNotFound, suggestion
from pullback.ir.op import Signature, is_required
from pullback.relay import expr as relay
from pullback.relay.attrs import Attrs


class OpPattern:
    """How an operator may be fused, with the reference's numbers."""

    ELEMWISE, BROADCAST, INJECTIVE, COMM_REDUCE, OUT_ELEMWISE_FUSABLE, TUPLE, OPAQUE = 0, 1, 2, 3, 4, 7, 8


@dataclass(frozen=True, eq=False, repr=False)
class Op(ir.Op):
    """An operator of relay; calling it builds a call.

    ``relay.op.get(name)`` finds one, ``relay.op.op.register(name)`` makes one. The fields from ``infer`` to ``samples``
    are those of the graph IR's ops (``pullback/ir/op.py``): relay's operators have them from the form that they are
    lowered to, and are given ``numpy`` and ``doc`` alone.

    Four rules say what a call in Python is, where it differs from the call in the program: ``python``, ``adapt``,
    ``order`` and ``face``. :meth:`make` builds a call without any of them.

    Args:
        name: the full name, such as "nn.dense".
        signature: arguments, attributes and the defaults of text.
        infer: the rule of the graph IR for types.
        te: the meaning in tensor expressions.
        kernel: the meaning in the loop IR.
        numpy: ``numpy(values, attrs)``, the value of an operator of values that no attribute can say.
        gradient: adjoints of the arguments, in the graph IR.
        check: what must hold of the arguments' values.
        constant_check: the same of arguments that are constants.
        check_message: what the user is told where it does not hold.
        decompose: the form in other ops of the graph IR.
        divisor: what a mean divides the sum by.
        precision: what mixed precision does with the op.
        singular: whether the derivative has poles.
        zeros: what the op does to zeros of an adjoint that stand for values that were not taken.
        initial: numbers that parameters and states begin with, by the argument's name.
        doc: what the op computes.
        family: the ops that it is one of, such as "control".
        samples: arguments of calls that tests make.
        lower: the meaning in ops of the graph IR, ``lower(*arguments, **attrs)``.
        relation: ``relation(arg_types, attrs)`` returns the result's type where the rule of the lowered form cannot:
            for sizes that are not known.
        complete: ``complete(arg_types, attrs)`` returns the argument types with those filled in that follow from the
            others and the attributes, such as a weight's.
        adapt: ``adapt(args, attrs)`` returns other arguments and attributes, or the expression itself, such as a call
            of another operator.
        returns: the number of results, or a function of the call that says it, of an op with several.
        static: ``static(values, attrs)``, the call that one of an operator of values is, where these are known.
        order: the positional arguments where attributes stand among the tensors: ``gather(data, axis, indices)``.
        python: defaults that Python calls have in place of the signature's, which are those of text.
        face: ``face(call)`` is what Python gets instead of the call.
        pattern: how the op may be fused, a number of :class:`OpPattern`.
        stateful: whether it has effects, so that its calls are neither merged nor left out.
        tuples: whether arguments may be tuples.
        shown: attributes that text shows even where they have their default.
        noted: what :meth:`set_attr` was given, by name.
        levels: the levels at which that was.
        span: place in the user's source, for errors; by default the current one, if there is one.

    Examples:
        >>> from pullback import relay
        >>> softmax = relay.op.get("nn.softmax")
        >>> print(softmax.signature)
        data, axis=-1
        >>> print(softmax(relay.var("x", shape=(2, 3)), axis=0))
        free_var %x: Tensor[(2, 3), float32];
        nn.softmax(%x, axis=0)
    """

    registry: ClassVar[dict[str, Op]] = {}  # type: ignore[assignment]

    lower: Callable[..., Any] | None = field(default=None, compare=False)
    relation: Callable[..., Any] | None = field(default=None, compare=False)
    complete: Callable[..., Any] | None = field(default=None, compare=False)
    adapt: Callable[..., Any] | None = field(default=None, compare=False)
    returns: Any = field(default=None, compare=False)
    static: Callable[..., Any] | None = field(default=None, compare=False)
    order: tuple[str, ...] = field(default=(), compare=False)
    python: Mapping[str, Any] = field(default_factory=dict, compare=False)
    face: Callable[..., Any] | None = field(default=None, compare=False)
    pattern: int = field(default=OpPattern.OPAQUE, compare=False)
    stateful: bool = field(default=False, compare=False)
    tuples: bool = field(default=False, compare=False)
    shown: tuple[str, ...] = field(default=(), compare=False)
    noted: dict[str, Any] = field(default_factory=dict, compare=False)  # what set_attr was given
    levels: dict[str, int] = field(default_factory=dict, compare=False)  # with which attributes were noted

    def __post_init__(self) -> None:
        vars(self)["__doc__"] = f"{self.name}({self.signature})\n\n{self.doc}"  # the class has a text of its own

    @property
    def short(self) -> str:
        return self.name

    @property
    def num_inputs(self) -> int:
        """The most arguments of a call."""
        return len(self.signature.tensors)

    def make(self, args: Sequence[Any], attrs: Mapping[str, Any] = MappingProxyType({}), **more: Any) -> relay.Call:
        """The call of these arguments, and of these attributes and the defaults of the others."""
        known = {n: d for n, d in self.signature.attrs.items() if not is_required(d)}
        unknown = [name for name in attrs if name not in self.signature.attrs]
        if unknown:
            hint = f"its attributes are {', '.join(self.signature.attrs) or 'none'}"
            raise CallError(f"{self.name}: there is no attribute {unknown[0]!r}", hint=hint)
        missing = [n for n, d in self.signature.attrs.items() if is_required(d) and n not in attrs]
        if missing:
            raise CallError(f"{self.name}: attribute {missing[0]!r} is missing", hint=f"({self.signature})")
        values = {name: attrs[name] if name in attrs else known[name] for name in self.signature.attrs}
        return relay.Call(self, tuple(args), Attrs(values), **more)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.order and not self._as_printed(args, kwargs):
            if len(args) > len(self.order):
                hint = f"its arguments are ({', '.join(self.order)})"
                raise CallError(f"{self.name} takes {len(self.order)} arguments, got {len(args)}", hint=hint)
            given = dict(zip(self.order, args, strict=False))
            twice = [name for name in given if name in kwargs]
            if twice:
                raise CallError(f"{self.name}: argument {twice[0]!r} got twice", hint=f"({', '.join(self.order)})")
            args, kwargs = (), given | kwargs
        if self.python:
            placed = [*self.signature.tensors, *self.signature.attrs][: len(args)]
            kwargs = {name: value for name, value in self.python.items() if name not in placed} | kwargs
        args_given, attrs = self.signature.bind(self.name, args, kwargs)
        if self.adapt is not None:
            adapted = self.adapt(list(args_given), dict(attrs))
            if not isinstance(adapted, tuple):
                return adapted
            args_given, attrs = adapted
        call = relay.Call(self, tuple(args_given), Attrs(attrs))
        count = self.returns(call) if callable(self.returns) else self.returns
        result = call if count is None else relay.TupleWrapper(call, count)
        return result if self.face is None else self.face(result)

    def _as_printed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call has its tensors by place and the attributes that stand among them by name, as in text."""
        tensors = [name for name in self.order if name in self.signature.tensors]
        among = [n for n in self.order[: self.order.index(tensors[-1])] if n not in tensors]
        return any(name in kwargs for name in among)

    def get_attr(self, name: str) -> Any:
        """What is known of the operator under the reference's name, such as ``TOpPattern``; None where nothing is."""
        if name in self.noted:
            return self.noted[name]
        known = {"TOpPattern": self.pattern, "TOpIsStateful": self.stateful}
        return known.get(name)

    def has_attr(self, name: str) -> bool:
        return self.get_attr(name) is not None

    def set_attr(self, name: str, value: Any, level: int = 10) -> None:
        """Note ``value`` under the name, for :meth:`get_attr`, unless something is noted with a higher level;
        ``TOpPattern`` and ``TOpIsStateful`` are the op's own fields."""
        if level < self.levels.get(name, level):
            return
        self.levels[name] = level
        fields = {"TOpPattern": "pattern", "TOpIsStateful": "stateful"}
        if name in fields:
            vars(self)[fields[name]] = value
        else:
            self.noted[name] = value

    def reset_attr(self, name: str) -> None:
        """Forget what was noted under the name."""
        self.noted.pop(name, None)
        self.levels.pop(name, None)

    def add_type_rel(self, rel_name: str, type_rel_func: Callable[..., Any] | None = None) -> Op:
        """Give the operator the relation ``type_rel_func(arg_types, attrs)``, or one of those known by name: Identity,
        the first argument's type, and Broadcast, the type of an elementwise operator of two."""
        from pullback.relay.op.rules import broadcast_of

        known = {"Identity": lambda types, attrs: types[0], "Broadcast": broadcast_of(self.name, always=True)}
        if type_rel_func is None and rel_name not in known:
            hint = "give the function: add_type_rel(name, lambda arg_types, attrs: …)"
            raise NameNotFound(f"there is no type relation {rel_name!r}: known are {', '.join(known)}", hint=hint)
        vars(self)["relation"] = type_rel_func or known[rel_name]
        return self

    def set_num_inputs(self, count: int) -> Op:
        """Say how many arguments a call has."""
        vars(self)["signature"] = Signature.parse(", ".join(f"x{i}" for i in range(count)))
        return self

    def add_argument(self, name: str, type: str = "Tensor", description: str = "") -> Op:
        """Name the next argument of a call."""
        known = () if self.signature.variadic else self.signature.tensors
        names = [n for n in known if not re.fullmatch(r"x\d+", n)]
        rest = [f"x{i}" for i in range(len(names) + 1, len(known))]
        vars(self)["signature"] = Signature.parse(", ".join([*names, name, *rest]))
        return self

    def set_support_level(self, level: int) -> Op:
        self.noted["support_level"] = level
        return self

    def set_attrs_type_key(self, key: str) -> Op:
        """Note the name of the operator's kind of attributes, which may be any here."""
        self.noted["attrs_type_key"] = key
        return self

    @property
    def description(self) -> str:
        return self.doc

    @property
    def support_level(self) -> int:
        """How near to the core an operator is; 10 where nobody has said."""
        return int(self.noted.get("support_level", 10))

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
    """The operator of that name; ``relax.NAME`` is the graph IR's, ``gradient.NAME`` gives adjoints. NameNotFound where
    there is none."""
    op = Op.registry.get(name)
    if op is None and name.startswith("gradient."):
        from pullback.relay.gradient.deferred import gradient_operator

        op = gradient_operator(get(name.removeprefix("gradient.")))
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

    return Op(op.name, op.signature, _not_of_the_graph, lower=lower, tuples=True, doc=op.doc)


relay.set_ops(get)
