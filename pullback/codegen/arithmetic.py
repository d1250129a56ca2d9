"""Operations on values: what every kind of the loop IR's scalars becomes in LLVM.

No fast-math flags; nothing traps: divisors of zero, shifts by too much and casts out of range have defined results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback.codegen.builder import FunctionBuilder, Globals
from pullback.codegen.values import Value, constant, memory_type, register_type, suffix, wrap
from pullback.ir.errors import InternalError
from pullback.tir.expr import bits, is_float, is_integer, is_signed

_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INT_OPS = {"add": "add", "sub": "sub", "mul": "mul", "bitand": "and", "bitor": "or", "bitxor": "xor"}
_BOOL_OPS = {"add": "or", "mul": "and", "sub": "xor", "min": "and", "max": "or", "and": "and", "or": "or",
             "bitand": "and", "bitor": "or", "bitxor": "xor"}  # fmt: skip
_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_FOLD: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "min": min, "max": max,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "bitand": lambda a, b: a & b, "bitor": lambda a, b: a | b,
    "bitxor": lambda a, b: a ^ b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip

# Intrinsics that LLVM knows for vectors: NumPy's round is half to even, which is rint in the default rounding mode.
LLVM_UNARY = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint", "abs": "fabs"}


# The dot product of pairs of bfloat16, for each family of CPUs: lanes -> LLVM's name.
PAIR_DOTS = {
    "x86_64": {n: f"llvm.x86.avx512bf16.dpbf16ps.{32 * n}" for n in (4, 8, 16)},
    "aarch64": {4: "llvm.aarch64.neon.bfdot.v4f32.v8bf16"},
}


# x · 2ⁿ on x86: by dtype, letters in LLVM's names and the lanes that they have.
_SCALES = {"float32": ("ps", (4, 8, 16)), "float64": ("pd", (2, 4, 8))}
_WASM_VECTOR = 128  # bits


class Arithmetic:
    """Emits operations on :class:`Value` through a builder. A scalar meeting a vector is splat."""

    def __init__(self, builder: FunctionBuilder) -> None:
        self.builder = builder
        self.has_relaxed = False  # LLVM takes instructions whose results for NaN and zeros are the engine's choice
        self.may_round_products = False  # of multiply-adds

    # ---- lanes

    def splat(self, value: Value, lanes: int) -> Value:
        """The value in each of the lanes."""
        if value.lanes == lanes:
            return value
        element, vector = value.type, register_type(value.dtype, lanes)
        if value.const is not None:
            return Value(f"splat ({value.typed})", value.dtype, lanes)
        first = self.builder.pure(f"insertelement {vector} poison, {element} {value.ref}, i64 0")
        shuffle = f"shufflevector {vector} {first}, {vector} poison, <{lanes} x i32> zeroinitializer"
        return Value(self.builder.pure(shuffle), value.dtype, lanes)

    def unify(self, *values: Value) -> list[Value]:
        lanes = max(v.lanes for v in values)
        return [self.splat(v, lanes) for v in values]

    def iota(self, lanes: int, dtype: str, step: int = 1) -> Value:
        """0, step, 2*step, …"""
        element = register_type(dtype)
        return Value(f"<{', '.join(f'{element} {i * step}' for i in range(lanes))}>", dtype, lanes)

    def op(self, text: str, dtype: str, *values: Value) -> Value:
        """``text type a, b``: an instruction whose operands have one type."""
        values = tuple(self.unify(*values))
        operands = ", ".join(v.ref for v in values)
        return Value(self.builder.pure(f"{text} {values[0].type} {operands}"), dtype, values[0].lanes)

    def intrinsic(self, name: str, *values: Value) -> Value:
        """``llvm.name`` on operands of one type."""
        values = tuple(self.unify(*values))
        first = values[0]
        operands = ", ".join(v.typed for v in values)
        text = f"call {first.type} @llvm.{name}.{suffix(first.dtype, first.lanes)}({operands})"
        return Value(self.builder.pure(text), first.dtype, first.lanes)

    # ---- binary

    def binary(self, kind: str, a: Value, b: Value) -> Value:
        """Any kind but the float floordiv and floormod, which are expansions; never on half types."""
        dtype = a.dtype
        if not is_float(dtype):
            folded = self._fold(kind, a, b)
            if folded is not None:
                return folded
        if kind in _FLOAT_COMPARE:
            return self.compare(kind, a, b)
        if dtype == "bool":
            if kind not in _BOOL_OPS:
                raise InternalError(f"{kind} is not defined on bool")
            return self.op(_BOOL_OPS[kind], dtype, a, b)
        if kind in ("min", "max"):
            return self._extreme(kind, a, b)
        if is_float(dtype):
            if kind not in _FLOAT_OPS:
                raise InternalError(f"{kind} is not defined on {dtype}")
            return self.op(_FLOAT_OPS[kind], dtype, a, b)
        if kind in _INT_OPS:
            return self.op(_INT_OPS[kind], dtype, a, b)
        if kind in ("shl", "shr"):
            return self._shift(kind, a, b)
        return self._divide(kind, a, b)

    def _fold(self, kind: str, a: Value, b: Value) -> Value | None:
        """Integer and bool constants, and neutral elements."""
        dtype = a.dtype
        if a.const is not None and b.const is not None and kind in _FOLD:
            result = _FOLD[kind](a.const, b.const)
            return constant(result, "bool" if kind in _FLOAT_COMPARE else dtype)
        for x, y, swapped in ((a, b, False), (b, a, True)):
            if y.const is None:
                continue
            if y.const == 0 and (kind in ("add", "or", "bitor", "bitxor") or (kind == "sub" and not swapped)):
                return x
            if y.const == 0 and kind in ("mul", "and", "bitand"):
                return y
            if y.const == 1 and (kind == "mul" or (dtype == "bool" and kind == "and")):
                return x
            if y.const == 1 and dtype == "bool" and kind == "or":
                return y
        return None

    def compare(self, kind: str, a: Value, b: Value) -> Value:
        if is_float(a.dtype):
            return self.op(f"fcmp {_FLOAT_COMPARE[kind]}", "bool", a, b)
        sign = "" if kind in ("eq", "ne") else "s" if is_signed(a.dtype) else "u"
        return self.op(f"icmp {sign}{kind}", "bool", a, b)

    def _extreme(self, kind: str, a: Value, b: Value) -> Value:
        """min and max; for floats NaN wins, whichever operand it is, and of zeros the first."""
        if not is_float(a.dtype):
            return self.intrinsic(("s" if is_signed(a.dtype) else "u") + kind, a, b)
        if a.const == 0:
            better = self.op("fcmp ugt" if kind == "max" else "fcmp ult", "bool", b, a)
            return self.select(better, b, a)
        if a.const is not None:
            a, b = b, a  # compared from the constant's side, one instruction keeps the NaN of the other
        if self.has_relaxed and max(a.lanes, b.lanes) * bits(a.dtype) == _WASM_VECTOR:
            result = self.intrinsic(f"wasm.p{kind}", a, b)
        else:
            better = self.op("fcmp ogt" if kind == "max" else "fcmp olt", "bool", b, a)
            result = self.select(better, b, a)
        if b.const is not None and b.const == b.const:
            return result
        return self.select(self.op("fcmp uno", "bool", b, b), b, result)

    def _shift(self, kind: str, a: Value, b: Value) -> Value:
        """Shifts as if the integers were as wide as needed: too far gives 0, or the sign."""
        width = bits(a.dtype)
        op = "shl" if kind == "shl" else "ashr" if is_signed(a.dtype) else "lshr"
        if b.const is not None and 0 <= b.const < width:
            return self.op(op, a.dtype, a, b)
        inside = self.op("icmp ult", "bool", b, constant(width, b.dtype))
        amount = self.select(inside, b, constant(width - 1, b.dtype))
        shifted = self.op(op, a.dtype, a, amount)
        return shifted if op == "ashr" else self.select(inside, shifted, constant(0, a.dtype))

    def _divide(self, kind: str, a: Value, b: Value) -> Value:
        """Integer division that never traps: x/0 = x%0 = 0, and the most negative number divided by -1 wraps."""
        dtype, signed = a.dtype, is_signed(a.dtype)
        zero, one = constant(0, dtype), constant(1, dtype)
        if b.const == 0:
            return zero
        safe = b
        if b.const is None or b.const == -1:
            if b.const is None:  # lanes that nobody reads may hold poison, and dividing by that is not allowed
                b = Value(self.builder.pure(f"freeze {b.typed}"), dtype, b.lanes)
            bad = self.compare("eq", b, zero)
            negated = self.compare("eq", b, constant(-1, dtype)) if signed else None
            safe = self.select(self.binary("or", bad, negated) if negated is not None else bad, one, b)
        remainder = kind in ("floormod", "truncmod")
        op = ("s" if signed else "u") + ("rem" if remainder else "div")
        result = self.op(op, dtype, a, safe)
        if signed and kind in ("floordiv", "floormod"):
            rest = result if remainder else self.op("srem", dtype, a, safe)
            opposite = self.compare("lt", self.op("xor", dtype, rest, safe), zero)
            adjust = self.binary("and", self.compare("ne", rest, zero), opposite)
            if remainder:
                result = self.select(adjust, self.binary("add", rest, safe), rest)
            else:
                result = self.select(adjust, self.binary("sub", result, one), result)
        if b.const is None or b.const == -1:
            if remainder:  # of 1 stood for of 0 or -1: it is 0 already
                return result
            if negated is not None:
                result = self.select(negated, self.binary("sub", zero, a), result)
            result = self.select(bad, zero, result)
        return result

    # ---- select, casts

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        if condition.const is not None:
            return a if condition.const else b
        if a is b:
            return a
        lanes = max(condition.lanes, a.lanes, b.lanes)
        a, b = self.splat(a, lanes), self.splat(b, lanes)
        if self.has_relaxed and lanes > 1 and is_float(a.dtype):
            return self._select_bits(condition, a, b)
        text = f"select {condition.typed}, {a.typed}, {b.typed}"
        return Value(self.builder.pure(text), a.dtype, lanes)

    def _select_bits(self, condition: Value, a: Value, b: Value) -> Value:
        """Lanes of one vector or the other as integers: of the greater of two floats LLVM makes a relaxed maximum,
        which may be any of them where one is NaN."""
        whole = f"<{a.lanes} x i{bits(a.dtype)}>"
        parts = [self.builder.pure(f"bitcast {v.typed} to {whole}") for v in (a, b)]
        chosen = self.builder.pure(f"select {condition.typed}, {whole} {parts[0]}, {whole} {parts[1]}")
        return Value(self.builder.pure(f"bitcast {whole} {chosen} to {a.type}"), a.dtype, a.lanes)

    def convert(self, op: str, value: Value, dtype: str) -> Value:
        text = f"{op} {value.typed} to {register_type(dtype, value.lanes)}"
        return Value(self.builder.pure(text), dtype, value.lanes)

    def cast(self, value: Value, dtype: str) -> Value:
        """Conversion of value between dtypes, neither of them half: floats saturate to integers and NaN gives 0."""
        source = value.dtype
        if source == dtype:
            return value
        if dtype == "bool":
            zero = constant(0, source)
            return self.op("fcmp une" if is_float(source) else "icmp ne", "bool", value, zero)
        if is_float(source):
            if is_float(dtype):
                return self.convert("fptrunc" if bits(dtype) < bits(source) else "fpext", value, dtype)
            if bits(dtype) < 32 or dtype == "int32":
                return self._saturated(value, dtype)
            name = "fptosi" if is_signed(dtype) else "fptoui"
            kinds = f"{suffix(dtype, value.lanes)}.{suffix(source, value.lanes)}"
            text = f"call {register_type(dtype, value.lanes)} @llvm.{name}.sat.{kinds}({value.typed})"
            return Value(self.builder.pure(text), dtype, value.lanes)
        signed = is_signed(source)
        if is_float(dtype):
            if value.const is not None:
                return constant(float(value.const), dtype)
            return self.convert("sitofp" if signed else "uitofp", value, dtype)
        if value.const is not None:
            return constant(wrap(int(value.const), dtype), dtype)
        width, target = (1 if source == "bool" else bits(source)), bits(dtype)
        if width == target:
            return Value(value.ref, dtype, value.lanes)
        return self.convert("trunc" if target < width else "sext" if signed else "zext", value, dtype)

    def _saturated(self, value: Value, dtype: str) -> Value:
        """A float as an integer of 32 bits or fewer. LLVM's own saturating conversion is one lane after another on
        x86: here what is out of range is brought into it before."""
        source, zero = value.dtype, constant(0.0, value.dtype)
        least = -(1 << bits(dtype) - 1) if is_signed(dtype) else 0
        most = least + (1 << bits(dtype)) - 1
        last = most if source == "float64" or bits(dtype) < 32 else most - 127  # the largest float that is not beyond
        low, high = constant(float(least), source), constant(float(last), source)
        inside = self.select(self.compare("eq", value, value), value, zero)
        inside = self.select(self.compare("lt", inside, low), low, inside)
        inside = self.select(self.compare("gt", inside, high), high, inside)
        result = self.convert("fptosi", inside, "int32")
        if last != most:
            result = self.select(self.compare("gt", value, high), constant(most, "int32"), result)
        return self.cast(result, dtype)

    def reinterpret(self, value: Value, dtype: str) -> Value:
        """The same bits as another dtype."""
        if bits(value.dtype) != bits(dtype) or "bool" in (value.dtype, dtype):
            raise InternalError(f"reinterpret of {value.dtype} as {dtype}")
        if value.type == register_type(dtype, value.lanes):
            return Value(value.ref, dtype, value.lanes)
        return self.convert("bitcast", value, dtype)

    def to_memory(self, value: Value) -> Value:
        """As it is stored: a bool becomes a byte."""
        if value.dtype != "bool":
            return value
        return self.convert("zext", value, "uint8") if value.const is None else constant(value.const, "uint8")

    def from_memory(self, ref: str, dtype: str, lanes: int) -> Value:
        """A value that was loaded with the dtype's memory type."""
        if dtype != "bool":
            return Value(ref, dtype, lanes)
        zero = "zeroinitializer" if lanes > 1 else "0"
        return Value(self.builder.pure(f"icmp ne {memory_type(dtype, lanes)} {ref}, {zero}"), "bool", lanes)

    # ---- intrinsics

    def call(self, name: str, args: list[Value]) -> Value | None:
        """The intrinsics that LLVM has for scalars and vectors; None for the others. Never on half types."""
        first = args[0]
        dtype = first.dtype
        if name == "not":
            if not (is_integer(dtype) or dtype == "bool"):
                raise InternalError(f"not of {dtype}")
            return self.op("xor", dtype, first, constant(1 if dtype == "bool" else -1, dtype))
        if is_float(dtype):
            return self._float_call(name, args)
        if name in ("floor", "ceil", "round", "trunc"):
            return first
        if name in ("isnan", "isinf", "isfinite"):
            return constant(name == "isfinite", "bool")
        if name == "fma":
            return self.binary("add", self.binary("mul", args[0], args[1]), args[2])
        if name == "abs":
            if not is_signed(dtype):
                return first
            return self.intrinsic("smax", first, self.binary("sub", constant(0, dtype), first))
        raise InternalError(f"{name} is not defined on {dtype}: cast to a float first")

    def _float_call(self, name: str, args: list[Value]) -> Value | None:
        first = args[0]
        if name in LLVM_UNARY:
            return self.intrinsic(LLVM_UNARY[name], first)
        if name == "fma":
            return self.intrinsic("fmuladd" if self.may_round_products else "fma", *args)
        if name == "rsqrt":
            return self.op("fdiv", first.dtype, constant(1.0, first.dtype), self.intrinsic("sqrt", first))
        if name in ("multiply_no_nan", "xdivy"):
            kind, factors = ("mul", args) if name == "multiply_no_nan" else ("div", args[:1])
            zero, result = constant(0.0, first.dtype), self.binary(kind, *args)
            for factor in factors:
                result = self.select(self.op("fcmp oeq", "bool", factor, zero), zero, result)
            return result
        if name == "isnan":
            return self.op("fcmp uno", "bool", first, first)
        if name in ("isinf", "isfinite"):
            infinity = constant(float("inf"), first.dtype)
            test = "fcmp oeq" if name == "isinf" else "fcmp olt"
            return self.op(test, "bool", self.intrinsic("fabs", first), infinity)
        return None

    def pair_dot(self, arch: str, a: Value, b: Value, c: Value) -> Value:
        """The products of pairs of bfloat16, added to ``c``, by the instruction of the CPU's family."""
        names = PAIR_DOTS[arch]

        def dot(a: Value, b: Value, c: Value) -> Value:
            pairs = f"<{2 * c.lanes} x bfloat>"
            bits = [self.builder.pure(f"bitcast {v.typed} to {pairs}") for v in (a, b)]
            operands = f"{c.typed}, {pairs} {bits[0]}, {pairs} {bits[1]}"
            return Value(self.builder.pure(f"call {c.type} @{names[c.lanes]}({operands})"), "float32", c.lanes)

        return self._by_instructions(dot, tuple(names), *self.unify(a, b, c))

    def pair_dot_in_memory(self, place: str, b: Value, c: Value) -> Value:
        """The same with one pair for all lanes, at an address: the instruction reads and repeats it itself. LLVM would
        load it by another one, and loads are what limits tiles of one vector."""
        b, c = self.unify(b, c)
        lanes = next(n for n in (4, 8, 16) if n >= c.lanes)
        wide_b, wide_c = (self._lanes_of(v, 0, lanes) for v in (b, c))
        code = f'asm "vdpbf16ps $3{{1to{lanes}}}, $2, $0", "=v,0,v,*m"'
        operands = f"{wide_c.typed}, {wide_b.typed}, ptr elementtype(i32) {place}"
        text = f"call {wide_c.type} {code}({operands}) nounwind memory(argmem: read)"
        return self._lanes_of(Value(self.builder.fresh(text), "float32", lanes), 0, c.lanes)

    def scaled(self, x: Value, n: Value) -> Value:
        """x · 2ⁿ, rounded once, by the instruction of AVX-512; ``n``: whole numbers of the same float."""
        kind, counts = _SCALES[x.dtype]

        def scale(x: Value, n: Value) -> Value:
            width = x.lanes * bits(x.dtype)
            every = f"i{max(8, x.lanes)} -1" + (", i32 4" if width == 512 else "")  # rounded as the CPU is told to
            operands = f"{x.typed}, {n.typed}, {x.type} zeroinitializer, {every}"
            text = f"call {x.type} @llvm.x86.avx512.mask.scalef.{kind}.{width}({operands})"
            return Value(self.builder.pure(text), x.dtype, x.lanes)

        return self._by_instructions(scale, counts, *self.unify(x, n))

    def _by_instructions(self, instruction: Callable[..., Value], counts: Sequence[int], *values: Value) -> Value:
        """The result of an instruction that exists for these numbers of lanes, in ascending order: of halves of more,
        and of wider values of fewer, whose other lanes hold anything."""
        lanes = values[0].lanes
        if lanes > counts[-1]:
            half = lanes // 2
            parts = ([self._lanes_of(v, start, half) for v in values] for start in (0, half))
            low, high = (self._by_instructions(instruction, counts, *part) for part in parts)
            return self._shuffle(low, high, range(lanes))
        wide = next(count for count in counts if count >= lanes)
        return self._lanes_of(instruction(*(self._lanes_of(v, 0, wide) for v in values)), 0, lanes)

    def _lanes_of(self, value: Value, start: int, count: int) -> Value:
        """``count`` lanes from one on; those that do not exist hold anything."""
        if (start, count) == (0, value.lanes):
            return value
        if count == 1:
            return Value(self.builder.pure(f"extractelement {value.typed}, i64 {start}"), value.dtype)
        if value.lanes == 1:
            vector = register_type(value.dtype, count)
            return Value(self.builder.pure(f"insertelement {vector} poison, {value.typed}, i64 0"), value.dtype, count)
        return self._shuffle(value, value, range(start, start + count))

    def _shuffle(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        """These lanes of two vectors."""
        picks = ", ".join(f"i32 {k if k < 2 * a.lanes else 'poison'}" for k in lanes)
        text = f"shufflevector {a.typed}, {b.typed}, <{len(lanes)} x i32> <{picks}>"
        return Value(self.builder.pure(text), a.dtype, len(lanes))

    def libm(self, name: str, args: list[Value]) -> Value:
        """A libm function in every lane, evaluated in double; a small function of the module does the lanes."""
        shared, count = self.builder.shared, len(args)
        shared.declare(name, f"declare double @{name}({', '.join(['double'] * count)}) nounwind memory(none)")
        args = self.unify(*args)
        dtype, lanes, result = args[0].dtype, args[0].lanes, args[0].type
        if lanes == 1:
            wide = [self.cast(a, "float64") for a in args]
            text = f"call double @{name}({', '.join(a.typed for a in wide)})"
            return self.cast(Value(self.builder.pure(text, speculate=False), "float64"), dtype)
        helper = f"pb.{name}.{suffix(dtype, lanes)}"
        if helper not in shared.definitions:
            shared.define(helper, _lanewise(helper, name, count, dtype, lanes))
        text = f"call {result} @{helper}({', '.join(a.typed for a in args)})"
        return Value(self.builder.pure(text, speculate=False), dtype, lanes)


def _lanewise(helper: str, name: str, count: int, dtype: str, lanes: int) -> str:
    """The text of an internal function that applies libm's ``name`` to every lane."""
    shared_builder = FunctionBuilder("", Globals())
    vector, element = register_type(dtype, lanes), register_type(dtype)
    result = "poison"
    for lane in range(lanes):
        parts = [shared_builder.fresh(f"extractelement {vector} %x{i}, i64 {lane}") for i in range(count)]
        if dtype != "float64":
            parts = [shared_builder.fresh(f"fpext {element} {p} to double") for p in parts]
        value = shared_builder.fresh(f"call double @{name}({', '.join(f'double {p}' for p in parts)})")
        if dtype != "float64":
            value = shared_builder.fresh(f"fptrunc double {value} to {element}")
        result = shared_builder.fresh(f"insertelement {vector} {result}, {element} {value}, i64 {lane}")
    shared_builder.effect(f"ret {vector} {result}")
    params = ", ".join(f"{vector} %x{i}" for i in range(count))
    shared_builder.header = f"define internal {vector} @{helper}({params}) noinline memory(none)"
    return shared_builder.text()
