"""Operators: one object holds everything that is known of an op.

An op's *signature* is written ``"x, y | axis=-1, keepdims=False"``: tensor arguments, then attributes with their
defaults. ``name?`` is an optional trailing tensor argument, ``name*`` takes a sequence of tensors. The rules are
functions of the same arguments:

    infer(x, y, *, axis, keepdims)            struct infos -> struct info           (shapes, dtypes, errors)
    te(x, y, *, axis, keepdims)               te tensors -> te tensor               (meaning, for native code)
    kernel((x, y), (out,), *, axis, …)        buffers -> a statement of the loop IR, in place of te, for what no tensor
                                              expression can say: a running sum, a sort
    numpy(x, y, *, axis, keepdims)            arrays -> array                       (meaning, for the interpreter)
    gradient(dy, y, x0, x1, *, axis, …)       expressions -> one adjoint (or None) per tensor argument, linear in dy:
                                              its transpose is the op's forward mode
    check(x, y, *, …)                         te tensors -> bool te tensor of shape (), or None: what must hold of the
                                              *values* before the op may run, with ``check_message`` for the user
    constant_check(x, y, *, …)                the same, of arguments that are constants: the op has a meaning for others
    decompose(x, y, *, training, axis, …)     expressions -> an expression in other ops (for several results a tuple),
                                              in the form for training or for inference
    divisor(x, y, *, axis, …)                 expressions -> what a sum over the batch is divided by where the result,
                                              a scalar, is such a mean: a size or an expression, 1 where it is the sum

An op has ``te``, or ``kernel``, or is only what it decomposes to. One without ``gradient`` that decomposes is
differentiated as what it decomposes to.

``precision`` says what mixed precision does with the op, whose float32 arguments may be had in a half-precision type:

    low     it is computed from half precision: products of matrices, convolutions, attention
    same    in the type that its large arguments have by then, where that is wanted of the result: what only moves
            elements, and elementwise ops that round them once and do not make small differences large
    data    the first argument may have half precision, the others stay float32: norms
    full    in float32 (the default): exponentials, sums, losses

``singular`` says that the derivative has poles: it is infinite, or no number, at some finite arguments. ``zeros`` says
what the op does to zeros of an adjoint that stand for values that were not taken (``transform/structural_zeros.py``):

    keeps   they stay where they are, move, or are added up with others (the default)
    makes   it puts zeros among the elements: padding, a triangle, a scatter, a mask
    mixes   it adds up products: contractions; and norms, whose rules are as they are

``initial`` says with which number the elements begin of a parameter or state that is given as an argument: 1 of a
scale. Those not named begin with what their trainer draws, or 0.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pullback.ir.errors import CallError, InternalError, NameNotFound, UserError, suggestion
from pullback.ir.foreign import OPS
from pullback.ir.node import Node
from pullback.ir.words import unknown_argument

PRECISIONS = ("low", "same", "data", "full")
ZEROS = ("keeps", "makes", "mixes")
_REQUIRED = object()


def is_required(default: Any) -> bool:
    """Whether a signature's default says that there is none."""
    return default is _REQUIRED


