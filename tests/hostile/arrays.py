"""Arrays of every kind in every place that takes one."""

from __future__ import annotations

import copy
import functools
import importlib.util
import operator
import random
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pullback
from pullback.relax.training import Trainer
from tests.errors.models import LABELS, X, Y, classifier_trainer, counting_trainer, linear_trainer
from tests.errors.test_errors import digest
from tests.hostile.oracle import Finding, Own, outcome, shown

Make = Callable[[np.ndarray, random.Random], Any]


# ---- the same values in another form: these must be taken ------------------------------------------------------------


def strided(a: np.ndarray, _: Any) -> np.ndarray:
    wide = np.full(tuple(2 * n for n in a.shape), 7, a.dtype)
    wide[tuple(slice(None, None, 2) for _ in a.shape)] = a
    return wide[tuple(slice(None, None, 2) for _ in a.shape)]


def read_only(a: np.ndarray, _: Any) -> np.ndarray:
    copy = a.copy()
    copy.setflags(write=False)
    return copy


def unaligned(a: np.ndarray, _: Any) -> np.ndarray:
    raw = np.zeros(a.nbytes + 1, "uint8")
    raw[1:] = np.frombuffer(a.tobytes(), "uint8")
    return raw[1:].view(a.dtype).reshape(a.shape)


def reversed_twice(a: np.ndarray, _: Any) -> np.ndarray:
    return np.ascontiguousarray(a[::-1])[::-1] if a.ndim else a.copy()


class Subclass(np.ndarray):
    """A subclass that changes nothing."""


