"""A sample through both: values and adjoints, in float64 to 1e-9, in float32 to rounding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import torch

import pullback
from pullback.ir.errors import DTypeError, UserError
from pullback.ir.module import IRModule
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Call, Expr, Tuple, TupleGetItem, Var
from pullback.relax.interpreter import evaluate, value_info
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import TupleStructInfo
from pullback.relax.transform.gradient import Gradient
from tests.relax.op.op_db.database import Sample, integer_samples, samples
from tests.relax.op.op_db.table import TABLE, Skip

LIMIT = 8  # samples of an entry that are compared, unless all are
NATIVE = 1  # of them in machine code too
INTEGERS = 2  # samples in int64
FLOAT64 = 1e-9
COARSE = {"nn.functional.hardsigmoid": 1e-7}  # PyTorch's gradient has 1/6 in float32
ULPS = 8.0  # of the largest number, in float32
TIMES = 4.0  # PyTorch's own error in float32


@dataclass
class Report:
    """What was seen of an entry."""

    compared: int = 0
    adjoints: int = 0  # samples of which gradients were compared
    native: int = 0
    integers: int = 0
    called: set[str] = field(default_factory=set)  # our ops
    skipped: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


@dataclass
class Problem:
    """A sample in one dtype: PyTorch's tensors and results, and our function of the same."""

    sample: Sample
    tensors: list[torch.Tensor]
    results: list[torch.Tensor]
    cotangents: list[torch.Tensor | None]  # of results that are differentiable
    adjoints: list[torch.Tensor]  # of the tensors that are differentiable
    kept: list[int]  # the results that we have too

    @property
    def values(self) -> list[np.ndarray]:
        """The arguments of ours: tensors, then cotangents."""
        return [_array(t.detach()) for t in (*self.tensors, *(c for c in self.cotangents if c is not None))]

    @property
    def wanted(self) -> list[int]:
        return [k for k, t in enumerate(self.tensors) if t.requires_grad]

    @property
    def differentiable(self) -> bool:
        return bool(self.wanted) and any(c is not None for c in self.cotangents)


def problem(sample: Sample, dtype: torch.dtype, kept: Sequence[bool], rng: np.random.Generator) -> Problem:
    """PyTorch's side, for cotangents drawn from ``rng``; results that are not ``kept`` get none."""
    tensors = sample.in_dtype(dtype)
    results = sample.call(tensors)
    places = [k for k, keep in enumerate(kept) if keep]
    assert len(kept) == len(results), f"{len(kept)} results, but PyTorch has {len(results)}"
    results = [results[k] for k in places]
    cotangents = [_cotangent(r, rng) if r.requires_grad else None for r in results]
    pairs = [(r, c) for r, c in zip(results, cotangents, strict=True) if c is not None]
    wanted = [t for t in tensors if t.requires_grad]
    adjoints: list[torch.Tensor] = []
    if pairs and wanted:
        rs, cs = zip(*pairs, strict=True)
        found = torch.autograd.grad(rs, wanted, cs, allow_unused=True)
        adjoints = [
            torch.zeros_like(t) if g is None or g._is_zerotensor() else g for t, g in zip(wanted, found, strict=True)
        ]
    results = [r.detach().float() if r.dtype == torch.bfloat16 else r.detach() for r in results]  # NumPy has none
    return Problem(sample, tensors, results, cotangents, adjoints, places)


