"""Orders: the places of the elements of lines in the order of their values.

Each element becomes a whole number, its *key*, which is the greater, the later the element comes. In short lines each
element counts how many come before it. Long ones are sorted by the bytes of the keys, the least significant first
(Knuth, The Art of Computer Programming, 5.2.5):

    for each byte: count how often it has each value; so it is known where those with a value begin
                   move each element there, one behind the other, which leaves equal ones in their order

A byte that is the same in all keys takes no move. The first few of many are kept in a list while all elements pass.
"""

from __future__ import annotations

from collections.abc import Callable

from pullback.relax.op.kernel import Lines
from pullback.tir import (
    Allocate,
    Buffer,
    For,
    If,
    Let,
    PrimExpr,
    Stmt,
    Var,
    as_expr,
    call,
    cast,
    const,
    loop,
    select,
    seq,
    store,
)
from pullback.tir.expr import FLOATS

_VALUES = 256  # of a byte
_SHORT = 96  # elements of a line from which on bytes are counted


def key_of(value: PrimExpr, descending: bool) -> PrimExpr:
    """An unsigned number of 32 or 64 bits: the greater, the later the value stands in the order. Zeros are equal, and
    NaN is greater than all numbers."""
    wide = value.dtype in ("float64", "int64", "uint64")
    kind, sign = ("uint64", 63) if wide else ("uint32", 31)
    top = const(1 << sign, kind)
    if value.dtype in FLOATS:
        number = cast("float64" if wide else "float32", value)
        bits = call("reinterpret", select(number.equal(0.0), const(0.0, number.dtype), number), dtype=kind)
        negative = (bits >> sign).equal(const(1, kind))
        key = select(call("isnan", number), ~const(0, kind), select(negative, ~bits, bits | top))
    elif value.dtype.startswith("uint"):
        key = cast(kind, value)
    else:
        key = call("reinterpret", cast("int64" if wide else "int32", value), dtype=kind) ^ top
    return ~key if descending else key


def fill_order(data: Buffer, out: Buffer, lines: Lines, descending: bool) -> Stmt:
    """``out`` becomes the places of the elements of each line in the order of their values; equal ones keep theirs."""
    if isinstance(lines.length, int) and lines.length < _SHORT:
        return _by_ranks(data, out, lines, lines.length, descending)
    return _by_bytes(data, out, lines, descending)


def fill_first(data: Buffer, out: Buffer, lines: Lines, count: int, descending: bool) -> Stmt:
    """``out`` becomes the places of the first ``count`` elements of each line in that order."""
    if isinstance(lines.length, int) and count * count <= lines.length:
        return _by_list(data, out, lines, count, descending)
    order = Buffer("all", data.shape, out.dtype, "workspace")
    own = Lines(tuple(out.shape), lines.axis)

    def cut(number: PrimExpr) -> Stmt:
        return loop("k", count, lambda k: store(out, own.place(number, k), order[lines.place(number, k)]))

    return Allocate(order, seq(fill_order(data, order, lines, descending), lines.each(cut)))


def _key_type(data: Buffer) -> str:
    return "uint64" if data.dtype in ("float64", "int64", "uint64") else "uint32"


def _by_ranks(data: Buffer, out: Buffer, lines: Lines, n: int, descending: bool) -> Stmt:
    keys, ranks = Buffer("keys", (n,), _key_type(data), "local"), Buffer("ranks", (n,), "int32", "local")

    def line(number: PrimExpr) -> Stmt:
        def read(k: PrimExpr) -> Stmt:
            key = key_of(data[lines.place(number, k)], descending)
            return seq(store(keys, (k,), key), store(ranks, (k,), const(0, "int32")))

        def count(k: PrimExpr) -> Stmt:
            own, other = Var("own", keys.dtype), Var("other")
            later = (own < keys[other]) | (own.equal(keys[other]) & (k < other))
            more = store(ranks, (other,), ranks[other] + select(later, const(1, "int32"), const(0, "int32")))
            return Let(own, keys[k], For(other, as_expr(n), more, "vectorized"))

        def write(k: PrimExpr) -> Stmt:
            return store(out, lines.place(number, cast("int64", ranks[k])), cast(out.dtype, k))

        return Allocate(keys, Allocate(ranks, seq(*(loop("k", n, step) for step in (read, count, write)))))

    return lines.each(line)


