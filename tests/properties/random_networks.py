"""Random networks of images as pullback trainer modules and PyTorch programs: convolutions, poolings, norms, residual
branches and gates with random sizes, strides, paddings, dilations, groups and layouts; a loss; an optimizer.

Networks in float32 have no kinks (relu, max pooling): there, rounding could choose another branch than PyTorch does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir import IRModule, Op
from pullback.relax import BlockBuilder, Function, TensorStructInfo, Tuple, Var
from pullback.relax.training import SetupTrainer
from pullback.relax.training.loss import CrossEntropyLoss, MSELoss
from pullback.relax.training.optimizer import SGD, Adam, MomentumSGD

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
LARGEST = {1: 40, 2: 14, 3: 6}  # of a spatial axis, by their number
Step = Callable[[list[Any]], Any]


def op(name: str) -> Op:
    return Op.get(name)


@dataclass(frozen=True)
class Value:
    """A value of the network: its expression, whether the channels are its last axis, its number among PyTorch's
    values, where they are always the second, and its shape there."""

    expr: Any
    last: bool
    number: int
    shape: tuple[int, ...]

    @property
    def channels(self) -> int:
        return self.shape[1]

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.shape[2:]


@dataclass
class Network:
    """``module`` is a trainer module; ``arrays`` are the flat arguments of its ``__step``: inputs, parameters, states,
    targets, optimizer states."""

    module: IRModule
    arrays: list[np.ndarray]
    torch_steps: list[Step]
    torch_loss: Callable[[Any, Any, Any], Any]
    optimizer: Any

    def train(self, torch: Any, steps: int) -> tuple[list[float], list[np.ndarray]]:
        """What PyTorch makes of it in float64: the loss of each step, and parameters and states after the last."""
        inputs, params, states = (self.module.attrs[n] for n in ("input_num", "param_num", "state_num"))
        wide = [a.astype(np.float64) if a.dtype == np.float32 else a.copy() for a in self.arrays]
        tensors = [torch.from_numpy(a) for a in wide[: inputs + params + states + 1]]
        trained = [t.requires_grad_() for t in tensors[inputs : inputs + params]]
        optimizer, losses = self.torch_optimizer(torch, trained), []
        for _ in range(steps):
            optimizer.zero_grad()
            values = list(tensors)
            for step in self.torch_steps:
                values.append(step(values))
            loss = self.torch_loss(torch, values[-1], tensors[-1])
            loss.backward()
            for t in trained:
                t.grad = torch.zeros_like(t) if t.grad is None else t.grad  # of a branch without an end
            optimizer.step()
            losses.append(loss.item())
        return losses, [t.detach().numpy() for t in tensors[inputs:-1]]

    def torch_optimizer(self, torch: Any, params: list[Any]) -> Any:
        own = vars(self.optimizer)
        taken = {n: own[n] for n in ("lr", "momentum", "dampening", "weight_decay", "nesterov", "eps") if n in own}
        if isinstance(self.optimizer, Adam):
            return torch.optim.Adam(params, betas=(own["beta1"], own["beta2"]), **taken)
        return torch.optim.SGD(params, **taken)


def in_rows(value: Any) -> Any:
    """The tensor row by row in memory, strides of single elements included: PyTorch 2.13 crashes in gradients of
    convolutions and pools of small images that lie otherwise."""
    return value.reshape(-1).reshape(value.shape)


class NetworkMaker:
    """Draws one network from a seed."""

    def __init__(self, seed: int, torch: Any = None) -> None:
        self.rng = np.random.default_rng((seed, 1))
        self.torch = torch
        self.rank = self.one_of(1, 2, 2, 2, 3)
        self.dtype = self.one_of("float64", "float64", "float32")
        self.smooth = self.dtype == "float32"
        self.builder = BlockBuilder()
        self.params: list[tuple[Var, np.ndarray]] = []
        self.states: list[tuple[Var, np.ndarray]] = []
        self.new_states: list[Any] = []
        self.steps: list[Step] = []

    # -- drawing

    def one_of(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def upto(self, low: int, high: int) -> int:
        """A number of low … high."""
        return int(self.rng.integers(low, max(low, high) + 1))

    def size(self) -> int:
        return int(
            self.rng.choice([1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 33], p=[0.1, *[0.12] * 6, *[0.06] * 2, 0.04, 0.02])
        )

    def each(self, low: int, high: int) -> tuple[int, ...]:
        """A number for each spatial axis, the same one for all in half of the cases."""
        same = self.upto(low, high)
        return (same,) * self.rank if self.rng.random() < 0.5 else tuple(self.upto(low, high) for _ in range(self.rank))

    # -- values: PyTorch's are x, parameters, states, the target, and then one for each step

    def parameter(self, shape: Sequence[int], fan_in: int = 1, around: float = 0.0) -> Var:
        var = Var(f"p{len(self.params)}", TensorStructInfo(tuple(shape), self.dtype))
        self.params.append((var, self.rng.standard_normal(shape) * fan_in**-0.5 * (0.3 if around else 1) + around))
        return var

    def state(self, size: int, value: float) -> Var:
        var = Var(f"s{len(self.states)}", TensorStructInfo((size,), self.dtype))
        self.states.append((var, np.full(size, value)))
        return var

    def torch_of(self, var: Var) -> Callable[[list[Any]], Any]:
        """Finds PyTorch's counterpart of a parameter or state, when all of them are known."""
        return lambda values: values[1 + next(i for i, (v, _) in enumerate((*self.params, *self.states)) if v is var)]

    def add(self, expr: Any, last: bool, shape: tuple[int, ...], step: Step) -> Value:
        """A new value; ``shape`` is PyTorch's."""
        emitted = self.builder.emit(expr)
        assert tuple(emitted.shape) == self.turned(shape, last)
        self.steps.append(step)
        return Value(emitted, last, len(self.steps) - 1, shape)

    def of(self, value: Value) -> Callable[[list[Any]], Any]:
        """Finds PyTorch's counterpart of a value."""
        return lambda values: in_rows(values[2 + len(self.params) + len(self.states) + value.number])

    @staticmethod
    def turned(shape: Sequence[Any], last: bool) -> tuple[Any, ...]:
        return (shape[0], *shape[2:], shape[1]) if last else tuple(shape)

    def letters(self, last: bool) -> str:
        return f"N{SPATIAL[self.rank]}C" if last else f"NC{SPATIAL[self.rank]}"

    def in_layout(self, value: Value, last: bool) -> Any:
        """The expression with its channels there."""
        if value.last == last:
            return value.expr
        axes = range(self.rank + 2)
        order = self.turned(axes, True) if last else (0, self.rank + 1, *range(1, self.rank + 1))
        return self.builder.emit(op("permute_dims")(value.expr, order))

    def functional(self, name: str) -> Any:
        return getattr(self.torch.nn.functional, name) if self.torch is not None else None

    # -- layers

    def convolution(self, x: Value, outputs: int | None = None, keep: bool = False) -> Value:
        """``keep``: of the same spatial sizes."""
        groups = self.one_of(1, 1, 1, *(g for g in range(1, x.channels + 1) if x.channels % g == 0))
        outputs = outputs or groups * max(1, self.size() // groups)
        groups = groups if outputs % groups == 0 else 1
        if keep:
            dilation = self.each(1, 2)
            taps = tuple(1 + 2 * self.upto(0, 1) for _ in range(self.rank))
            strides, padding = (1,) * self.rank, tuple(d * (k // 2) for d, k in zip(dilation, taps, strict=True))
            widths = [(p, p) for p in padding]
        else:
            padding, strides, dilation = self.each(0, 2), self.each(1, 3), self.each(1, 2)
            more = self.each(0, 1) if self.rng.random() < 0.2 else (0,) * self.rank
            widths = [(p, p + m) for p, m in zip(padding, more, strict=True)]
            room = [s + sum(w) for s, w in zip(x.sizes, widths, strict=True)]
            taps = tuple(self.upto(1, min(4, 1 + (r - 1) // d)) for r, d in zip(room, dilation, strict=True))
        sizes = tuple(
            (s + sum(w) - d * (k - 1) - 1) // t + 1
            for s, w, d, k, t in zip(x.sizes, widths, dilation, taps, strides, strict=True)
        )
        own = "OI" + SPATIAL[self.rank]
        letters = self.one_of(own, SPATIAL[self.rank] + "IO", "O" + SPATIAL[self.rank] + "I")
        whole = (outputs, x.channels // groups, *taps)
        order = [own.index(a) for a in letters]
        weight = self.parameter([whole[k] for k in order], math.prod(whole[1:]))
        back, last = [letters.index(a) for a in own], self.one_of(x.last, x.last, not x.last)
        flat = [n for pair in reversed(widths) for n in pair]
        source, w, f, pad = (
            self.of(x),
            self.torch_of(weight),
            self.functional(f"conv{self.rank}d"),
            self.functional("pad"),
        )
        expr = op(f"nn.conv{self.rank}d")(
            x.expr, weight, strides=strides, padding=(*(w[0] for w in widths), *(w[1] for w in widths)),
            dilation=dilation, groups=groups, data_layout=self.letters(x.last), kernel_layout=letters,
            out_layout=self.letters(last),
        )  # fmt: skip
        return self.add(
            expr, last, (x.shape[0], outputs, *sizes),
            lambda v: f(pad(source(v), flat), in_rows(w(v).permute(back)), None, strides, 0, dilation, groups),
        )  # fmt: skip

    def transpose(self, x: Value) -> Value:
        groups = self.one_of(1, 1, *(g for g in range(1, x.channels + 1) if x.channels % g == 0))
        outputs = groups * max(1, self.size() // groups // 2)
        strides, dilation, taps = self.each(1, 3), self.each(1, 2), self.each(1, 3)
        sizes, padding, more = [], [], []
        for s, t, d, k in zip(x.sizes, strides, dilation, taps, strict=True):
            extra = self.upto(0, t - 1)
            whole = (s - 1) * t + d * (k - 1) + 1 + extra
            padding.append(self.upto(0, min(2, (whole - 1) // 2, d * (k - 1))))
            more.append(extra)
            sizes.append(whole - 2 * padding[-1])
        if max(sizes) > 2 * LARGEST[self.rank]:
            return x
        weight = self.parameter((x.channels, outputs // groups, *taps), x.channels // groups * math.prod(taps))
        source, w, f = self.of(x), self.torch_of(weight), self.functional(f"conv_transpose{self.rank}d")
        expr = op(f"nn.conv{self.rank}d_transpose")(
            x.expr, weight, strides=strides, padding=tuple(padding), output_padding=tuple(more), dilation=dilation,
            groups=groups, data_layout=self.letters(x.last),
        )  # fmt: skip
        return self.add(
            expr, x.last, (x.shape[0], outputs, *sizes),
            lambda v: f(source(v), w(v), None, strides, tuple(padding), tuple(more), groups, dilation),
        )  # fmt: skip

    def bias(self, x: Value) -> Value:
        """One number for each channel."""
        shape = (x.channels,) if x.last else (x.channels, *(1,) * self.rank)
        source, b = self.of(x), self.parameter(shape)
        other = self.torch_of(b)
        return self.add(x.expr + b, x.last, x.shape, lambda v: source(v) + other(v).reshape(-1, *(1,) * self.rank))

    def pooling(self, x: Value) -> Value:
        kind = "avg" if self.smooth else self.one_of("max", "avg")
        taps = tuple(self.upto(1, min(3, s)) for s in x.sizes)
        strides, padding = self.each(1, 3), tuple(self.upto(0, k // 2) for k in taps)
        ceil, include = bool(self.rng.integers(2)), bool(self.rng.integers(2)) and kind == "avg"
        sizes = []
        for s, k, t, p in zip(x.sizes, taps, strides, padding, strict=True):
            count = (-(-(s + 2 * p - k) // t) if ceil else (s + 2 * p - k) // t) + 1
            sizes.append(count - 1 if (count - 1) * t >= s + p else count)
        last, source, f = self.one_of(x.last, not x.last), self.of(x), self.functional(f"{kind}_pool{self.rank}d")
        expr = op(f"nn.{kind}_pool{self.rank}d")(
            x.expr, pool_size=taps, strides=strides, padding=padding, ceil_mode=ceil, count_include_pad=include,
            layout=self.letters(x.last), out_layout=self.letters(last),
        )  # fmt: skip
        rest = {"count_include_pad": include} if kind == "avg" else {}
        return self.add(
            expr, last, (*x.shape[:2], *sizes),
            lambda v: f(source(v), taps, strides, padding, ceil_mode=ceil, **rest),
        )  # fmt: skip

    def adaptive(self, x: Value) -> Value:
        sizes = tuple(self.upto(1, min(4, s)) for s in x.sizes)
        source, f = self.of(x), self.functional(f"adaptive_avg_pool{self.rank}d")
        expr = op(f"nn.adaptive_avg_pool{self.rank}d")(x.expr, sizes, layout=self.letters(x.last))
        return self.add(expr, x.last, (*x.shape[:2], *sizes), lambda v: f(source(v), sizes))

    def activation(self, x: Value) -> Value:
        source, torch, f = self.of(x), self.torch, self.functional
        table: dict[str, Step] = {
            "nn.gelu": lambda v: f("gelu")(source(v)),
            "nn.silu": lambda v: f("silu")(source(v)),
            "nn.softplus": lambda v: f("softplus")(source(v)),
            "tanh": lambda v: torch.tanh(source(v)),
            "sigmoid": lambda v: torch.sigmoid(source(v)),
        }
        if not self.smooth:
            table |= {
                "nn.relu": lambda v: f("relu")(source(v)),
                "nn.leakyrelu": lambda v: f("leaky_relu")(source(v)),
            }
        name = self.one_of(*table, *(["nn.relu"] * 4 if not self.smooth else []))
        return self.add(op(name)(x.expr), x.last, x.shape, table[name])

    def norm(self, x: Value) -> Value:
        kinds, count = [self.layer_norm], math.prod(x.sizes)
        kinds += [self.batch_norm] * 3 if x.shape[0] * count >= 4 else []
        kinds += [self.group_norm] if count >= 4 else []
        return self.one_of(*kinds)(x)

    def batch_norm(self, x: Value) -> Value:
        gamma, beta = self.parameter((x.channels,), around=1.0), self.parameter((x.channels,))
        moving = self.state(x.channels, 0.0), self.state(x.channels, 1.0)
        momentum, source = self.one_of(0.1, 0.3), self.of(x)
        axis = self.rank + 1 if x.last else 1
        norm = op("nn.batch_norm")(x.expr, gamma, beta, *moving, axis=axis, epsilon=0.01, momentum=momentum)
        out = self.builder.emit(norm)
        self.new_states += [out[1], out[2]]
        names, f = [self.torch_of(v) for v in (*moving, gamma, beta)], self.functional("batch_norm")
        return self.add(
            out[0], x.last, x.shape, lambda v: f(source(v), *(n(v) for n in names), True, momentum, 0.01)
        )  # fmt: skip

    def group_norm(self, x: Value) -> Value:
        groups = self.one_of(*(g for g in range(1, x.channels + 1) if x.channels % g == 0))
        gamma, beta = self.parameter((x.channels,), around=1.0), self.parameter((x.channels,))
        axes = tuple(range(1, self.rank + 1)) if x.last else tuple(range(2, self.rank + 2))
        attrs = {"channel_axis": self.rank + 1 if x.last else 1, "axes": axes, "epsilon": 0.01}
        if groups == x.channels:
            expr = op("nn.instance_norm")(x.expr, gamma, beta, **attrs)
        else:
            expr = op("nn.group_norm")(x.expr, gamma, beta, num_groups=groups, **attrs)
        source, g, b, f = self.of(x), self.torch_of(gamma), self.torch_of(beta), self.functional("group_norm")
        return self.add(expr, x.last, x.shape, lambda v: f(source(v), groups, g(v), b(v), 0.01))

    def layer_norm(self, x: Value) -> Value:
        """Over all axes but the batch's."""
        gamma, beta = (self.parameter(self.turned(x.shape, x.last)[1:], around=a) for a in (1.0, 0.0))
        expr = op("nn.layer_norm")(x.expr, gamma, beta, axes=tuple(range(1, self.rank + 2)), epsilon=0.01)
        source, g, b, f = self.of(x), self.torch_of(gamma), self.torch_of(beta), self.functional("layer_norm")
        order = (self.rank, *range(self.rank)) if x.last else tuple(range(self.rank + 1))
        return self.add(
            expr, x.last, x.shape,
            lambda v: f(source(v), list(x.shape[1:]), g(v).permute(order), b(v).permute(order), 0.01),
        )  # fmt: skip

    def residual(self, x: Value) -> Value:
        """x + f(x), with a projection where f changes the number of channels."""
        inner = self.activation(self.convolution(x, keep=True))
        inner = self.norm(self.convolution(inner, self.one_of(x.channels, None), keep=True))
        short = x if inner.channels == x.channels else self.convolution(x, inner.channels, keep=True)
        a, b = self.of(inner), self.of(short)
        expr = inner.expr + self.in_layout(short, inner.last)
        return self.add(expr, inner.last, inner.shape, lambda v: a(v) + b(v))

    def branches(self, x: Value) -> Value:
        """Two branches, their channels side by side."""
        left, right = self.convolution(x, keep=True), self.one_of(self.activation, self.convolution)(x)
        if right.sizes != x.sizes:
            right = x
        a, b, torch = self.of(left), self.of(right), self.torch
        expr = op("concat")([left.expr, self.in_layout(right, left.last)], axis=self.rank + 1 if left.last else 1)
        shape = (x.shape[0], left.channels + right.channels, *x.sizes)
        return self.add(expr, left.last, shape, lambda v: torch.cat([a(v), b(v)], 1))

    def gate(self, x: Value) -> Value:
        """x times a factor for each channel of an image, which a small network computes from the channels' means."""
        axes = tuple(range(1, self.rank + 1)) if x.last else tuple(range(2, self.rank + 2))
        source, torch, over = self.of(x), self.torch, tuple(range(2, self.rank + 2))
        means = self.add(
            op("mean")(x.expr, axes, True), x.last, (*x.shape[:2], *(1,) * self.rank),
            lambda v: source(v).mean(over, keepdim=True),
        )  # fmt: skip
        inner = self.convolution(self.activation(self.convolution(means, keep=True)), x.channels, keep=True)
        a = self.of(inner)
        expr = x.expr * op("sigmoid")(self.in_layout(inner, x.last))
        return self.add(expr, x.last, x.shape, lambda v: source(v) * torch.sigmoid(a(v)))

    # -- the whole

    def make(self) -> Network:
        batch, last = self.upto(1, 5), self.one_of(False, False, True)
        shape = (batch, self.size(), *(self.upto(2, LARGEST[self.rank]) for _ in range(self.rank)))
        x = Var("x", TensorStructInfo(self.turned(shape, last), self.dtype))
        data = self.rng.standard_normal(self.turned(shape, last))
        layers = [
            *[self.convolution] * 5, self.transpose, self.bias, *[self.pooling] * 2, self.adaptive,
            *[self.activation] * 3, *[self.norm] * 2, self.residual, self.branches, self.gate,
        ]  # fmt: skip
        order = (0, self.rank + 1, *range(1, self.rank + 1)) if last else tuple(range(self.rank + 2))
        self.builder.begin(["x"])
        with self.builder.dataflow():
            self.steps.append(lambda v: v[0].permute(order))
            value = Value(x, last, 0, shape)
            for _ in range(self.upto(2, 7)):
                value = self.one_of(*layers)(value)
            out = self.builder.emit_output(self.head(value))
            news = [self.builder.emit_output(s) for s in self.new_states]
        body = self.builder.finish(Tuple((out, *news)) if news else out)
        return self.trained(x, data, out, body)

    def head(self, x: Value) -> Any:
        """The image as it is, or scores of classes; PyTorch's value in the same layout is the last."""
        source = self.of(x)
        if self.rng.random() < 0.3 and self.params:  # else there would be nothing to train
            order = self.turned(range(self.rank + 2), x.last)
            self.steps.append(lambda v: source(v).permute(order))
            return x.expr
        classes, batch, pooled = self.upto(2, 12), x.shape[0], math.prod(x.sizes) > 30
        expr, over = self.in_layout(x, False), tuple(range(2, self.rank + 2))
        features = op("mean")(expr, over) if pooled else op("reshape")(expr, (batch, -1))
        count = x.channels if pooled else math.prod(x.shape[1:])
        weight, bias = self.parameter((classes, count), count), self.parameter((classes,))
        w, b, f = self.torch_of(weight), self.torch_of(bias), self.functional("linear")
        self.steps.append(lambda v: f(source(v).mean(over) if pooled else source(v).flatten(1), w(v), b(v)))
        return op("linear")(self.builder.emit(features), weight, bias)

    def optimizer(self, rate: float) -> Any:
        decay = self.one_of(0.0, 0.01)
        return self.one_of(
            SGD(rate, decay),
            MomentumSGD(rate, 0.9, 0.0, decay, nesterov=True),
            MomentumSGD(rate, 0.9, 0.1, decay),
            Adam(0.01, (0.8, 0.9), 1e-3, decay),  # a large epsilon: it multiplies the rounding of tiny gradients less
        )

    def trained(self, x: Var, data: np.ndarray, out: Any, body: Any) -> Network:
        """The network with a loss and an optimizer, and all arguments of a step."""
        params, states = [v for v, _ in self.params], [v for v, _ in self.states]
        backbone = Function((x, *params, *states), body)
        module = IRModule({"backbone": backbone}).with_attrs({"param_num": len(params), "state_num": len(states)})
        reduction, info = self.one_of("mean", "sum"), out.struct_info
        if len(info.shape) == 2:
            loss: Any = CrossEntropyLoss(reduction)
            target, kind = self.rng.integers(0, info.shape[1], info.shape[0]), "int64"
        else:
            loss, target, kind = MSELoss(reduction), self.rng.standard_normal(info.shape), self.dtype
        optimizer = self.optimizer(0.05 if reduction == "mean" else 0.05 / target.size)
        infos = [TensorStructInfo(info.shape, info.dtype), TensorStructInfo(target.shape, kind)]
        module = SetupTrainer(loss, optimizer, infos, legalize=False)(module)
        name = "cross_entropy" if kind == "int64" else "mse_loss"
        initial = [t.numpy() for t in module.attrs["optim_state"]]
        floats = [data, *(a for _, a in self.params), *(a for _, a in self.states)]
        arrays = [*(a.astype(self.dtype) for a in floats), target.astype(kind), *initial]
        return Network(
            module, arrays, self.steps,
            lambda torch, y, t: getattr(torch.nn.functional, name)(y, t, reduction=reduction), optimizer,
        )  # fmt: skip
