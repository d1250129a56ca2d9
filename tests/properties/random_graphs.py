"""Random graphs as pullback functions and PyTorch programs: 3 to 12 ops with reuse, broadcasts, tuples, integers, sizes
0 and 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.ir import IRModule, Op
from pullback.relax import BlockBuilder, Function, TensorStructInfo, Tuple, TupleGetItem, Var, const
from pullback.te.random import bits_array

Step = Callable[[list[Any]], Any]
# Before rounding: sums and products of round numbers are no ties then, on which the last bit of PyTorch's square root
# decides (on some CPUs it is not the nearest).
OFF_TIES = 0.21456789


@dataclass
class Graph:
    """A graph with its inputs. ``torch_steps`` compute value after value from the list of values so far. ``rounds``: a
    value passes through float32, so that differences of the loss over small steps say nothing."""

    module: IRModule
    inputs: list[np.ndarray]
    torch_steps: list[Step] = field(default_factory=list)
    weights: list[np.ndarray] = field(default_factory=list)
    rounds: bool = False

    def torch_loss(self, torch: Any, tensors: Sequence[Any]) -> Any:
        """The loss as PyTorch computes it."""
        values = list(tensors)
        for step in self.torch_steps:
            values.append(step(values))
        return sum((values[k] * torch.from_numpy(w)).sum() for k, w in self.uses())

    def uses(self) -> list[tuple[int, np.ndarray]]:
        first = len(self.inputs)
        return [(first + k, w) for k, w in enumerate(self.weights)]


def training_step(module: IRModule) -> IRModule:
    """``step(x…, m…) -> (loss, new x…, new m…)`` of a module with ``main_adjoint``: momentum, all of it donated."""
    adjoint = module["main_adjoint"]
    params = [Var(p.name, p.struct_info) for p in adjoint.params]
    momenta = [Var(f"m_{p.name}", p.struct_info) for p in adjoint.params]
    builder = BlockBuilder()
    builder.begin([v.name for v in (*params, *momenta)])
    with builder.dataflow():
        result = builder.emit(module.get_global_var("main_adjoint")(*params))
        loss, gradients = builder.emit(TupleGetItem(result, 0)), builder.emit(TupleGetItem(result, 1))
        new = [builder.emit(m * 0.5 + TupleGetItem(gradients, k)) for k, m in enumerate(momenta)]
        updated = [builder.emit_output(x - m * 0.01) for x, m in zip(params, new, strict=True)]
        outputs = [builder.emit_output(loss), *updated, *map(builder.emit_output, new)]
    body = builder.finish(Tuple(tuple(outputs)))
    both = (*params, *momenta)
    result = module.copy()
    result["step"] = Function(both, body, None, {"donate": tuple(range(len(both)))})
    return result


class Maker:
    """Draws one graph from a seed. ``drops``: some ops draw random numbers."""

    def __init__(self, seed: int, torch: Any = None, drops: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.torch, self.drops = torch, drops
        self.sizes = [
            int(s)
            for s in self.rng.choice([0, 1, 2, 3, 5, 17, 33], size=3, p=[0.04, 0.3, 0.25, 0.17, 0.12, 0.08, 0.04])
        ]
        self.builder = BlockBuilder()
        self.values: list[Any] = []
        self.steps: list[Step] = []
        self.rounds = False

    def shape(self) -> tuple[int, ...]:
        rank = int(self.rng.integers(0, 4))
        return tuple(int(self.rng.choice([1, s], p=[0.2, 0.8])) for s in self.rng.permutation(self.sizes)[:rank])

    def pick(self) -> int:
        """A value, the recent ones more often."""
        n = len(self.values)
        return int(n - 1 - min(n - 1, self.rng.geometric(0.35) - 1))

    def make(self) -> Graph:
        inputs = [self.rng.standard_normal(self.shape()) for _ in range(int(self.rng.integers(1, 4)))]
        params = [Var(f"x{k}", TensorStructInfo(a.shape, "float64")) for k, a in enumerate(inputs)]
        self.values = list(params)
        with self.builder.function("main", params):
            with self.builder.dataflow():
                for _ in range(int(self.rng.integers(3, 13))):
                    self.step()
                made = self.values[len(params) :]
                weights = [self.rng.standard_normal(v.shape) for v in made]
                total: Any = const(0.0, "float64")
                for value, weight in zip(made, weights, strict=True):
                    total = total + Op.get("sum")(value * const(weight, "float64"))
                out = self.builder.emit_output(total)
            self.builder.emit_func_output(out)
        return Graph(self.builder.get(), inputs, self.steps, weights, self.rounds)

    def add(self, expr: Any, step: Step) -> None:
        self.values.append(self.builder.emit(expr))
        self.steps.append(step)

    def step(self) -> None:
        options = [
            self.unary,
            self.unary,
            self.binary,
            self.binary,
            self.reduction,
            self.movement,
            self.matmul,
            self.rows,
            self.totals,
            self.pieces,
            self.masks,
            self.integers,
            *[self.dropout] * (4 * self.drops),
        ]
        while True:
            before = len(self.values)
            options[int(self.rng.integers(len(options)))]()
            if len(self.values) > before:
                return

    def unary(self) -> None:
        k, torch = self.pick(), self.torch
        x = self.values[k]
        op = Op.get
        table: list[tuple[Any, Step]] = [
            (op("tanh")(x), lambda v: torch.tanh(v[k])),
            (op("sigmoid")(x), lambda v: torch.sigmoid(v[k])),
            (op("sin")(x), lambda v: torch.sin(v[k])),
            (op("cos")(x), lambda v: torch.cos(v[k])),
            (op("exp")(op("tanh")(x)), lambda v: torch.exp(torch.tanh(v[k]))),
            (op("log")(x * x + 1.0), lambda v: torch.log(v[k] * v[k] + 1.0)),
            (op("sqrt")(x * x + 0.5), lambda v: torch.sqrt(v[k] * v[k] + 0.5)),
            (op("nn.relu")(x), lambda v: torch.relu(v[k])),
            (op("nn.gelu")(x), lambda v: torch.nn.functional.gelu(v[k])),
            (op("abs")(x), lambda v: torch.abs(v[k])),
            (op("erf")(x), lambda v: torch.erf(v[k])),
            (-x, lambda v: -v[k]),
        ]
        self.add(*table[int(self.rng.integers(len(table)))])

    def binary(self) -> None:
        i, j, torch = self.pick(), self.pick(), self.torch
        x, y = self.values[i], self.values[j]
        try:
            np.broadcast_shapes(x.shape, y.shape)
        except ValueError:
            return
        op = Op.get
        table: list[tuple[Any, Step]] = [
            (x + y, lambda v: v[i] + v[j]),
            (x - y, lambda v: v[i] - v[j]),
            (op("tanh")(x) * y, lambda v: torch.tanh(v[i]) * v[j]),
            (x / (y * y + 1.0), lambda v: v[i] / (v[j] * v[j] + 1.0)),
            (op("maximum")(x, y), lambda v: torch.maximum(v[i], v[j])),
            (op("minimum")(x, y), lambda v: torch.minimum(v[i], v[j])),
            (op("where")(x > y, x * 2.0, y), lambda v: torch.where(v[i] > v[j], v[i] * 2.0, v[j])),
        ]
        self.add(*table[int(self.rng.integers(len(table)))])

    def reduction(self) -> None:
        k, torch = self.pick(), self.torch
        x = self.values[k]
        if not x.shape:
            return
        axis, keep = int(self.rng.integers(-len(x.shape), len(x.shape))), bool(self.rng.integers(2))
        op = Op.get
        table: list[tuple[Any, Step]] = [(op("sum")(x, axis, keep), lambda v: v[k].sum(dim=axis, keepdim=keep))]
        if x.shape[axis] > 0:
            table += [
                (op("mean")(x, axis, keep), lambda v: v[k].mean(dim=axis, keepdim=keep)),
                (op("max")(x, axis, keep), lambda v: torch.amax(v[k], dim=axis, keepdim=keep)),
                (op("min")(x, axis, keep), lambda v: torch.amin(v[k], dim=axis, keepdim=keep)),
            ]
        self.add(*table[int(self.rng.integers(len(table)))])

    def movement(self) -> None:
        k, torch = self.pick(), self.torch
        x = self.values[k]
        shape, rank = x.shape, len(x.shape)
        op = Op.get
        order = tuple(int(a) for a in self.rng.permutation(rank))
        wide = (2, *shape)
        table: list[tuple[Any, Step]] = [
            (op("permute_dims")(x, order), lambda v: v[k].permute(order)),
            (op("reshape")(x, (int(np.prod(shape)),)), lambda v: v[k].reshape(int(np.prod(shape)))),
            (op("broadcast_to")(x, wide), lambda v: v[k].expand(wide)),
            (op("expand_dims")(x, 0), lambda v: v[k].unsqueeze(0)),
        ]
        if rank:
            table += [
                (op("concat")([x, x], axis=0), lambda v: torch.cat([v[k], v[k]], dim=0)),
                (op("flip")(x, 0), lambda v: torch.flip(v[k], (0,))),
            ]
        self.add(*table[int(self.rng.integers(len(table)))])

    def totals(self) -> None:
        """Reductions over several axes, or all."""
        k, torch = self.pick(), self.torch
        x = self.values[k]
        rank = len(x.shape)
        axes = tuple(int(a) for a in self.rng.permutation(rank)[: int(self.rng.integers(0, rank + 1))])
        keep, op = bool(self.rng.integers(2)), Op.get
        over = axes or tuple(range(rank))
        table: list[tuple[Any, Step]] = [
            (op("sum")(x, list(axes) or None, keep), lambda v: v[k].sum(dim=over, keepdim=keep) if over else v[k])
        ]
        if rank and all(x.shape[a] for a in over):
            table += [
                (op("mean")(x, list(axes) or None, keep), lambda v: v[k].mean(dim=over, keepdim=keep)),
                (op("max")(x, list(axes) or None, keep), lambda v: torch.amax(v[k], dim=over, keepdim=keep)),
                (
                    op("variance")(x, list(axes) or None, keep),
                    lambda v: torch.var(v[k], dim=over, keepdim=keep, correction=0),
                ),
            ]
        self.add(*table[int(self.rng.integers(len(table)))])

    def pieces(self) -> None:
        """Slices, splits, and what joins them again."""
        k, torch = self.pick(), self.torch
        x = self.values[k]
        if not x.shape or not all(x.shape):
            return
        op, axis = Op.get, int(self.rng.integers(len(x.shape)))
        size = x.shape[axis]
        first = int(self.rng.integers(size))
        end = int(self.rng.integers(first, size)) + 1
        stride = int(self.rng.integers(1, 3))
        kind = int(self.rng.integers(3))
        if kind == 0:
            index = (*[slice(None)] * axis, slice(first, end, stride))
            self.add(op("strided_slice")(x, (axis,), (first,), (end,), (stride,)), lambda v: v[k][index])
        elif kind == 1 and first:
            parts = self.builder.emit(op("split")(x, [first], axis))
            self.add(parts[0], lambda v: torch.tensor_split(v[k], [first], axis)[0])
            self.add(parts[1], lambda v: torch.tensor_split(v[k], [first], axis)[1])
        else:
            j = next((j for j in range(len(self.values)) if self.values[j].shape == x.shape), k)
            if bool(self.rng.integers(2)):
                self.add(op("concat")([x, self.values[j]], axis), lambda v: torch.cat([v[k], v[j]], axis))
            elif len(x.shape) < 3:
                self.add(op("stack")([self.values[j], x], axis), lambda v: torch.stack([v[j], v[k]], axis))

    def masks(self) -> None:
        """Comparisons, logic on them, and casts of bool."""
        k, torch, op = self.pick(), self.torch, Op.get
        x = self.values[k]
        table: list[tuple[Any, Step]] = [
            (op("astype")(x > 0.25, "float64") * x, lambda v: (v[k] > 0.25).double() * v[k]),
            (
                op("where")(op("logical_and")(x > -0.5, x < 0.5), x, -x),
                lambda v: torch.where((v[k] > -0.5) & (v[k] < 0.5), v[k], -v[k]),
            ),
            (
                op("where")(op("logical_not")(op("less_equal")(x, 0.0)), op("square")(x), x),
                lambda v: torch.where(v[k] <= 0, v[k], v[k] * v[k]),
            ),
            (
                op("astype")(op("astype")(x, "float32"), "float64"),
                lambda v: v[k].float().double(),
            ),
        ]
        chosen = int(self.rng.integers(len(table)))
        self.rounds = self.rounds or chosen == 3
        self.add(*table[chosen])

    def dropout(self) -> None:
        """Elements that a constant state drops, and noise of the value's shape."""
        k, op, p = self.pick(), Op.get, float(self.rng.choice([0.0, 0.25, 0.5, 1.0]))
        x, state = self.values[k], self.rng.integers(0, 2**63, 2, np.uint64)
        keep = np.asarray(bits_array(state, x.shape) < (1 - p) * 2**32, np.float64)
        unit = np.asarray(bits_array(state, x.shape, "uint64") >> np.uint64(11), np.float64) * 2.0**-53
        torch, scale = self.torch, 1 / (1 - p) if p < 1 else 0.0
        table: list[tuple[Any, Step]] = [
            (op("dropout")(x, const(state), p), lambda v: v[k] * torch.from_numpy(keep) * scale),
            (op("nn.dropout")(x, const(state), p)[1] + x, lambda v: v[k] + torch.from_numpy(keep)),
            (x + op("random.uniform")(const(state), x.shape, dtype="float64"), lambda v: v[k] + torch.tensor(unit)),
        ]
        self.add(*table[int(self.rng.integers(len(table)))])

    def integers(self) -> None:
        """Integer arithmetic on rounded values; nothing of it has a gradient."""
        k, torch, op = self.pick(), self.torch, Op.get
        x = self.values[k]
        n = op("astype")(op("clip")(op("round")(x * 3.0 + OFF_TIES), -100.0, 100.0), "int64")

        def whole(v: list[Any]) -> Any:
            return torch.round(v[k] * 3.0 + OFF_TIES).clamp(-100, 100).to(torch.int64)

        table: list[tuple[Any, Step]] = [
            (op("floor_divide")(n, const(3, "int64")), lambda v: torch.div(whole(v), 3, rounding_mode="floor")),
            (op("mod")(n, const(5, "int64")), lambda v: torch.remainder(whole(v), 5)),
            (op("bitwise_and")(n, const(6, "int64")), lambda v: whole(v) & 6),
            (op("astype")(n, "int8") * const(2, "int8"), lambda v: whole(v).to(torch.int8) * 2),
            (op("maximum")(n, const(1, "int64")), lambda v: whole(v).clamp(min=1)),
        ]
        value, step = table[int(self.rng.integers(len(table)))]
        self.add(op("astype")(value, "float64"), lambda v: step(v).double())

    def matmul(self) -> None:
        i, j, torch = self.pick(), self.pick(), self.torch
        x, y = self.values[i], self.values[j]
        if len(x.shape) != 2 or len(y.shape) != 2:
            return
        op = Op.get
        x, y = op("tanh")(x), op("tanh")(y)
        if x.shape[1] == y.shape[0]:
            self.add(op("matmul")(x, y), lambda v: torch.tanh(v[i]) @ torch.tanh(v[j]))
        elif x.shape[1] == y.shape[1]:
            self.add(op("matmul")(x, op("permute_dims")(y)), lambda v: torch.tanh(v[i]) @ torch.tanh(v[j]).T)
        elif x.shape[0] == y.shape[0]:
            self.add(op("matmul")(op("permute_dims")(x), y), lambda v: torch.tanh(v[i]).T @ torch.tanh(v[j]))
        elif x.shape[0] == y.shape[1]:
            both = op("matmul")(op("permute_dims")(x), op("permute_dims")(y))
            self.add(both, lambda v: torch.tanh(v[i]).T @ torch.tanh(v[j]).T)

    def rows(self) -> None:
        k, torch = self.pick(), self.torch
        x = self.values[k]
        if not x.shape or x.shape[-1] == 0:
            return
        op = Op.get
        axis = int(self.rng.integers(len(x.shape)))
        if x.shape[axis] == 0:
            return
        table: list[tuple[Any, Step]] = [
            (op("nn.softmax")(x, axis), lambda v: torch.softmax(v[k], axis)),
            (op("nn.log_softmax")(x, axis), lambda v: torch.log_softmax(v[k], axis)),
        ]
        self.add(*table[int(self.rng.integers(len(table)))])