def _by_list(data: Buffer, out: Buffer, lines: Lines, count: int, descending: bool) -> Stmt:
    keys, places = Buffer("keys", (count,), _key_type(data), "local"), Buffer("places", (count,), out.dtype, "local")
    rank, own = Buffer("rank", (1,), "int64", "local"), Lines(tuple(out.shape), lines.axis)

    def line(number: PrimExpr) -> Stmt:
        def insert(key: PrimExpr, k: PrimExpr, size: PrimExpr) -> Stmt:
            """Put an element behind those of the first ``size`` that are not greater; the last may drop out."""
            r = Var("r")

            def compare(p: PrimExpr) -> Stmt:
                return store(rank, (0,), rank[0] + select(keys[p] <= key, as_expr(1), as_expr(0)))

            def shift(turn: PrimExpr) -> Stmt:
                p = size - 1 - turn
                return seq(store(keys, (p + 1,), keys[p]), store(places, (p + 1,), places[p]))

            put = seq(loop("turn", size - r, shift), store(keys, (r,), key), store(places, (r,), cast(out.dtype, k)))
            return seq(store(rank, (0,), as_expr(0)), loop("p", size, compare), Let(r, rank[0], put))

        def take(k: PrimExpr, body: Callable[[PrimExpr], Stmt]) -> Stmt:
            key = Var("key", keys.dtype)
            return Let(key, key_of(data[lines.place(number, k)], descending), body(key))

        def later(turn: PrimExpr) -> Stmt:
            k = turn + count
            return take(k, lambda key: If(key < keys[count - 1], insert(key, k, as_expr(count - 1))))

        body = seq(
            loop("k", count, lambda k: take(k, lambda key: insert(key, k, k))),
            loop("turn", as_expr(lines.length) - count, later),
            loop("k", count, lambda k: store(out, own.place(number, k), places[k])),
        )
        return Allocate(keys, Allocate(places, Allocate(rank, body)))

    return lines.each(line)


def _by_bytes(data: Buffer, out: Buffer, lines: Lines, descending: bool) -> Stmt:
    n = as_expr(lines.length)
    kind, index = _key_type(data), "int32" if isinstance(lines.length, int) and lines.length < 2**31 else "int64"
    count = 8 if kind == "uint64" else 4
    shape = (2, lines.count, lines.length)  # before and after a byte, by turns
    order, keys = Buffer("order", shape, index, "workspace"), Buffer("keys", shape, kind, "workspace")
    places = Buffer("places", (count * _VALUES,), index, "local")  # of each value of each byte
    turn, total = Buffer("turn", (1,), "int64", "local"), Buffer("total", (1,), index, "local")

    def place_of(key: PrimExpr, byte: int) -> PrimExpr:
        return cast("int64", (key >> const(8 * byte, key.dtype)) & const(_VALUES - 1, key.dtype)) + byte * _VALUES

    def line(number: PrimExpr) -> Stmt:
        def read(k: PrimExpr) -> Stmt:
            key, start = Var("key", keys.dtype), (as_expr(0), number, k)
            counts = [store(places, (place_of(key, b),), places[place_of(key, b)] + 1) for b in range(count)]
            body = seq(store(keys, start, key), store(order, start, cast(index, k)), *counts)
            return Let(key, key_of(data[lines.place(number, k)], descending), body)

        def by(byte: int) -> Stmt:
            at = Var("at")

            def begin(value: PrimExpr) -> Stmt:
                own, place = Var("own", index), value + byte * _VALUES
                add = seq(store(places, (place,), total[0]), store(total, (0,), total[0] + own))
                return Let(own, places[place], add)

            def move(k: PrimExpr) -> Stmt:
                key, value, place = Var("key", keys.dtype), Var("value"), Var("place", index)
                to = 1 - at, number, cast("int64", place)
                body = seq(
                    store(places, (value,), place + 1),
                    store(keys, to, key),
                    store(order, to, order[at, number, k]),
                )
                body = Let(value, place_of(key, byte), Let(place, places[value], body))
                return Let(key, keys[at, number, k], body)

            work = seq(
                store(total, (0,), const(0, index)),
                loop("value", _VALUES, begin),
                loop("k", n, move),
                store(turn, (0,), 1 - at),
            )
            differ = cast("int64", places[place_of(keys[at, number, as_expr(0)], byte)]) < n
            return Let(at, turn[0], If(differ, work))

        result = loop("k", n, lambda k: store(out, lines.place(number, k), cast(out.dtype, order[turn[0], number, k])))
        moves = seq(*(by(b) for b in range(count)))
        body = seq(
            loop("value", count * _VALUES, lambda v: store(places, (v,), const(0, index))),
            store(turn, (0,), as_expr(0)),
            loop("k", n, read),
            moves if isinstance(lines.length, int) else If(n > 0, moves),
            result,
        )
        return Allocate(places, Allocate(turn, Allocate(total, body)))

    return Allocate(order, Allocate(keys, lines.each(line)))