class Exporter:
    """An array of another library."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.array if dtype is None else self.array.astype(dtype)


class DLPack:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def wider(a: np.ndarray, _: Any) -> np.ndarray:
    return a.astype({"f": "float64", "i": "int64", "b": "bool"}.get(a.dtype.kind, a.dtype))


def of_torch(a: np.ndarray, r: random.Random) -> Any:
    if importlib.util.find_spec("torch") is None:
        return a
    import torch

    return torch.from_numpy(a.copy())


def with_gradient(a: np.ndarray, r: random.Random) -> Any:
    made = of_torch(a, r)
    return made.requires_grad_() if a.dtype.kind == "f" and made is not a else made


BENIGN: list[Make] = [
    lambda a, _: a.copy(), strided, read_only, unaligned, reversed_twice, wider, of_torch,
    lambda a, _: np.asfortranarray(a), lambda a, _: a.copy().view(Subclass), lambda a, _: Exporter(a),
    lambda a, _: DLPack(a.copy()), lambda a, _: pullback.tensor(a, copy=True), lambda a, _: a.tolist(),
    lambda a, _: np.broadcast_to(a, (2, *a.shape))[1],
]  # fmt: skip


# ---- others: these may be refused, and if they are taken, then as NumPy reads them -----------------------------------


def ragged(a: np.ndarray, r: random.Random) -> Any:
    rows = a.tolist()
    return (
        [*rows[:-1], rows[-1][:-1] if isinstance(rows[-1], list) else [rows[-1]]] if isinstance(rows, list) else [rows]
    )


def nested(a: np.ndarray, r: random.Random) -> Any:
    value: Any = a.tolist()
    for _ in range(r.choice([1, 30, 70, 1000, 100_000])):
        value = [value]
    return value


def endless(a: np.ndarray, _: Any) -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def raising(a: np.ndarray, r: random.Random) -> Any:
    """An object whose special methods raise."""

    def fail(*_: Any, **__: Any) -> Any:
        raise Own("this object refuses")

    names = r.sample(["__array__", "__dlpack__", "__len__", "__getitem__", "__iter__", "__float__", "__index__"], 3)
    return type("Raising", (), dict.fromkeys(names, fail))()


def lying(a: np.ndarray, r: random.Random) -> Any:
    """An object that gives anything for an array."""
    answer = r.choice([None, 7, "text", a.tolist(), object(), np.zeros((3, 3)), [a, a]])
    return type("Lying", (), {"__array__": lambda *_, **__: answer})()


def structured(a: np.ndarray, _: Any) -> np.ndarray:
    return a.view([("field", a.dtype)])


def holder(a: np.ndarray) -> np.ndarray:
    """An array that holds an array."""
    result = np.empty(2, object)
    result[0] = a
    return result


def masked(a: np.ndarray, r: random.Random) -> Any:
    return np.ma.masked_array(a, np.array([r.random() < 0.3 for _ in range(a.size)]).reshape(a.shape))


def filled(a: np.ndarray, r: random.Random) -> np.ndarray:
    dtype = r.choice(["float64", "float32", "float16", "int64", "uint64", "int8"])
    value = r.choice([np.nan, np.inf, -np.inf, 1e300, -1e39, 1e-320, 2**53 + 1, -1, 0.1, 0, 2**63 - 1, -(2**63)])
    result = a.astype(dtype)
    with np.errstate(all="ignore"):
        result.reshape(-1)[r.randrange(max(1, a.size)) : None if r.random() < 0.5 else 1] = np.array(value).astype(
            dtype
        )
    return result


def another_shape(a: np.ndarray, r: random.Random) -> np.ndarray:
    forms: list[Callable[[], np.ndarray]] = [
        lambda: a[..., :-1] if a.ndim else a[None], lambda: a[:0] if a.ndim else a[None][:0], lambda: a[None],
        lambda: a.T, lambda: a.reshape(-1), lambda: a[..., None], lambda: np.concatenate([a.reshape(-1),
        a.reshape(-1)]),
        lambda: np.broadcast_to(a.reshape(-1)[:1], (2**r.randrange(10, 60),)),
        lambda: np.broadcast_to(a, (2**r.randrange(1, 50), *a.shape)), lambda: a.reshape(-1)[0], lambda: np.zeros((0,
        2**40)),
        lambda: np.zeros((1,) * 40),
    ]  # fmt: skip
    return r.choice(forms)()


def another_dtype(a: np.ndarray, r: random.Random) -> Any:
    names = "float16 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128 object U3 S3"
    names += " datetime64[s] timedelta64[s] V4 >f4 >f8 >i8 longdouble"
    name = r.choice(names.split(" "))
    with np.errstate(all="ignore"):
        return np.zeros(a.shape, name) if name.startswith(("V", "datetime", "timedelta")) else a.astype(name)


OTHERS = [
    None, "text", b"bytes", "", 0, 1.5, True, 10**400, 1j, (), [], {}, set(), {"x": 1}, range(4), object(), Ellipsis,
    slice(3), np.float32, float, "float32", [[None]], [["a", "b"]], [{}], Path("/x"), types, operator.add,
]  # fmt: skip

HOSTILE: list[Make] = [
    with_gradient, ragged, nested, endless, raising, lying, structured, masked, filled, filled, another_shape,
    another_shape,
    another_dtype, another_dtype, lambda a, r: r.choice(OTHERS), lambda a, _: (row for row in a.reshape(-1)),
    lambda a, _: iter(a.reshape(-1)), lambda a, _: memoryview(a.tobytes()), lambda a, _: a.tobytes(),
    lambda a, _: holder(a), lambda a, r: [a.tolist()] * r.randrange(3), lambda a, _: lambda: a,
     lambda a, _: [pullback.tensor(v) for v in a.reshape(-1)],
    lambda a, _: np.empty(a.shape, object), lambda a, _: a.astype("float64").astype(object),
]  # fmt: skip


# ---- the oracle ------------------------------------------------------------------------------------------------------


@functools.cache
def made(kind: str) -> tuple[Trainer, Trainer, Trainer]:
    make = {"linear": linear_trainer, "counting": counting_trainer, "classifier": classifier_trainer}[kind]
    return make(), make(), make()


def trainers(kind: str) -> tuple[Trainer, Trainer]:
    """A trainer, and one that is given the same values as plain arrays; they begin anew each time."""
    subject, twin, first = made(kind)
    for trainer in (subject, twin):
        trainer._values, trainer._epochs = first._values.copy(), first._epochs
        trainer._generator = copy.deepcopy(first._generator)
    return subject, twin


def plain(value: Any, like: np.ndarray, rounds: bool = False) -> np.ndarray | None:
    """The value as NumPy reads it, if it has the shape and, exactly or where it ``rounds`` as floats, the values of an
    array like that; else None."""
    try:
        if isinstance(value, (np.ma.MaskedArray, str, bytes)):
            return None
        if isinstance(value, DLPack):
            value = value.array
        is_plain = isinstance(value, (list, tuple, int, float, bool, range))
        array = np.asarray(value, like.dtype if is_plain and like.dtype.kind == "f" else None)
        if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
            return None
        with np.errstate(all="ignore"):
            cast = array.astype(like.dtype)
            exact = bool(((cast.astype(array.dtype) == array) | ((array != array) & (cast != cast))).all())
            exact |= rounds and like.dtype.kind == "f" and bool((np.isfinite(cast) == np.isfinite(array)).all())
        return np.ascontiguousarray(cast).reshape(array.shape) if exact else None
    except Exception:
        return None


def case(r: random.Random, folder: Path) -> None:
    kind = r.choice(["linear", "counting", "classifier"])
    subject, twin = trainers(kind)
    right = {"x": X, "y": LABELS if kind == "classifier" else Y, "w": np.asarray(subject.params["w"]).copy()}
    places = {
        "update": "xy", "fit": "xy", "evaluate": "xy", "predict": "x", "load_params": "w", "load_list": "w",
        "tensor": "x",
        "copyfrom": "w", "call": "x",
    }  # fmt: skip
    method = r.choice(list(places))
    place = r.choice(places[method])
    is_benign = r.random() < 0.3
    given = r.choice(BENIGN if is_benign else HOSTILE)(right[place], r)

    def run(trainer: Trainer, value: Any) -> Any:
        x, y, w = (value if place == name else right[name] for name in "xyw")
        if method == "update":
            return trainer.update(x, y)
        if method == "fit":
            return trainer.fit(x, y, batch_size=4, shuffle=False, verbose=0).epochs[0].loss
        if method == "evaluate":
            return trainer.evaluate(x, y).loss
        if method == "predict":
            return trainer.predict(x)
        if method == "load_params":
            return trainer.load_params({"w": w})
        if method == "load_list":
            return trainer.load_params([w, *list(trainer.params.values())[1:]])
        if method == "tensor":
            return pullback.tensor(x)
        if method == "copyfrom":
            return pullback.tensor(np.zeros((3, 2), "float32")).copyfrom(w)
        return trainer.vm["backbone"](x, *trainer.params.values(), *trainer.states.values())

    if isinstance(given, list) and method in ("update", "fit", "evaluate", "predict"):
        is_benign = False  # there, a list holds several inputs
    what = f"{kind} {method}({place} = {shown(given)})"
    found, error = outcome(what, lambda: run(subject, given))
    if error is not None:
        if is_benign and not (
            method in ("call", "copyfrom") and given is not None and _other_type(given, right[place])
        ):
            raise Finding(f"{what}: refused, though it is right: {error}")
    elif method != "tensor":
        is_list = isinstance(given, (list, tuple)) and method in ("update", "fit", "evaluate", "predict")
        rounds = method in ("update", "fit", "evaluate", "predict")
        reference = plain(given[0] if is_list and len(given) == 1 else given, right[place], rounds)
        if reference is None and not (method == "call" or method == "copyfrom"):
            raise Finding(f"{what}: taken, though it does not have the declared values")
        if reference is not None:
            expected = run(twin, reference)
            if not _same(found, expected):
                raise Finding(f"{what}: gives {shown(found)}, the same values as a plain array {shown(expected)}")
    if digest(subject) != digest(twin):
        raise Finding(f"{what}: the trainer {'changed by a failed call' if error else 'is not what it has to be'}")


def _other_type(given: Any, like: np.ndarray) -> bool:
    """Calls of functions and copies do not convert as trainers do."""
    return getattr(given, "dtype", None) != like.dtype


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return (a is None and b is None) or np.asarray(a).tobytes() == np.asarray(b).tobytes()
