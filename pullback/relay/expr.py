"""relay's expressions: the whole grammar.

e ::= Var | GlobalVar | Constant(tensor)
    | Tuple(e…) | TupleGetItem(e, index)
    | Call(op, constructor or e, e…, attrs)
    | Let(var, e, e) | If(e, e, e) | Function(params, e)
    | RefCreate(e) | RefRead(e) | RefWrite(e, e)
    | Match(e, clauses)                        (``relay/adt.py``)

Arguments nest. A node that stands at several places is one value in *graph form*, computed once; ``Let`` says the same
in A-normal form. Nodes are frozen, but for ``checked_type``, which inference writes, and the span.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Number
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pullback import ir
from pullback.ir.arguments import sequence, whole
from pullback.ir.errors import ArgumentError, CallError, DTypeError
from pullback.ir.node import Span, Symbol, current_span
from pullback.relay.attrs import Attrs
from pullback.relay.base import Expr, call_op, call_several, set_checked_type, set_ops, span_of  # noqa: F401
from pullback.relay.ty import TensorType, Type, TypeVar
from pullback.runtime.dtype import numpy_dtype
from pullback.runtime.tensor import Tensor, tensor

RelayExpr = ExprWithOp = Expr


def as_expr(value: Any) -> Any:
    """``value`` as an expression: expressions, operators, constructors and global variables are themselves, lists and
    tuples become tuples, numbers and arrays constants."""
    if isinstance(value, (Expr, ir.Op)):
        return value
    if isinstance(value, ir.GlobalVar):
        return GlobalVar(value.name)
    if isinstance(value, TupleWrapper):
        return value.tuple_value
    if isinstance(value, (list, tuple)):
        return Tuple(tuple(as_expr(v) for v in value))
    if isinstance(value, (Number, np.ndarray, np.generic, Tensor)):
        return const(value)
    hint = "relay.var, relay.const and calls of ops make expressions"
    raise ArgumentError(f"{type(value).__name__} is no relay expression", hint=hint, span=current_span())


@dataclass(frozen=True, eq=False)
class Constant(Expr):
    """A tensor that the program contains.

    Args:
        data: a tensor, or numbers or an array, which are copied.
        span: place in the user's source, for errors; by default the line that builds it.

    Raises:
        DTypeError: for data whose dtype no tensor has.
    """

    data: Tensor

    shared: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.data, Tensor):
            vars(self)["data"] = tensor(self.data, copy=True)


def const(value: Any, dtype: str | None = None) -> Constant:
    """A constant. Without a dtype, Python's floats are float32, its ints int32 and its bools bool, in lists too; arrays
    keep theirs.

    Args:
        value: a number, nested lists of them, an array or a tensor.
        dtype: of the constant.

    Returns:
        The constant, of the shape of the value.

    Raises:
        ArgumentError: for a value that is none of these.
        DTypeError: for a dtype that no tensor has.

    Examples:
        >>> from pullback import relay
        >>> relay.const(1.0).data.dtype, relay.const([[1, 2]], "int8").data.shape
        ('float32', (1, 2))
    """
    if isinstance(value, Tensor):
        return Constant(value if dtype is None else tensor(value.numpy().astype(dtype)))
    try:
        held = np.asarray(value)
    except ValueError:
        raise ArgumentError("lists of unequal lengths are no constant", hint="a row has as many as others") from None
    if held.dtype == object:
        raise ArgumentError(f"{type(value).__name__} is no constant", hint="numbers, lists of them, and arrays are")
    if dtype is None and not isinstance(value, (np.ndarray, np.generic)):
        dtype = {"f": "float32", "i": "int32", "b": "bool"}.get(held.dtype.kind, str(held.dtype))
    try:
        return Constant(tensor(held if dtype is None else held.astype(numpy_dtype(dtype)), copy=True))
    except DTypeError as error:
        raise DTypeError(f"a constant cannot have this dtype: {error.message}", hint=error.hint) from None


@dataclass(frozen=True, eq=False)
class Var(Expr, Symbol):
    """A variable: a parameter, or what a ``Let`` or a pattern binds. Its name is a hint, it is itself by identity.

    Args:
        name: shown in text; others may have it too.
        type_annotation: its type; None where inference is to find it.
        span: place in the user's source, for errors; by default the line that builds it.

    Examples:
        >>> from pullback import relay
        >>> x, y = relay.Var("x", relay.TensorType((3,))), relay.Var("x", relay.TensorType((3,)))
        >>> x == y, x.name_hint == y.name_hint
        (False, True)
    """

    name: str = field(compare=False)
    type_annotation: Type | None = None

    @property
    def name_hint(self) -> str:
        return self.name

    @property
    def vid(self) -> Var:
        """What the variable is known by: itself."""
        return self


def checked_var(what: str, variable: Any) -> None:
    """Raise an ArgumentError unless it is a variable."""
    if not isinstance(variable, Var):
        hint = 'relay.var("x") makes one'
        raise ArgumentError(f"{what} binds a relay.Var, got {type(variable).__name__}", hint=hint, span=current_span())


def var(name_hint: str, type_annotation: Any = None, shape: Sequence[Any] | None = None, dtype: str = "float32") -> Var:
    """A new variable, of the type, or of a tensor of the shape and dtype, or of a type that is inferred.

    Args:
        name_hint: shown in text.
        type_annotation: a type, or the dtype of a scalar.
        shape: of the tensor: ints, ``relay.Any()`` or sizes of the loop IR.
        dtype: of the tensor's elements, where there is a shape.

    Returns:
        The variable.

    Raises:
        CallError: for a type and a shape.
        ShapeError: for what is no size, and for a negative one.
        DTypeError: for an unknown dtype.

    Examples:
        >>> from pullback import relay
        >>> relay.var("x", shape=(2, 3)).type_annotation
        TensorType(shape=(2, 3), dtype='float32')
        >>> relay.var("go", "bool").type_annotation
        TensorType(shape=(), dtype='bool')
    """
    if type_annotation is not None and shape is not None:
        raise CallError("var takes a type or a shape, not both", hint='write var("x", shape=(2, 3), dtype="float32")')
    if shape is not None:
        sizes = sequence("shape of a variable", shape, "write (3,) for one axis, () for a scalar")
        return Var(name_hint, TensorType(sizes, dtype))
    if isinstance(type_annotation, str):
        return Var(name_hint, TensorType((), type_annotation))
    return Var(name_hint, type_annotation)


@dataclass(frozen=True, eq=False)
class GlobalVar(Expr, ir.GlobalVar):
    """The name of a function of the module; names compare.

    Args:
        name: of the function.
        struct_info: the function's type in the graph IR, when it is known.
        span: place in the user's source, for errors; by default the line that builds it.

    Examples:
        >>> from pullback import relay
        >>> x, double = relay.var("x", shape=(2,)), relay.GlobalVar("double")
        >>> module = pullback.IRModule({"double": relay.Function([x], x + x)})
        >>> module["main"] = relay.Function([x], double(x))
        >>> relay.create_executor(mod=module).evaluate()(np.ones(2, "float32")).numpy()
        array([2., 2.], dtype=float32)
    """

    shared: ClassVar[bool] = False

    __eq__ = ir.GlobalVar.__eq__
    __hash__ = ir.GlobalVar.__hash__

    def __call__(self, *args: Any) -> Call:
        return Call(self, args)


@dataclass(frozen=True, eq=False)
class Tuple(Expr):
    """Several values together.

    Args:
        fields: the values.
        span: place in the user's source, for errors; by default the line that builds it.

    Raises:
        ArgumentError: for fields that are no sequence of expressions.

    Examples:
        >>> from pullback import relay
        >>> pair = relay.Tuple([relay.const(1), relay.const(2.0)])
        >>> len(pair), str(pair), str(pair[1])
        (2, '(1, 2f)', '2f')
    """

    fields: tuple[Expr, ...]

    if TYPE_CHECKING:  # what the constructor takes: __post_init__ makes tuples of sequences

        def __init__(self, fields: Sequence[Expr], *, span: Span | None = ...) -> None: ...

    def __post_init__(self) -> None:
        fields = sequence("fields of a tuple", self.fields)
        vars(self)["fields"] = tuple(as_expr(f) for f in fields)

    def astuple(self) -> Tuple:
        return self

    def __getitem__(self, index: int) -> Expr:
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Any:
        return iter(self.fields)


@dataclass(frozen=True, eq=False)
class TupleGetItem(Expr):
    """A field of a tuple.

    Args:
        tuple_value: the tuple.
        index: of the field, from 0.
        span: place in the user's source, for errors; by default the line that builds it.

    Raises:
        ArgumentError: for a tuple_value that is no expression, and an index that is no int.
    """

    tuple_value: Expr
    index: int

    def __post_init__(self) -> None:
        vars(self)["index"] = whole("index of a tuple", self.index)
        vars(self)["tuple_value"] = as_expr(self.tuple_value)


@dataclass(frozen=True, eq=False)
class Call(Expr):
    """A call of an operator, a constructor or a function.

    Args:
        op: what is called.
        args: expressions; numbers and arrays become constants.
        attrs: attributes of an operator's call, by name.
        type_args: types for the type parameters of what is called; none are inferred.
        span: place in the user's source, for errors; by default the line that builds it.

    Raises:
        ArgumentError: for an op that is no expression, and args that are no sequence of them.

    Examples:
        >>> from pullback import relay
        >>> f, x = relay.var("f"), relay.var("x", shape=(2, 3))
        >>> print(relay.Function([f, x], relay.Call(f, [x, 1.0])))
        fn (%f, %x: Tensor[(2, 3), float32]) {
          %f(%x, 1f)
        }
    """

    op: Any
    args: tuple[Expr, ...]
    attrs: Attrs = field(default_factory=Attrs)
    type_args: tuple[Type, ...] = ()

    if TYPE_CHECKING:

        def __init__(
            self,
            op: Any,
            args: Sequence[Expr],
            attrs: Mapping[str, Any] | None = None,
            type_args: Sequence[Type] | None = (),
            *,
            span: Span | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        fields = vars(self)
        fields["op"] = as_expr(self.op)
        fields["args"] = tuple(as_expr(a) for a in sequence("arguments of a call", self.args))
        fields["attrs"] = _attrs(self.attrs)
        fields["type_args"] = tuple(self.type_args or ())

    def structural_items(self) -> list[tuple[str, Any]]:
        """What the types of an operator's arguments are follows from these."""
        names = ("op", "args", "attrs") if isinstance(self.op, ir.Op) else ("op", "args", "attrs", "type_args")
        return [(name, getattr(self, name)) for name in names]


