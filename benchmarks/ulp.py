"""How exact elementary functions are in float32: the machine code on every one of the 2³² inputs.

The reference is float64: NumPy's, whose error is less than a 2⁻²⁹th of an ulp of float32, and for erf our own float64
code, which is compared with `math.erf` at points of its own. An error counts in ulps of the reference rounded to
float32; where that is infinite or NaN the result must be the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks import report

BAR = 2.0
CHUNK = 1 << 22
Function = Callable[[np.ndarray], np.ndarray]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


REFERENCES: dict[str, Function | None] = {
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "erf": None, "sigmoid": _sigmoid,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos,
}  # fmt: skip


@dataclass
class Worst:
    """The largest error seen, where, and how many special results were wrong."""

    ulps: float = 0.0
    at: float = math.nan
    count: int = 0
    wrong: int = 0


def run(names: list[str], stride: int) -> bool:
    """Measure and print; whether every function keeps the bar. ``stride``: every so many inputs are tried."""
    report.heading("errors of elementary functions in float32")
    rows, kept = [], True
    with np.errstate(all="ignore"):
        for name in names:
            worst = Worst()
            with report.console.status(f"{name}: starting") as status:
                for done, part in _measured(name, stride):
                    worst = part
                    status.update(f"{name}: {done:.0%}, {worst.ulps:.2f} ulp at {worst.at:.9g}")
            good = worst.ulps <= BAR and not worst.wrong
            kept &= good
            verdict = report.verdict(good)
            rows.append([name, f"{worst.count:,}", f"{worst.ulps:.3f}", f"{worst.at:.9g}", str(worst.wrong), verdict])
    columns = ["function", "inputs", "worst error, ulp", "at", "wrong inf, NaN", f"<= {BAR:g}"]
    report.TableText("float32 machine code against float64", columns, rows).show()
    return kept


def _measured(name: str, stride: int) -> Iterator[tuple[float, Worst]]:
    """Chunk after chunk: what share of the inputs is done, and the worst so far."""
    ours = _compiled(name, "float32")
    reference = REFERENCES[name] or _checked_erf()
    worst, total = Worst(), -(-(1 << 32) // stride)
    for start in range(0, total, CHUNK):
        bits = np.arange(start, start + CHUNK, dtype=np.uint64) * stride
        x = (bits & 0xFFFFFFFF).astype(np.uint32).view(np.float32)
        _compare(worst, x, ours(x), reference(x.astype(np.float64)))
        worst.count = min(total, start + CHUNK)  # behind the last one the first come again
        yield min(1.0, (start + CHUNK) / total), worst


def _compare(worst: Worst, x: np.ndarray, got: np.ndarray, exact: np.ndarray) -> None:
    rounded = exact.astype(np.float32)
    finite = np.isfinite(rounded) & np.isfinite(got)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    error = np.abs(got.astype(np.float64) - exact) / np.spacing(np.abs(rounded)).astype(np.float64)
    error = np.where(finite, error, 0)
    place = int(np.argmax(error))
    # A result that is rounded to the largest number rather than to infinity, or the other way, is one ulp off.
    largest = np.finfo(np.float32).max
    at_the_edge = (np.abs(np.nan_to_num(got)) == largest) & (np.abs(np.nan_to_num(rounded)) == largest)
    worst.wrong += int(np.count_nonzero(~finite & ~same & ~at_the_edge))
    if error[place] > worst.ulps:
        worst.ulps, worst.at = float(error[place]), float(x[place])


def _compiled(name: str, dtype: str) -> Function:
    """The op's machine code on a chunk."""
    import pullback
    from pullback import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((CHUNK,), dtype))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(getattr(relax.op, name)(x)))
    main = pullback.compile(builder.get())["main"]
    return lambda values: main(values).numpy()


def _checked_erf() -> Function:
    """Our float64 erf, once it agrees with the C library's."""
    erf = _compiled("erf", "float64")
    points = np.concatenate(
        [np.linspace(-7, 7, CHUNK - 2000), np.geomspace(1e-300, 1, 1000), -np.geomspace(1e-300, 1, 1000)]
    )
    values, sample = erf(points), np.arange(0, CHUNK, 97)
    expected = np.array([math.erf(v) for v in points[sample]])
    error = np.abs(values[sample] - expected) / np.spacing(np.abs(expected))
    if error.max() > 8:
        raise RuntimeError(
            f"erf in float64 is {error.max():.1f} ulp from the C library's at {points[sample][error.argmax()]}"
        )
    return erf