def _array(tensor: torch.Tensor) -> np.ndarray:
    """As NumPy's, which has no bfloat16 of its own."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def _cotangent(result: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    drawn = np.asarray(rng.uniform(-1.5, 1.5, tuple(result.shape))).astype(np.float32)
    return torch.from_numpy(drawn).to(result.dtype)


def translated(ours: Any, sample: Sample, variables: Sequence[Var]) -> list[Expr | None]:
    """Our results, None for those of PyTorch's that we don't have."""
    args, kwargs = sample.arguments(list(variables))
    result = ours(*args, **kwargs)
    if isinstance(result, Expr) and isinstance(result.struct_info, TupleStructInfo):
        result = list(result)
    return list(result) if isinstance(result, (list, tuple)) else [result]


def module_of(ours: Any, problems: Sequence[Problem]) -> IRModule:
    """``main`` of all arguments: (Σ results · cotangents, results…), with its adjoint where there is one."""
    params = [[Var(f"x{n}_{k}", value_info(v)) for k, v in enumerate(p.values)] for n, p in enumerate(problems)]
    builder = BlockBuilder()
    with builder.function("main", [v for group in params for v in group]):
        results: list[Expr] = []
        total: Expr | None = None
        for group, p in zip(params, problems, strict=True):
            found = [builder.emit(r) for r in translated(ours, p.sample, group[: len(p.tensors)]) if r is not None]
            weights = iter(group[len(p.tensors) :])
            for r, c in zip(found, p.cotangents, strict=True):
                if c is not None and p.differentiable:
                    term = ops.astype(ops.sum(r * next(weights)), "float64")
                    total = term if total is None else total + term
            results += found
        builder.emit_func_output(Tuple((*([] if total is None else [total]), *results)))
    if total is None:
        return builder.get()
    return Gradient(
        "main", [g[k] for g, p in zip(params, problems, strict=True) if p.differentiable for k in p.wanted]
    )(builder.get())


def run(module: IRModule, values: list[np.ndarray], native: bool) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Results and adjoints."""
    name = "main_adjoint" if "main_adjoint" in module else "main"
    found = pullback.compile(module).function(name)(*values) if native else evaluate(module, name, values)
    adjoints: list[Any] = []
    if name == "main_adjoint":
        (_, *results), adjoints = found
    else:
        results = list(found)
    to_array = (lambda a: a.numpy()) if native else np.asarray
    return [to_array(r) for r in results], [to_array(a) for a in adjoints]


def close(
    what: str, got: np.ndarray, exact: torch.Tensor, theirs: torch.Tensor, rtol: float, terms: float = 0.0
) -> None:
    """In float64 (or exactly, of integers); in float32 the error is at most TIMES theirs and some ulps of the largest
    number, or of the ``terms`` that it is computed from."""
    b = exact.numpy()
    assert got.shape == b.shape, f"{what} has the shape {got.shape}, PyTorch's {b.shape}"
    if b.dtype.kind in "biu":
        np.testing.assert_array_equal(got, b, what)
        return
    a, finite = got.astype(np.float64), np.abs(b[np.isfinite(b)])
    largest = float(finite.max(initial=0.0))
    if got.dtype == np.float64 and theirs.dtype == torch.float64:
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * 1e-3 * (1 + largest), err_msg=what)
        return
    with np.errstate(invalid="ignore"):
        error = np.abs(theirs.double().numpy() - b)
    own = float(error[np.isfinite(error)].max(initial=0.0))
    allowed = TIMES * own + ULPS * 2.0**-23 * max(largest, terms, 2.0**-20)
    np.testing.assert_allclose(a, b, rtol=0, atol=allowed, err_msg=f"{what} in float32 (PyTorch's error: {own:.2g})")


def check(name: str, pairs: Sequence[tuple[Problem, Problem]], native: bool) -> None:
    """``pairs``: of each sample the problem in float64, and that to compare: the same, or in float32."""
    ours, rtol = TABLE[name][1], COARSE.get(name, FLOAT64)
    values = [v for _, p in pairs for v in p.values]
    results, adjoints = run(module_of(ours, [p for _, p in pairs]), values, native)
    r, a = iter(results), iter(adjoints)
    for exact, p in pairs:
        try:
            for k, (e, t) in enumerate(zip(exact.results, p.results, strict=True)):
                close(f"result {k}", next(r), e, t, rtol)
            if p.differentiable:
                terms = max((float(c.abs().max()) for c in p.cotangents if c is not None and c.numel()), default=0.0)
                for k, e, t in zip(p.wanted, exact.adjoints, p.adjoints, strict=True):
                    close(f"adjoint {k}", next(a), e, t, rtol, terms)
        except AssertionError as error:
            raise AssertionError(f"{p.sample}{' native' if native else ''}: {_short(str(error))}") from None


