"""Evaluates scalar expressions of the loop IR in generated code.

Two ways: :meth:`Expressions.value` gives a :class:`Value`; :meth:`Expressions.poly` gives integer index arithmetic as a
polynomial, so that memory accesses know their stride and comparisons of indices fold.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pullback.codegen.arithmetic import Arithmetic
from pullback.codegen.builder import FunctionBuilder
from pullback.codegen.poly import Atom, Poly
from pullback.codegen.values import Value, constant, is_bfloat16, wrap
from pullback.ir.errors import InternalError
from pullback.target import Target
from pullback.tir import math as expansions
from pullback.tir import pairs, philox
from pullback.tir.expr import (
    COMPARISONS,
    Binary,
    BufferLoad,
    Call,
    Cast,
    FloatImm,
    IntImm,
    PrimExpr,
    Select,
    Var,
    is_float,
    is_half,
)
from pullback.tir.ranges import LARGEST_SIZE

_COMBINE: dict[str, Callable[[Poly, Poly], Poly]] = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}
_WIDE = 1 << 33
_INT32 = (-(2**31), 2**31 - 1)
_EXACT = ("abs", "floor", "ceil", "trunc", "round")  # of a number with few digits has no more of them
_SIGN = {"lt": (-1,), "le": (-1, 0), "gt": (1,), "ge": (0, 1), "eq": (0,), "ne": (-1, 1)}


@dataclass(frozen=True)
class Lanes:
    """The vectorized loop that code is emitted for: ``active`` is how many lanes count, if not all and known."""

    count: int
    atom: Atom
    mask: Value | None = None
    active: int | None = None


class _Known(NamedTuple):
    """A polynomial that is known of an expression. ``depth``: of the innermost variable in it. ``block``: how many
    blocks had ended when instructions were written of which it has the results."""

    node: PrimExpr
    poly: Poly
    depth: int
    block: int | None


class Expressions(Arithmetic):
    """Evaluates expressions; ``env`` says what each variable is: a polynomial (int64) or a value."""

    def __init__(self, builder: FunctionBuilder, target: Target, may_round_products: bool = False) -> None:
        super().__init__(builder)
        self.target = target
        self.has_relaxed = target.abilities.relaxed_fma
        self.may_round_products = may_round_products and self.has_relaxed
        self.env: dict[Var, Poly | Value] = {}
        self.lanes: Lanes | None = None
        self.is_alone = False  # these are all lanes of their loop: what is the same in all is used once
        self._memo: dict[int, Value] = {}
        self._depths: dict[Var, int] = {}  # of the variables bound inside: 1 for the first one that was, and so on
        self._polys: dict[int, _Known] = {}  # known while the variables in them are bound
        self._of_depth: list[list[int]] = [[]]  # the keys of those polynomials whose innermost variable has that depth
        self._late_polys: dict[int, Poly] = {}  # of values in memory too
        self._depth = 0  # of the innermost variable that the polynomial which is being computed has
        self._asked = 0  # how often a value has become part of a polynomial
        self._divided_here = 0  # and how often a quotient or an extreme has, which is known until a block ends
        self._orders = itertools.count()
        self._atoms: dict[str, Atom] = {}

    def load(self, node: BufferLoad) -> Value:
        raise NotImplementedError

    def load_both(self, low: PrimExpr, high: PrimExpr) -> Value | None:
        """Two elements of 16 bits as one of 32, where they are neighbours in memory."""
        raise NotImplementedError

    def place_of_pair(self, node: PrimExpr) -> str | None:
        """The address of a pair that lies in memory and is the same in all lanes."""
        raise NotImplementedError

    # ---- environment

    def atom(
        self,
        ref: str,
        bounds: tuple[int, int] | None = None,
        width: int = 0,
        quotient: tuple[Poly, int] | None = None,
    ) -> Atom:
        known = self._atoms.get(ref)
        if known is None:  # a value is one atom, so that it cancels itself
            known = self._atoms[ref] = Atom(ref, next(self._orders), bounds, width, quotient=quotient)
        return known

    @property
    def inside(self) -> Lanes:
        """The vectorized loop that code is emitted for, where there certainly is one."""
        assert self.lanes is not None
        return self.lanes

    def forget(self) -> None:
        """Values may have changed: memory was written, or blocks end in which they were computed."""
        self._memo, self._late_polys = {}, {}

    @contextlib.contextmanager
    def bound(self, var: Var, meaning: Poly | Value) -> Iterator[None]:
        """``var`` means that inside. Polynomials that do not have it stay known."""
        inside: list[int] = []
        saved = self._memo, self._late_polys
        self._memo, self._late_polys = {}, {}
        self._depths[var] = len(self._of_depth)
        self._of_depth.append(inside)
        self.env[var] = meaning
        try:
            yield
        finally:
            del self.env[var], self._depths[var]
            self._memo, self._late_polys = saved
            self._of_depth.pop()
            for key in inside:
                self._polys.pop(key, None)

    # ---- index arithmetic

    def poly(self, node: PrimExpr | int) -> Poly:
        """An int64 expression as a polynomial."""
        key = id(node)
        known = self._polys.get(key)
        if known is not None and (known.block is None or known.block == self.builder.ended):
            if known.depth > self._depth:
                self._depth = known.depth
            if known.block is not None:
                self._divided_here += 1
            return known.poly
        if isinstance(node, int):
            return Poly.of(node)
        late = self._late_polys.get(key)
        if late is not None:
            self._asked += 1
            return late
        outer, asked, divided = self._depth, self._asked, self._divided_here
        self._depth = 0
        poly = self._poly(node)
        if self._asked == asked:
            self._polys[key] = _Known(
                node, poly, self._depth, self.builder.ended if self._divided_here > divided else None
            )
            self._of_depth[self._depth].append(key)
        else:
            self._late_polys[key] = poly
        self._depth = max(self._depth, outer)
        return poly

    def _poly(self, node: PrimExpr) -> Poly:
        if isinstance(node, IntImm):
            return Poly.of(node.value)
        if node.dtype != "int64":
            return self.poly_of(self.cast(self.value(node), "int64"))
        if isinstance(node, Var):
            meaning = self._meaning(node)
            self._depth = self._depths.get(node, 0)
            return meaning if isinstance(meaning, Poly) else self.poly_of(meaning)
        if isinstance(node, Binary):
            if node.kind in ("add", "sub", "mul"):
                result = _COMBINE[node.kind](self.poly(node.a), self.poly(node.b))
                return result if result.const is None else Poly.of(wrap(result.const, "int64"))
            if node.kind in ("floordiv", "floormod"):
                divisor = self.poly(node.b).const
                if divisor is not None and divisor > 0:
                    return self._divided(node.kind, self.poly(node.a), divisor)
            if node.kind in ("min", "max"):
                return self._extreme_poly(node)
        if isinstance(node, Select):
            condition = self.value(node.condition)
            if condition.const is not None:
                self._depth = len(self._of_depth) - 1
                return self.poly(node.a if condition.const else node.b)
        return self.poly_of(self._value(node))

    def _extreme_poly(self, node: Binary) -> Poly:
        """The smaller or larger of two indices: one of them if the ranges decide, else a value whose range is known."""
        a, b = self.poly(node.a), self.poly(node.b)
        is_exact = a.is_exact and b.is_exact
        bounds = (a - b).range if is_exact else None
        if bounds is not None and (bounds[1] <= 0 or bounds[0] >= 0):
            return a if (bounds[1] <= 0) == (node.kind == "min") else b
        known = self._known_lanes(a - b) if is_exact else None
        if known is not None:
            pick = min if node.kind == "min" else max
            return b + self.pattern([pick(d, 0) for d in known])
        value = self.binary(node.kind, self.poly_value(a), self.poly_value(b))
        self._divided_here += 1
        (a_low, a_high), (b_low, b_high) = a.bounds, b.bounds
        pick = min if node.kind == "min" else max
        low, high = pick(a_low, b_low), pick(a_high, b_high)
        if value.lanes == 1:
            return Poly.of(self.atom(value.ref, (low, high)))
        return Poly.of(self.atom(value.ref, (min(low, -_WIDE), max(high, _WIDE)), 64))  # lanes that are not narrowed

    def _divided(self, kind: str, numerator: Poly, divisor: int) -> Poly:
        """Division by a positive constant: exact parts are taken out, and ``n % d`` is ``n - d * (n // d)``."""
        if not numerator.is_exact:
            quotient = self._quotient(numerator, divisor)
            return quotient if kind == "floordiv" else numerator - quotient.scaled(divisor)
        quotient, rest, factor = numerator.divide(divisor)
        if divisor > factor:
            quotient = self._quotient(quotient, divisor // factor)
        if kind == "floordiv":
            return quotient
        if divisor == factor:
            return rest
        return numerator - quotient.scaled(divisor)

    def _quotient(self, numerator: Poly, divisor: int) -> Poly:
        """The atom ``numerator // divisor``."""
        bounds = numerator.range if numerator.is_exact else None
        split = numerator.split_values(self.inside.count) if numerator.varies and bounds is not None else None
        if split is not None:
            uniform, const = split[0].split_const()
            if all(c % divisor == 0 for c in uniform.terms.values()):
                exact = Poly({m: c // divisor for m, c in uniform.terms.items()})
                return exact + self.pattern([(v + const) // divisor for v in split[1]])
        value = self.poly_value(numerator, narrow=True)
        self._divided_here += 1
        by = constant(divisor, value.dtype)
        if bounds is not None and bounds[0] >= 0:
            result = self.op("udiv", value.dtype, value, by)
        else:
            result = self.binary("floordiv", value, by)
        limits = (bounds[0] // divisor, bounds[1] // divisor) if bounds is not None else None
        if result.lanes == 1:
            known = (numerator, divisor) if numerator.is_exact else None
            return Poly.of(self.atom(self.cast(result, "int64").ref, limits, quotient=known))
        return Poly.of(self.atom(result.ref, limits, 32 if result.dtype == "int32" else 64))

    def _known_lanes(self, poly: Poly) -> list[int] | None:
        """The value in each lane, where it differs between lanes and all are known numbers."""
        split = poly.split_values(self.inside.count) if poly.varies else None
        if split is None or split[0].const is None:
            return None
        return [v + split[0].const for v in split[1]]

    def pattern(self, values: Sequence[int]) -> Poly:
        """Numbers, one for each lane, as a polynomial: of the lane number, if they rise by equal steps."""
        step = values[1] - values[0]
        if all(v == values[0] + k * step for k, v in enumerate(values)):
            return Poly.of(self.inside.atom).scaled(step) + Poly.of(values[0])
        bounds = min(values), max(values)
        width = 32 if Poly.of(bounds[0]).within(*_INT32) and Poly.of(bounds[1]).within(*_INT32) else 64
        literal = "<" + ", ".join(f"i{width} {v}" for v in values) + ">"
        return Poly.of(Atom(literal, next(self._orders), bounds, width, tuple(values)))

    def poly_of(self, value: Value) -> Poly:
        """An integer value as a polynomial: a number or one atom."""
        if value.const is not None:
            self._depth = len(self._of_depth) - 1
            return Poly.of(int(value.const))
        self._asked += 1
        return Poly.of(self.atom(value.ref, None, 64 if value.lanes > 1 else 0))

    def scalar(self, poly: Poly) -> str:
        """The operand (i64) of a polynomial that is the same in all lanes."""
        terms, const = poly.split_const()
        total: str | None = None
        for monomial, coefficient in terms.ordered():
            flag = " nsw" if Poly({monomial: coefficient}).within(-LARGEST_SIZE, LARGEST_SIZE) else ""
            ref = monomial[0].ref
            for atom in monomial[1:]:
                ref = self.builder.pure(f"mul i64 {ref}, {atom.ref}")
            if coefficient != 1:
                ref = self.builder.pure(f"mul{flag} i64 {ref}, {wrap(coefficient, 'int64')}")
            total = ref if total is None else self.builder.pure(f"add{flag} i64 {total}, {ref}")
        const = wrap(const, "int64")
        if total is None:
            return str(const)
        return self.builder.pure(f"add i64 {total}, {const}") if const else total

    def vector(self, poly: Poly) -> Value:
        """A polynomial that differs between lanes, as a vector of int32 if its range says that it fits, else int64."""
        fits = poly.within(*_INT32) and all(Poly({m: c}).within(*_INT32) for m, c in poly.terms.items())
        dtype = "int32" if fits else "int64"
        uniform: dict[tuple[Atom, ...], int] = {}
        total: Value | None = None
        for monomial, coefficient in poly.ordered():
            varying = [a for a in monomial if a.is_lane or a.width]
            if not varying:
                uniform[monomial] = coefficient
                continue
            scale = Poly({tuple(a for a in monomial if a not in varying): wrap(coefficient, "int64")})
            term = self._lane_factor(varying[0], dtype, scale.const if len(varying) == 1 else None)
            for atom in varying[1:]:
                term = self.binary("mul", term, self._lane_factor(atom, dtype, None))
            if not (len(varying) == 1 and varying[0].is_lane and scale.const is not None):
                term = self.binary("mul", term, self._narrowed(scale, dtype))
            total = term if total is None else self.binary("add", total, term)
        assert total is not None  # some atom varies
        return self.binary("add", self._narrowed(Poly(uniform), dtype), total) if uniform else total

    def _lane_factor(self, atom: Atom, dtype: str, step: int | None) -> Value:
        if atom.is_lane:
            return self.iota(self.inside.count, dtype, 1 if step is None else step)
        assert atom.ref is not None
        value = Value(atom.ref, f"int{atom.width}", self.inside.count)
        return self.cast(value, dtype)

    def _narrowed(self, poly: Poly, dtype: str) -> Value:
        """A uniform polynomial as a scalar of int64 or int32."""
        const = poly.const
        value = Value(self.scalar(poly), "int64", 1, const)
        return self.cast(value, dtype)

    def poly_value(self, poly: Poly, narrow: bool = False) -> Value:
        """A polynomial as an int64 value; ``narrow`` allows int32 lanes."""
        if poly.varies:
            value = self.vector(poly)
            return value if narrow else self.cast(value, "int64")
        return Value(self.scalar(poly), "int64", 1, poly.const)

    # ---- values

    def value(self, node: PrimExpr) -> Value:
        """The value of an expression; an expression object is evaluated once per stretch of straight-line code."""
        if isinstance(node, (IntImm, FloatImm)):
            return constant(node.value, node.dtype)
        known = self._memo.get(id(node))
        if known is None:
            known = self._memo[id(node)] = self._value(node)
        return known

    def _value(self, node: PrimExpr) -> Value:
        if isinstance(node, Var):
            meaning = self._meaning(node)
            return meaning if isinstance(meaning, Value) else self.cast(self.poly_value(meaning), node.dtype)
        if isinstance(node, BufferLoad):
            return self.load(node)
        if isinstance(node, Binary):
            return self._binary(node)
        if isinstance(node, Select):
            return self.select(self.value(node.condition), self.value(node.a), self.value(node.b))
        if isinstance(node, Cast):
            if node.value.dtype == "int64" and _is_index(node.value):  # few CPUs convert vectors of int64
                return self.converted(self.poly_value(self.poly(node.value), narrow=True), node.type)
            return self.narrowed(self.value(node.value), node.type, _is_number_of(node.type, node.value))
        if isinstance(node, Call):
            return self._call(node)
        raise InternalError(f"cannot evaluate {type(node).__name__}")

    def _meaning(self, var: Var) -> Poly | Value:
        if var not in self.env:
            raise InternalError(f"the variable {var.name} is not bound here")
        return self.env[var]

    def _binary(self, node: Binary) -> Value:
        if node.a.dtype == "int64" and _is_index(node):
            if node.kind in COMPARISONS:
                return self._compare_indices(node)
            if node.kind in ("add", "sub", "mul", "floordiv", "floormod", "min", "max"):
                poly = self._indexed(node)
                if poly is not None:
                    return self.poly_value(poly)
        return self.combined(node.kind, self.value(node.a), self.value(node.b))

    def combined(self, kind: str, a: Value, b: Value) -> Value:
        """Any binary kind on any dtype."""
        dtype = a.dtype
        if is_half(dtype):
            wide = self.combined(kind, self.converted(a, "float32"), self.converted(b, "float32"))
            if wide.dtype == "bool":
                return wide
            return self.narrowed(wide, dtype, is_exact=kind in ("max", "min"))
        if is_float(dtype):
            if kind == "truncmod":
                return self.intrinsic_value("fmod", [a, b])
            template = expansions.float_binary(kind, dtype)
            if template is not None:
                return self.inline(template, a, b)
        return self.binary(kind, a, b)

    def _indexed(self, node: Binary) -> Poly | None:
        """The polynomial of a Binary of index arithmetic, unless it is a division that polynomials can't do."""
        if node.kind in ("floordiv", "floormod") and not (self.poly(node.b).const or 0) > 0:
            return None
        return self.poly(node)

    def _compare_indices(self, node: Binary) -> Value:
        """A comparison of two indices, folded where their ranges decide it, in 32 bits per lane where those do."""
        a, b = self.poly(node.a), self.poly(node.b)
        if not (a.is_exact and b.is_exact):
            return self.compare(node.kind, self.value(node.a), self.value(node.b))
        difference = a - b
        bounds = difference.range
        if bounds is not None:
            possible = {s for s in (-1, 0, 1) if _reachable(s, *bounds)}
            holds = possible & set(_SIGN[node.kind])
            if not holds or holds == possible:
                return constant(bool(holds), "bool")
        known = self._known_lanes(difference)
        if known is not None:
            truths = [(d > 0) - (d < 0) in _SIGN[node.kind] for d in known]
            literal = ", ".join(f"i1 {str(t).lower()}" for t in truths)
            return constant(truths[0], "bool") if len(set(truths)) == 1 else Value(f"<{literal}>", "bool", len(truths))
        if difference.varies and bounds is not None:
            value = self.poly_value(difference, narrow=True)
            return self.compare(node.kind, value, constant(0, value.dtype))
        return self.compare(node.kind, self.value(node.a), self.value(node.b))

    def converted(self, value: Value, dtype: str) -> Value:
        """A cast to or from any dtype; half types go through float32."""
        source = value.dtype
        if source == dtype:
            return value
        if is_half(source):
            if source == "float16" and self.target.abilities.half:
                wide = self._widened(value)
            else:
                wide = self.inline(expansions.half_to_float(source), self.reinterpret(value, "uint16"))
            return self.cast(wide, dtype) if not is_half(dtype) else self.converted(wide, dtype)
        if not is_half(dtype):
            return self.cast(value, dtype)
        if source == "float64":
            value = self.inline(expansions.round_to_odd(), value)
        elif source != "float32":
            value = self.cast(value, "float32")
        if self.target.abilities.half if dtype == "float16" else self.target.abilities.pair_dot:
            return self._rounded(value, dtype)
        return self.reinterpret(self.inline(expansions.float_to_half(dtype), value), dtype)

    def narrowed(self, value: Value, dtype: str, is_exact: bool) -> Value:
        """A value of any type in another one; ``is_exact``: it is a number of that type, which is a half type."""
        if is_exact and dtype == "bfloat16" and value.dtype == "float32":
            return self.reinterpret(self.inline(expansions.upper_half(), value), dtype)
        return self.converted(value, dtype)

    def _widened(self, value: Value) -> Value:
        """float32 from float16 by the CPU's own instruction."""
        half = _llvm_half("half", value.lanes)
        bits = self.builder.pure(f"bitcast {value.typed} to {half}")
        return self.convert("fpext", _Raw(bits, half, value.lanes), "float32")

    def _rounded(self, value: Value, dtype: str) -> Value:
        """float32 rounded to a half type by the CPU's own instruction; x86's to bfloat16 takes subnormals for 0."""
        half = _llvm_half("half" if dtype == "float16" else "bfloat", value.lanes)
        rounded = self.builder.pure(f"fptrunc {value.typed} to {half}")
        return self.convert("bitcast", _Raw(rounded, half, value.lanes), dtype)

    def _call(self, node: Call) -> Value:
        if node.name == pairs.PAIR:
            both = self.load_both(*node.args)
            if both is not None:
                return both
        if node.name == pairs.DOT and self.is_alone:
            place = self.place_of_pair(node.args[0])
            if place is not None:
                return self.pair_dot_in_memory(place, *(self.value(a) for a in node.args[1:]))
        args = [self.value(a) for a in node.args]
        if node.name == "reinterpret":
            return self.reinterpret(args[0], node.type)
        if node.name == philox.INTRINSIC:
            return self.inline(philox.template(node.type), *args)
        if node.name == pairs.PAIR:
            return self.inline(pairs.template(node.name, True), *(self.reinterpret(a, "uint16") for a in args))
        if node.name == pairs.DOT:
            if self.target.abilities.pair_dot:
                return self.pair_dot(self.target.arch, *args)
            return self.inline(pairs.template(node.name, self.target.abilities.fma), *args)
        dtype = args[0].dtype
        if is_half(dtype):
            wide = "float64" if node.name == "fma" else "float32"
            parts = [self.converted(a, wide) for a in args]
            if node.name == "fma":  # the product is exact in double
                result = self.binary("add", self.binary("mul", parts[0], parts[1]), parts[2])
            else:
                result = self.intrinsic_value(node.name, parts)
            return result if result.dtype == "bool" else self.narrowed(result, dtype, is_exact=node.name in _EXACT)
        return self.intrinsic_value(node.name, args)

    def intrinsic_value(self, name: str, args: list[Value]) -> Value:
        """An intrinsic on values that are not half."""
        result = self.call(name, args)
        if result is not None:
            return result
        expansion = expansions.expand(name, args[0].dtype, self.target.abilities.fma)
        if expansion is None:
            return self.libm(name, args)
        if expansion.parts is not None and self.target.abilities.scale:
            return self.scaled(*(self.inline(part, *args) for part in expansion.parts))
        common = self.inline(expansion.value, *args)
        if expansion.rare is None:
            return common
        return self._guarded(self.inline(expansion.rare, *args), common, name, args)

    def _guarded(self, rare: Value, common: Value, name: str, args: list[Value]) -> Value:
        """``common``, but libm's value in the lanes where ``rare`` holds, at a branch's cost when there are none."""
        condition = rare
        if rare.lanes > 1:
            reduced = f"call i1 @llvm.vector.reduce.or.v{rare.lanes}i1({rare.typed})"
            condition = Value(self.builder.pure(reduced), "bool")
        if condition.const == 0:
            return common
        frozen = self.builder.pure(f"freeze {condition.typed}")
        slow, after, before = self.builder.label("rare"), self.builder.label("common"), self.builder.block
        self.builder.branch_if(frozen, slow, after)
        self.builder.start(slow)
        with self.builder.scope():
            patched = self.select(rare, self.libm(name, args), common)
        last = self.builder.block
        self.builder.branch(after)
        self.builder.start(after)
        ref = self.builder.fresh(f"phi {common.type} [ {common.ref}, %{before} ], [ {patched.ref}, %{last} ]")
        return Value(ref, common.dtype, common.lanes)

    def inline(self, template: expansions.Template, *args: Value) -> Value:
        """The value of an expansion at these arguments."""
        saved = self._memo, self._late_polys, self._polys, self._of_depth, self._depth
        self._memo, self._late_polys, self._polys, self._of_depth = {}, {}, {}, [[]]
        for var, value in zip(template.params, args, strict=True):
            self.env[var] = value
        try:
            return self.value(template.body)
        finally:
            for var in template.params:
                self.env.pop(var, None)
            self._memo, self._late_polys, self._polys, self._of_depth, self._depth = saved


class _Raw(Value):
    """An operand of an LLVM type, in the place of a dtype, that no dtype has in registers (``half``)."""

    __slots__ = ()

    @property
    def type(self) -> str:
        return self.dtype


def _llvm_half(element: str, lanes: int) -> str:
    return element if lanes == 1 else f"<{lanes} x {element}>"


def _is_number_of(dtype: str, node: PrimExpr) -> bool:
    """Whether a value surely is a number of bfloat16, ``dtype``, too, so that it need not be rounded."""
    if dtype != "bfloat16":
        return False
    if isinstance(node, FloatImm):
        return is_bfloat16(node.value)
    if isinstance(node, Cast):
        return node.value.dtype == dtype
    if isinstance(node, Select):
        return _is_number_of(dtype, node.a) and _is_number_of(dtype, node.b)
    if isinstance(node, Binary):
        return node.kind in ("max", "min") and _is_number_of(dtype, node.a) and _is_number_of(dtype, node.b)
    return isinstance(node, Call) and node.name in _EXACT and all(_is_number_of(dtype, a) for a in node.args)


def _reachable(sign: int, low: int, high: int) -> bool:
    return low < 0 if sign < 0 else high > 0 if sign > 0 else low <= 0 <= high


def _is_index(node: PrimExpr) -> bool:
    """Whether an int64 expression (or a comparison of two) is of variables and constants alone, nothing loaded."""
    if isinstance(node, (Var, IntImm)):
        return node.dtype == "int64"
    if isinstance(node, Binary):
        return _is_index(node.a) and _is_index(node.b)
    return False