def _attrs(attrs: Any) -> Attrs:
    return attrs if isinstance(attrs, Attrs) else Attrs(attrs or {})


@dataclass(frozen=True, eq=False)
class Let(Expr):
    """``value`` bound to ``var`` in ``body``; a function may name itself in its value.

    Args:
        variable: what the value is called.
        value: an expression, computed once.
        body: an expression, whose value the ``Let`` has.
        span: place in the user's source, for errors; by default the line that builds it.

    Raises:
        ArgumentError: for a variable that is none, and for a value or body that is no expression.

    Examples:
        >>> from pullback import relay
        >>> x, y = relay.var("x", shape=(2,)), relay.var("y")
        >>> print(relay.Function([x], relay.Let(y, relay.exp(x), y * y)))
        fn (%x: Tensor[(2), float32]) {
          let %y = exp(%x);
          multiply(%y, %y)
        }
    """

    binds = ("variable",)

    variable: Var
    value: Expr
    body: Expr

    def __post_init__(self) -> None:
        checked_var("a Let", self.variable)
        vars(self)["value"], vars(self)["body"] = as_expr(self.value), as_expr(self.body)

    @property
    def var(self) -> Var:
        return self.variable


@dataclass(frozen=True, eq=False)
class If(Expr):
    """One of two values, by a scalar bool; only that one is computed.

    Args:
        cond: a bool of shape ().
        true_branch: the value where it is true.
        false_branch: the value otherwise, of the same type.
        span: place in the user's source, for errors; by default the line that builds it.

    Raises:
        ArgumentError: for what is no expression.

    Examples:
        >>> from pullback import relay
        >>> x = relay.var("x", shape=())
        >>> f = relay.Function([x], relay.If(x < relay.const(0.0), -x, x))
        >>> float(relay.create_executor().evaluate(f)(-3.0).numpy())
        3.0
    """

    cond: Expr
    true_branch: Expr
    false_branch: Expr

    def __post_init__(self) -> None:
        for name in ("cond", "true_branch", "false_branch"):
            vars(self)[name] = as_expr(getattr(self, name))