def _short(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.strip())[:900]


def compare(name: str, everything: bool = False) -> Report:
    """All samples of an entry, or LIMIT of them, evenly spaced; NATIVE of them in machine code, in one compilation."""
    _, ours = TABLE[name]
    report = Report()
    passed: list[tuple[Problem, Problem]] = []
    for sample in _chosen(list(samples(name)), everything):
        if report.compared >= LIMIT and not everything:
            break
        try:
            pair = _problems(ours, sample, report.called)
        except Skip as reason:
            report.skipped[str(reason)] += 1
            continue
        except Exception as error:
            report.failures.append(_told(error, sample))
            continue
        try:
            for p in pair:
                check(name, [(pair[0], p)], native=False)
            passed.append(pair)
            report.compared += 1
            report.adjoints += pair[0].differentiable
        except Exception as error:
            report.failures.append(_told(error, sample))
    for chosen in (passed[-NATIVE:],) if passed else ():
        try:
            check(name, [(p[0], q) for p in chosen for q in p], native=True)
            report.native += len(chosen)
        except Exception as error:
            report.failures.append(_told(error, chosen[0][0].sample))
    _compare_integers(name, report, everything)
    return report


def _compare_integers(name: str, report: Report, everything: bool) -> None:
    """The results for integers, where ours takes any."""
    for sample in _chosen(list(integer_samples(name)), everything):
        if report.integers >= INTEGERS and not everything:
            break
        try:
            _, p = _problems(TABLE[name][1], sample, report.called)
            check(name, [(p, p)], native=False)
            report.integers += 1
        except Skip as reason:
            report.skipped[str(reason)] += 1
        except DTypeError:
            report.skipped["integers"] += 1
            return
        except Exception as error:
            report.failures.append(f"integers: {_told(error, sample)}")


def _told(error: Exception, sample: Sample) -> str:
    return str(error) if isinstance(error, AssertionError) else f"{sample}: {type(error).__name__}: {error}"


def _chosen(found: list[Sample], everything: bool) -> Iterator[Sample]:
    """At first evenly spaced ones, then the others: those after them that we cannot express may be many."""
    step = 1 if everything else max(1, len(found) // (3 * LIMIT))
    yield from found[::step]


def _problems(ours: Any, sample: Sample, called: set[str]) -> tuple[Problem, Problem]:
    """PyTorch's side in float64 and in float32, once ours has been asked, whose ops are added to ``called``. Raises
    Skip where we have no such call."""
    if any(t.is_complex() for t in sample.tensors):
        raise Skip("complex numbers")
    if any(t.layout != torch.strided for t in sample.tensors):
        raise Skip("sparse tensors")
    variables = [Var(f"x{k}", value_info(t.numpy())) for k, t in enumerate(sample.tensors)]
    try:
        results = translated(ours, sample, variables)
    except UserError as error:
        if "outside a tensor of rank 0" in str(error):
            raise Skip("an axis of a tensor of rank 0") from None
        raise
    called |= _names_of(results)
    kept = [r is not None for r in results]
    exact, single = (problem(sample, dtype, kept, np.random.default_rng(0)) for dtype in (torch.float64, torch.float32))
    return exact, single


def _names_of(exprs: Sequence[Any]) -> set[str]:
    """The ops that these expressions call."""
    names: set[str] = set()
    for expr in exprs:
        if isinstance(expr, TupleGetItem):
            names |= _names_of([expr.tuple_value])
        elif isinstance(expr, Call):
            names |= {expr.op.short, *_names_of(expr.args)}  # type: ignore[union-attr]
    return names
