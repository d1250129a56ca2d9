"""Recurrent layers: RNN, GRU and LSTM, as scans over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.relax import op
from pullback.relax.control import scan
from pullback.relax.frontend.onnx.known import static
from pullback.relax.frontend.onnx.ops.elementwise import numbers_like
from pullback.relax.frontend.onnx.ops.shapes import shape_of
from pullback.relax.frontend.onnx.table import ONNX

Activation = Callable[[Any], Any]


def _affine(x: Any, alpha: float, beta: float) -> Any:
    return op.add(op.multiply(x, numbers_like(alpha, x)), numbers_like(beta, x))


_ACTIVATIONS: dict[str, tuple[Callable[[Any, float, float], Any], float, float]] = {  # with their alpha and beta
    "Relu": (lambda x, a, b: op.nn.relu(x), 0, 0),
    "Tanh": (lambda x, a, b: op.tanh(x), 0, 0),
    "Sigmoid": (lambda x, a, b: op.sigmoid(x), 0, 0),
    "Affine": (_affine, 1, 0),
    "LeakyRelu": (lambda x, a, b: op.nn.leakyrelu(x, a), 0.01, 0),
    "ThresholdedRelu": (lambda x, a, b: op.nn.threshold(x, a, 0.0), 1, 0),
    "ScaledTanh": (lambda x, a, b: op.multiply(op.tanh(op.multiply(x, numbers_like(b, x))), numbers_like(a, x)), 1, 1),
    "HardSigmoid": (lambda x, a, b: op.clip(_affine(x, a, b), 0.0, 1.0), 0.2, 0.5),
    "Elu": (lambda x, a, b: op.nn.elu(x, a), 1, 0),
    "Softsign": (lambda x, a, b: op.nn.softsign(x), 0, 0),
    "Softplus": (lambda x, a, b: op.logaddexp(x, numbers_like(0, x)), 0, 0),
}
_WITH_ALPHA = ("Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu")
_WITH_BETA = ("Affine", "ScaledTanh", "HardSigmoid")


def _activations(names: Sequence[str], alphas: Any, betas: Any) -> list[Activation]:
    """The functions of these names; those that have an alpha or a beta take the next one that is given."""
    left, right, found = list(alphas or ()), list(betas or ()), []
    known = {name.lower(): name for name in _ACTIVATIONS}
    for given in names:
        if given.lower() not in known:
            raise ArgumentError(f"there is no activation {given!r}", hint=f"they are {', '.join(_ACTIVATIONS)}")
        name = known[given.lower()]
        function, alpha, beta = _ACTIVATIONS[name]
        alpha = left.pop(0) if name in _WITH_ALPHA and left else alpha
        beta = right.pop(0) if name in _WITH_BETA and right else beta
        found.append(_with(function, alpha, beta))
    return found


def _with(function: Callable[[Any, float, float], Any], alpha: float, beta: float) -> Activation:
    return lambda x: function(x, alpha, beta)


class _Layer:
    """One direction of a layer. ``gates``: how many parts the weights have."""

    def __init__(
        self, gates: int, w: Any, r: Any, bias: Any, direction: int, clip: float | None, activations: list[Activation]
    ) -> None:  # fmt: skip
        self.w, self.r = _part(w, direction), _part(r, direction)
        self.hidden = static(shape_of(self.r)[1:], "the hidden size")[0]
        self.gates, self.clip, self.activations = gates, clip, activations
        self.bias_w = self.bias_r = None
        if bias is not None:
            parts = op.split(_part(bias, direction), 2)
            self.bias_w, self.bias_r = parts[0], parts[1]

    def clipped(self, x: Any) -> Any:
        return x if self.clip is None else op.clip(x, -self.clip, self.clip)

    def inputs(self, x: Any) -> Any:
        """What the inputs of all times, (T, N, I), add to the gates: (T, N, gates · H)."""
        found = op.matmul(x, op.permute_dims(self.w))
        return found if self.bias_w is None else op.add(found, self.bias_w)

    def recurrent(self, h: Any) -> Any:
        found = op.matmul(h, op.permute_dims(self.r))
        return found if self.bias_r is None else op.add(found, self.bias_r)


def _part(x: Any, direction: int) -> Any:
    return op.squeeze(op.strided_slice(x, [0], [direction], [direction + 1]), [0])


def _parts(x: Any, count: int) -> list[Any]:
    found = op.split(x, count, -1)
    return [found[k] for k in range(count)]


def _run(
    layers: Sequence[tuple[Callable[..., Any], Callable[[Any], Any]]], x: Any, lengths: Any,
    states: Sequence[Sequence[Any]], backward: Sequence[bool],
) -> tuple[Any, list[list[Any]]]:  # fmt: skip
    """The results of all times, (T, D, N, H), and the last states of each direction. A layer is a step, a function of
    what the inputs add and the states, and a function of the inputs that gives this."""
    times = shape_of(x)[0]
    results, last = [], []
    for (step, inputs), first, is_backward in zip(layers, states, backward, strict=True):
        rows = x
        if is_backward:
            rows = op.flip(x, 0) if lengths is None else op.reverse_sequence(x, lengths, 0, 1)
        arrays = [inputs(rows)]
        if lengths is not None:
            places = op.reshape(op.arange(0, times, 1, lengths.struct_info.dtype), (times, 1))
            arrays.append(op.expand_dims(op.less(places, op.expand_dims(lengths, 0)), 2))

        def one(*values: Any, step: Any = step, count: int = len(first)) -> Any:
            old, row, mask = values[:count], values[count], values[count + 1 :]
            new = step(row, *old)
            if not mask:
                return tuple(new), (new[0],)
            kept = tuple(op.where(mask[0], n, o) for n, o in zip(new, old, strict=True))
            return kept, (op.where(mask[0], new[0], op.zeros_like(new[0])),)

        found = scan(one, tuple(first), tuple(arrays))
        y = found[1][0]
        if is_backward:
            y = op.flip(y, 0) if lengths is None else op.reverse_sequence(y, lengths, 0, 1)
        results.append(y)
        last.append([found[0][k] for k in range(len(first))])
    return op.stack(results, 1), last


def _time_first(x: Any, layout: int) -> Any:
    return op.permute_dims(x, (1, 0, 2)) if layout else x


def _directions(direction: str) -> list[bool]:
    """Whether each direction goes backward."""
    found = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}.get(direction)
    if found is None:
        raise ArgumentError(f"the direction {direction!r} is not known")
    return found


def _states(initial: Any, x: Any, hidden: int, directions: int, layout: int) -> list[Any]:
    """The first states (N, H) of each direction."""
    if initial is None:
        zeros = op.zeros((shape_of(x)[1], hidden), x.struct_info.dtype)
        return [zeros] * directions
    return [_part(_time_first(initial, layout), k) for k in range(directions)]


def _output(y: Any, last: Sequence[Sequence[Any]], layout: int, states: int) -> tuple[Any, ...]:
    """Y, Y_h and for LSTM Y_c, in the layout that is asked for."""
    finals = [op.stack([found[k] for found in last], 0) for k in range(states)]
    if layout:
        return op.permute_dims(y, (2, 0, 1, 3)), *(op.permute_dims(f, (1, 0, 2)) for f in finals)
    return y, *finals


def _functions(names: Any, default: Sequence[str], directions: int, alphas: Any, betas: Any) -> list[list[Activation]]:
    """The activations of each direction."""
    chosen = list(names) if names else list(default) * directions
    count = len(default)
    found = _activations(chosen[: count * directions], alphas, betas)  # RNN's schema says two for one direction
    if len(found) != count * directions:
        raise ArgumentError(f"{count * directions} activations are needed, got {len(found)}")
    return [found[k * count : (k + 1) * count] for k in range(directions)]


@ONNX.register("RNN")
def rnn(
    x: Any, w: Any, r: Any, bias: Any = None, lengths: Any = None, initial_h: Any = None, *, direction: str,
    hidden_size: int | None = None, activations: Any = None, activation_alpha: Any = None, activation_beta: Any = None,
    clip: float | None = None, layout: int = 0, **_: Any,
) -> Any:  # fmt: skip
    backward = _directions(direction)
    functions = _functions(activations, ("Tanh",), len(backward), activation_alpha, activation_beta)
    rows = _time_first(x, layout)
    layers, states = [], []
    for k, (f,) in enumerate(functions):
        layer = _Layer(1, w, r, bias, k, clip, [f])

        def step(row: Any, h: Any, layer: _Layer = layer, f: Activation = f) -> Any:
            return (f(layer.clipped(op.add(row, layer.recurrent(h)))),)

        layers.append((step, layer.inputs))
        states.append([_states(initial_h, rows, layer.hidden, len(backward), layout)[k]])
    return _output(*_run(layers, rows, lengths, states, backward), layout, 1)


@ONNX.register("GRU")
def gru(
    x: Any, w: Any, r: Any, bias: Any = None, lengths: Any = None, initial_h: Any = None, *, direction: str,
    hidden_size: int | None = None, activations: Any = None, activation_alpha: Any = None, activation_beta: Any = None,
    clip: float | None = None, layout: int = 0, linear_before_reset: int = 0, **_: Any,
) -> Any:  # fmt: skip
    """Gates in the order z, r, h: Hₜ = (1 - z)·h + z·Hₜ₋₁, where h reads r·Hₜ₋₁ before the product with its weights, or
    with ``linear_before_reset`` behind it."""
    backward = _directions(direction)
    functions = _functions(activations, ("Sigmoid", "Tanh"), len(backward), activation_alpha, activation_beta)
    rows = _time_first(x, layout)
    layers, states = [], []
    for k, (f, g) in enumerate(functions):
        layer = _Layer(3, w, r, bias, k, clip, [f, g])

        def step(row: Any, h: Any, layer: _Layer = layer, f: Activation = f, g: Activation = g) -> Any:
            z_in, r_in, h_in = _parts(row, 3)
            if linear_before_reset:
                z_old, r_old, h_old = _parts(layer.recurrent(h), 3)
                z, reset = f(layer.clipped(op.add(z_in, z_old))), f(layer.clipped(op.add(r_in, r_old)))
                new = g(layer.clipped(op.add(h_in, op.multiply(reset, h_old))))
            else:
                size = layer.hidden
                gates, last = op.split(layer.r, [2 * size], 0)
                old = op.matmul(h, op.permute_dims(gates))
                bias_h = None
                if layer.bias_r is not None:
                    bias_zr, bias_h = op.split(layer.bias_r, [2 * size], 0)
                    old = op.add(old, bias_zr)
                z_old, r_old = _parts(old, 2)
                z, reset = f(layer.clipped(op.add(z_in, z_old))), f(layer.clipped(op.add(r_in, r_old)))
                h_old = op.matmul(op.multiply(reset, h), op.permute_dims(last))
                h_old = h_old if bias_h is None else op.add(h_old, bias_h)
                new = g(layer.clipped(op.add(h_in, h_old)))
            return (op.add(op.multiply(op.subtract(numbers_like(1, z), z), new), op.multiply(z, h)),)

        layers.append((step, layer.inputs))
        states.append([_states(initial_h, rows, layer.hidden, len(backward), layout)[k]])
    return _output(*_run(layers, rows, lengths, states, backward), layout, 1)


@ONNX.register("LSTM")
def lstm(
    x: Any, w: Any, r: Any, bias: Any = None, lengths: Any = None, initial_h: Any = None, initial_c: Any = None,
    peepholes: Any = None, *, direction: str, hidden_size: int | None = None, activations: Any = None,
    activation_alpha: Any = None, activation_beta: Any = None, clip: float | None = None, input_forget: int = 0,
    layout: int = 0, **_: Any,
) -> Any:  # fmt: skip
    """Gates in the order i, o, f, c; peepholes in the order i, o, f."""
    backward = _directions(direction)
    functions = _functions(activations, ("Sigmoid", "Tanh", "Tanh"), len(backward), activation_alpha, activation_beta)
    rows = _time_first(x, layout)
    layers, states = [], []
    for k, (f, g, h_of) in enumerate(functions):
        layer = _Layer(4, w, r, bias, k, clip, [f, g, h_of])
        seen = _parts(_part(peepholes, k), 3) if peepholes is not None else None

        def step(
            row: Any, h: Any, c: Any, layer: _Layer = layer, f: Activation = f, g: Activation = g,
            h_of: Activation = h_of, seen: Any = seen,
        ) -> Any:  # fmt: skip
            i, o, forget, new = _parts(op.add(row, layer.recurrent(h)), 4)
            if seen is not None:
                i, forget = op.add(i, op.multiply(seen[0], c)), op.add(forget, op.multiply(seen[2], c))
            i = f(layer.clipped(i))
            forget = op.subtract(numbers_like(1, i), i) if input_forget else f(layer.clipped(forget))
            cell = op.add(op.multiply(forget, c), op.multiply(i, g(layer.clipped(new))))
            if seen is not None:
                o = op.add(o, op.multiply(seen[1], cell))
            return op.multiply(f(layer.clipped(o)), h_of(cell)), cell

        layers.append((step, layer.inputs))
        hs = _states(initial_h, rows, layer.hidden, len(backward), layout)
        cs = _states(initial_c, rows, layer.hidden, len(backward), layout)
        states.append([hs[k], cs[k]])
    return _output(*_run(layers, rows, lengths, states, backward), layout, 2)