@dataclass(frozen=True, eq=False)
class Function(Expr):
    """A function value; of a module too. ``type_params`` are the type variables that it is polymorphic in.

    Args:
        params: the parameters, made by :func:`var`.
        body: an expression of them, whose value the function returns.
        ret_type: the type of the result; None where inference is to find it.
        type_params: the type variables.
        attrs: attributes of the function, by name.
        span: place in the user's source, for errors; by default the line that builds it.

    Raises:
        ArgumentError: for params that are no sequence of variables, and a body that is no expression.

    Examples:
        >>> from pullback import relay
        >>> x = relay.var("x", shape=(3,))
        >>> f = relay.Function([x], relay.log(x) * x)
        >>> value, (grad,) = relay.create_executor().evaluate(relay.transform.gradient(f))(np.ones(3, "float32"))
        >>> value.numpy(), grad.numpy()
        (array([0., 0., 0.], dtype=float32), array([1., 1., 1.], dtype=float32))
    """

    binds = ("type_params", "params")

    params: tuple[Var, ...]
    body: Expr
    ret_type: Type | None = None
    type_params: tuple[TypeVar, ...] = ()
    attrs: Attrs = field(default_factory=Attrs)

    global_var: ClassVar[Any] = GlobalVar  # what a module calls this function by

    if TYPE_CHECKING:

        def __init__(
            self,
            params: Sequence[Var],
            body: Expr,
            ret_type: Type | None = None,
            type_params: Sequence[TypeVar] | None = (),
            attrs: Mapping[str, Any] | None = None,
            *,
            span: Span | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        fields = vars(self)
        fields["params"] = sequence("params of a function", self.params)
        for param in self.params:
            if not isinstance(param, Var):
                hint = "parameters are made by relay.var"
                raise ArgumentError(f"a parameter must be a relay.Var, got {type(param).__name__}", hint=hint)
        fields["body"] = as_expr(self.body)
        fields["type_params"] = tuple(self.type_params or ())
        fields["attrs"] = _attrs(self.attrs)

    def as_function(self) -> Function:
        return self

    def structural_items(self) -> list[tuple[str, Any]]:
        """Binders come before what they bind."""
        return [(name, getattr(self, name)) for name in ("type_params", "params", "ret_type", "attrs", "body")]

    def with_attr(self, key: str | Mapping[str, Any], value: Any = None) -> Function:
        """The function with an attribute, or several, more."""
        added = key if isinstance(key, Mapping) else {key: value}
        return self.replace(attrs=Attrs({**self.attrs, **added}))

    def without_attr(self, key: str) -> Function:
        """The function without the attribute."""
        return self.replace(attrs=Attrs({k: v for k, v in self.attrs.items() if k != key}))

    def replace(self, **fields: Any) -> Function:
        """A copy with other fields."""
        names = ("params", "body", "ret_type", "type_params", "attrs", "span")
        return Function(**({name: getattr(self, name) for name in names} | fields))


def FunctionWithFields(function: Function, **fields: Any) -> Function:  # noqa: N802
    """``function`` with some fields replaced: ``FunctionWithFields(f, body=b)``.

    Args:
        function: the function, which stays as it is.
        fields: new ones, by the names of :class:`Function`'s arguments; None keeps the old one.

    Returns:
        The new function.

    Raises:
        TypeError: for a name that is no field.

    Examples:
        >>> from pullback import relay
        >>> x = relay.var("x", shape=(3,))
        >>> print(relay.FunctionWithFields(relay.Function([x], x), body=-x))
        fn (%x: Tensor[(3), float32]) {
          negative(%x)
        }
    """
    return function.replace(**{k: v for k, v in fields.items() if v is not None})


@dataclass(frozen=True, eq=False)
class RefCreate(Expr):
    """A new mutable cell.

    Args:
        value: what it holds at first.
        span: place in the user's source, for errors; by default the line that builds it.

    Raises:
        ArgumentError: for a value that is no expression.

    Examples:
        >>> from pullback import relay
        >>> cell, done = relay.var("cell"), relay.var("done")
        >>> write = relay.RefWrite(cell, relay.const(2.0))
        >>> program = relay.Let(cell, relay.RefCreate(relay.const(1.0)), relay.Let(done, write, relay.RefRead(cell)))
        >>> relay.create_executor().evaluate(program).numpy()
        array(2., dtype=float32)
    """

    value: Expr

    def __post_init__(self) -> None:
        vars(self)["value"] = as_expr(self.value)


@dataclass(frozen=True, eq=False)
class RefRead(Expr):
    """What a cell holds.

    Args:
        ref: the cell.
        span: place in the user's source, for errors; by default the line that builds it.

    Raises:
        ArgumentError: for a ref that is no expression.
    """

    ref: Expr

    def __post_init__(self) -> None:
        vars(self)["ref"] = as_expr(self.ref)


@dataclass(frozen=True, eq=False)
class RefWrite(Expr):
    """Puts a value into a cell; gives the empty tuple.

    Args:
        ref: the cell.
        value: what it holds from then on, of the type that it holds.
        span: place in the user's source, for errors; by default the line that builds it.

    Raises:
        ArgumentError: for what is no expression.
    """

    ref: Expr
    value: Expr

    def __post_init__(self) -> None:
        vars(self)["ref"], vars(self)["value"] = as_expr(self.ref), as_expr(self.value)


class TupleWrapper:
    """An expression of several results of known number: indexed and unpacked like a tuple of Python.

    Args:
        tuple_value: the expression, whose value is a tuple.
        size: the number of its fields.

    Examples:
        >>> from pullback import relay
        >>> parts = relay.split(relay.var("x", shape=(2, 6)), 3, axis=1)
        >>> first, *others = parts
        >>> len(parts), first.index, [part.index for part in others]
        (3, 0, [1, 2])
    """

    def __init__(self, tuple_value: Expr, size: int) -> None:
        self.tuple_value, self.size = tuple_value, size
        self._items: dict[int, TupleGetItem] = {}

    def astuple(self) -> Expr:
        """The expression itself."""
        return self.tuple_value

    def astext(self) -> str:
        return self.tuple_value.astext()

    def __getitem__(self, index: int) -> TupleGetItem:
        if not -self.size <= index < self.size:
            raise IndexError(f"the expression has {self.size} results, there is none at {index}")
        index %= self.size
        return self._items.setdefault(index, TupleGetItem(self.tuple_value, index))

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Any:
        return (self[i] for i in range(self.size))