@dataclass(frozen=True)
class Signature:
    """The parsed form of ``"x, y? | axis=-1"``."""

    tensors: tuple[str, ...]
    optional: frozenset[str]
    variadic: bool
    attrs: Mapping[str, Any]  # name -> default, or the marker _REQUIRED

    @staticmethod
    def parse(text: str) -> Signature:
        left, _, right = text.partition("|")
        names = [n.strip() for n in left.split(",") if n.strip()]
        variadic = any(n.endswith("*") for n in names)
        if variadic and len(names) != 1:
            raise InternalError(f"a sequence of tensors must be the only tensor argument: {text!r}")
        optional = frozenset(n[:-1] for n in names if n.endswith("?"))
        call = ast.parse(f"f({right.strip()})", mode="eval").body
        assert isinstance(call, ast.Call)
        attrs: dict[str, Any] = {ast.unparse(a): _REQUIRED for a in call.args}
        attrs |= {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg}
        return Signature(tuple(n.rstrip("?*") for n in names), optional, variadic, attrs)

    def bind(self, op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments of a Python call as (tensor arguments, attributes)."""
        names = [*self.tensors, *self.attrs]
        if len(args) > len(names):
            hint = "several numbers or tensors are one argument: a list of them"
            raise CallError(f"{op} takes ({self}), got {len(args)} arguments", hint=hint)
        values = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names or name in values:
                if name in values:
                    raise CallError(f"{op}: argument {name!r} got twice", hint=f"its arguments are ({self})")
                hint = unknown_argument(name, names, f"its arguments are ({self})")
                raise CallError(f"{op}: argument {name!r} does not exist", hint=hint)
            values[name] = value
        tensors = []
        for name in self.tensors:
            value = values.get(name)
            if value is None and name not in self.optional:
                raise CallError(f"{op}: argument {name!r} is missing", hint=f"its arguments are ({self})")
            if value is not None:
                tensors.append(value)
            elif any(values.get(later) is not None for later in self.tensors[self.tensors.index(name) + 1 :]):
                message = f"{op}: argument {name!r} cannot be left out when one after it is given"
                raise UserError(message, hint=f"its arguments are ({self})")
        if self.variadic:
            try:
                tensors = list(tensors[0])
            except (TypeError, UserError):
                message = f"{op}: argument {self.tensors[0]!r} must be a list of tensors"
                raise UserError(message, hint=f"write {op}([x, y])") from None
        attrs = {}
        for name, default in self.attrs.items():
            if values.get(name, default) is _REQUIRED:
                raise CallError(f"{op}: argument {name!r} is missing", hint=f"its arguments are ({self})")
            attrs[name] = values.get(name, default)
        return tensors, attrs

    def takes(self, count: int) -> bool:
        """Whether a call may have so many tensors."""
        return self.variadic or len(self.tensors) - len(self.optional) <= count <= len(self.tensors)

    def of_python(self) -> inspect.Signature:
        """What ``inspect.signature`` and editors show of the op."""
        parameters: list[inspect.Parameter] = []
        kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
        defaults = {n: None if n in self.optional else _REQUIRED for n in self.tensors} | dict(self.attrs)
        for name, default in defaults.items():
            value = inspect.Parameter.empty if default is _REQUIRED else default
            if default is _REQUIRED and parameters and parameters[-1].default is not inspect.Parameter.empty:
                kind = inspect.Parameter.KEYWORD_ONLY  # Python has no parameter without a default after one with it
            parameters.append(inspect.Parameter(name, kind, default=value))
        return inspect.Signature(parameters)

    def __str__(self) -> str:
        parts = [n + ("=None" if n in self.optional else "") for n in self.tensors]
        parts += [n if d is _REQUIRED else f"{n}={d!r}" for n, d in self.attrs.items()]
        return ", ".join(parts)


class _PythonSignature:
    """``__signature__`` of ops: of the class there is none."""

    def __get__(self, op: Op | None, owner: type) -> inspect.Signature:
        if op is None:
            raise AttributeError("__signature__")
        return op.signature.of_python()


@dataclass(frozen=True, eq=False)
class Op(Node):
    """An operator of the graph IR; calling it builds a call expression.

    The beginning of ``pullback/ir/op.py`` says what its rules take and return.

    Args:
        name: the full name, ``relax.nn.relu``.
        signature: its parameters: ``Signature.parse("x, y? | axis=-1")``.
        infer: the result's struct info, of those of the arguments; raises ShapeError or DTypeError where they
            don't fit.
        te: the result as a tensor expression.
        kernel: the result as a statement of the loop IR, for what no tensor expression can say.
        numpy: the result over NumPy, for the interpreter.
        gradient: an adjoint, or None, for each tensor argument.
        check: what must hold of the values of arguments before the op may run.
        constant_check: the same of arguments that are constants.
        check_message: what is told where ``check`` does not hold.
        decompose: the result as an expression in other ops.
        divisor: what a sum over the batch is divided by where the result is such a mean.
        precision: "low", "same", "data" or "full": what mixed precision does with it.
        singular: whether its derivative has poles.
        zeros: "keeps", "makes" or "mixes": what it does to zeros of an adjoint.
        initial: by argument, with which number the elements begin of a parameter or state.
        doc: what the op gives, in sentences.
        family: the heading under which the list of ops has it.
        samples: arguments with which the tests and the list of ops try it.
        span: the place in the user's source; by default that of the enclosing ``span_scope``.

    Examples:
        >>> from pullback.ir import Op
        >>> Op.get("nn.relu")
        Op(relax.nn.relu)
        >>> relax.Call(Op.get("nn.relu"), (relax.Var("v", R.Tensor((2, 3), "float32")),)).struct_info
        Tensor((2, 3), float32)
    """

    registry: ClassVar[dict[str, Op]] = {}
    aliases: ClassVar[dict[str, str]] = {}  # other full names of ops
    build: ClassVar[Callable[[Op, list[Any], dict[str, Any]], Any] | None] = None  # set by relax

    __signature__: ClassVar[Any] = _PythonSignature()

    name: str
    signature: Signature = field(compare=False)
    infer: Callable[..., Any] = field(compare=False)
    te: Callable[..., Any] | None = field(default=None, compare=False)
    kernel: Callable[..., Any] | None = field(default=None, compare=False)
    numpy: Callable[..., Any] | None = field(default=None, compare=False)
    gradient: Callable[..., Any] | None = field(default=None, compare=False)
    check: Callable[..., Any] | None = field(default=None, compare=False)
    constant_check: Callable[..., Any] | None = field(default=None, compare=False)
    check_message: str = field(default="", compare=False)
    decompose: Callable[..., Any] | None = field(default=None, compare=False)
    divisor: Callable[..., Any] | None = field(default=None, compare=False)
    precision: str = field(default="full", compare=False)
    singular: bool = field(default=False, compare=False)
    zeros: str = field(default="keeps", compare=False)
    initial: Mapping[str, float] = field(default_factory=dict, compare=False)
    doc: str = field(default="", compare=False)
    family: str = field(default="", compare=False)
    samples: Sequence[Any] | None = field(default=None, compare=False)

    attributes: ClassVar[dict[str, Callable[[Op], Any]]] = {}  # what get_attr knows, by name

    def get_attr(self, name: str) -> Any:
        """What the op has under a name of the reference's, such as ``FPrimalGradient``; None where it has none.

        Raises NameNotFound where no op has.
        """
        if name not in Op.attributes:
            known = ", ".join(Op.attributes)
            raise NameNotFound(
                f"ops have no attribute {name!r}", hint=f"get_attr knows {known}; op.gradient is the rule"
            )
        return Op.attributes[name](self)

    @staticmethod
    def get(name: str) -> Op:
        """The op of that name, with or without the prefix ``relax.``."""
        op = Op.find(name) or Op.find(f"relax.{name}")
        if op is None:
            known = (op.short for op in Op.registry.values())
            hint = "python -m pullback ops lists the ops"
            raise NameNotFound(f"there is no operator {name!r}{suggestion(name, known, OPS)}", hint=hint)
        return op

    @staticmethod
    def find(full: str) -> Op | None:
        """The op of that full name, or of that alias."""
        return Op.registry.get(Op.aliases.get(full, full))

    @property
    def short(self) -> str:
        """The name as written after ``R.``: ``nn.relu``."""
        return self.name.removeprefix("relax.")

    @property
    def usage(self) -> str:
        """How the op is called, and the first sentence of what it gives."""
        first = re.split(r"(?<=[.:;])\s", " ".join(self.doc.split()), maxsplit=1)[0].rstrip(".:;")
        lower = first[:1].isascii() and not first[1:2].isupper()
        return f"R.{self.short}({self.signature}) gives {first[:1].lower() + first[1:] if lower else first}"

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return f"{self.short}({self.signature})\n\n{self.doc}"

    @property
    def __name__(self) -> str:
        return self.short.rsplit(".", 1)[-1]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tensors, attrs = self.signature.bind(self.short, args, kwargs)
        if Op.build is None:
            raise InternalError("the graph IR is not loaded")
        return Op.build(self, tensors, attrs)

    def __repr__(self) -> str:
        return f"Op({self.name})"

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle: its name. What it does is known where it is registered."""
        if Op.registry.get(self.name) is not self:
            raise UserError(f"operator {self.name} cannot be pickled: it is not registered")
        return _registered, (self.name,)


def _registered(name: str) -> Op:
    """The op that a pickle names."""
    if name not in Op.registry:
        hint = "import the module that registers it before you unpickle what uses it"
        raise NameNotFound(f"there is no operator {name} in this process", hint=hint)
    return Op.registry[name]


def alias(name: str, of: str) -> None:
    """Make ``relax.<name>`` another name of the op ``relax.<of>``; printed scripts have the op's own."""
    full = f"relax.{name}"
    if full in Op.registry or full in Op.aliases:
        raise InternalError(f"operator {full} is defined twice")
    Op.aliases[full] = f"relax.{of}"


def define(name: str, signature: str, **rules: Any) -> Op:
    """Register the operator ``relax.<name>``; ``rules`` are the fields of :class:`Op`."""
    full = f"relax.{name}"
    if full in Op.registry:
        raise InternalError(f"operator {full} is defined twice")
    if rules.get("precision", "full") not in PRECISIONS:
        raise InternalError(f"operator {full}: precision must be one of {PRECISIONS}, got {rules['precision']!r}")
    if rules.get("zeros", "keeps") not in ZEROS:
        raise InternalError(f"operator {full}: zeros must be one of {ZEROS}, got {rules['zeros']!r}")
    op = Op(full, Signature.parse(signature), **rules)
    Op.registry[full] = op
    return op


_OF_CODE = ("signature", "infer", "te", "kernel", "numpy", "check", "check_message", "constant_check", "decompose")
_packaged: dict[Op, tuple[Any, ...]] = {}


def _rules(op: Op) -> tuple[Any, ...]:
    return tuple(getattr(op, name) for name in _OF_CODE)


def seal() -> None:
    """Say that the package has defined its ops: those that are defined or changed from now on are somebody else's."""
    _packaged.update((op, _rules(op)) for op in Op.registry.values())


def is_packaged(op: Op) -> bool:
    """Whether the op's name and the package's version say which code it becomes: it is one of the package's, and has
    the rules that it was defined with."""
    known = _packaged.get(op)
    return known is not None and all(a is b for a, b in zip(known, _rules(op), strict=True))


def all_packaged() -> bool:
    """Whether the package's ops are all in their places, unchanged."""
    return all(Op.registry.get(op.name) is op and is_packaged(op) for op in _packaged)
