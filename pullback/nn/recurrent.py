"""Recurrent layers: a cell over the steps of sequences, as one loop whatever their length.

    h = h0                                  x = linear(input, weight_ih, bias_ih)           # all steps, one product
    for t in range(L):              →       (h,), (output,) = R.scan(step, (h0,), (x,))
        h = cell(input[t], h)
        output[t] = h

What a step adds up of its input is one product for all steps before the loop; the loop has the product with the state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from pullback.ir.errors import ArgumentError, DTypeError, ShapeError
from pullback.nn.functional.linear import linear
from pullback.nn.init import Uniform
from pullback.nn.module import Module
from pullback.nn.parameter import Parameter
from pullback.nn.utils.rnn import PackedSequence
from pullback.relax import op
from pullback.relax.control import scan
from pullback.relax.expr import as_relax, const
from pullback.relax.struct_info import format_shape, same_shape

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]

State = tuple[Any, ...]  # what goes from step to step: h, and of an LSTM c


# -- one step: what comes of the input, and the state -> the new state, of which the first is the output


def _plain_step(activation: Callable[[Any], Any], x: Any, state: State, hidden: Callable[[Any], Any]) -> State:
    return (activation(x + hidden(state[0])),)


def _lstm_step(x: Any, state: State, hidden: Callable[[Any], Any]) -> State:
    """Hochreiter & Schmidhuber, Long Short-Term Memory, 1997, with the forget gate of Gers et al., 2000."""
    gates = op.split(x + hidden(state[0]), 4, -1)
    i, f, o = (op.sigmoid(gates[k]) for k in (0, 1, 3))
    c = f * state[1] + i * op.tanh(gates[2])
    return o * op.tanh(c), c


def _gru_step(x: Any, state: State, hidden: Callable[[Any], Any]) -> State:
    """Cho et al., Learning Phrase Representations using RNN Encoder-Decoder, 2014; the reset gate after the product."""
    given, kept = op.split(x, 3, -1), op.split(hidden(state[0]), 3, -1)
    r, z = (op.sigmoid(given[k] + kept[k]) for k in (0, 1))
    n = op.tanh(given[2] + r * kept[2])
    return ((state[0] - n) * z + n,)


_ACTIVATIONS = {"tanh": op.tanh, "relu": op.nn.relu}


def _activation(nonlinearity: str) -> Callable[[Any], Any]:
    if nonlinearity not in _ACTIVATIONS:
        raise ArgumentError(f"nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}", hint="tanh is the default")
    return _ACTIVATIONS[nonlinearity]


def _expect_size(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ArgumentError(f"{name} must be a whole number, at least 1, got {value!r}", hint="nn.LSTM(32, 64)")


# -- layers over sequences


class _Recurrent(Module):
    """What RNN, LSTM and GRU share."""

    gates: ClassVar[int]
    states: ClassVar[int] = 1  # how many tensors go from step to step

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        batch_first: bool,
        dropout: float,
        bidirectional: bool,
        proj_size: int,
        truncate: int | None,
        dtype: str | None,
    ) -> None:
        for name, value in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
            _expect_size(name, value)
        if truncate is not None:
            _expect_size("truncate", truncate)
        if not 0 <= dropout <= 1:
            raise ArgumentError(f"dropout must be a number from 0 to 1, got {dropout!r}")
        if not 0 <= proj_size < hidden_size:
            raise ArgumentError(f"proj_size must be at least 0 and below hidden_size, got {proj_size}")
        self.input_size, self.hidden_size, self.num_layers, self.bias = input_size, hidden_size, num_layers, bias
        self.batch_first, self.dropout, self.bidirectional = batch_first, float(dropout), bidirectional
        self.proj_size, self.truncate = proj_size, truncate
        bound, size = 1 / math.sqrt(hidden_size), proj_size or hidden_size
        rows = self.gates * hidden_size
        for k in range(num_layers):
            columns = input_size if k == 0 else size * len(self._directions)
            for suffix in self._directions:
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, columns), "weight_hh": (rows, size)}
                shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)} if bias else {}
                shapes |= {"weight_hr": (proj_size, hidden_size)} if proj_size else {}
                for name, shape in shapes.items():
                    parameter = Parameter(shape, init=Uniform(-bound, bound), dtype=dtype)
                    setattr(self, f"{name}_l{k}{suffix}", parameter)

    @property
    def _directions(self) -> tuple[str, ...]:
        return ("", "_reverse") if self.bidirectional else ("",)

    def step(self, x: Any, state: State, hidden: Callable[[Any], Any]) -> State:
        raise NotImplementedError

    def run(self, input: Any, initial: State | None, lengths: Any) -> tuple[Any, State]:
        """The outputs in the layout of the input, and the last states, each (layers · directions, N, size)."""
        packed = input if isinstance(input, PackedSequence) else None
        if packed is not None:
            if lengths is not None:
                raise ArgumentError("a packed sequence has lengths: lengths= is one too many", hint="leave it out")
            input, lengths = packed.data, packed.lengths
        batch_first = self.batch_first if packed is None else packed.batch_first
        x, batched = self._steps_first(input, batch_first)
        count = len(self._directions) * self.num_layers
        sizes = [self.proj_size or self.hidden_size, self.hidden_size][: self.states]
        states = self._initial(initial, x, count, sizes, batched)
        limits = None if lengths is None else self._limits(lengths, x)
        last: list[State] = []
        for k in range(self.num_layers):
            results = []
            for suffix in self._directions:
                begin = tuple(s[len(last)] for s in states)
                state, output = self._direction(f"_l{k}{suffix}", x, begin, limits, bool(suffix))
                last.append(state)
                results.append(output)
            x = results[0] if len(results) == 1 else op.concat(results, -1)
            if self.dropout and k + 1 < self.num_layers:
                x = op.dropout(x, p=self.dropout)
        ends = tuple(op.stack([state[i] for state in last], 0) for i in range(self.states))
        if not batched:
            return op.squeeze(x, 1), tuple(op.squeeze(e, 1) for e in ends)
        output = op.permute_dims(x, (1, 0, 2)) if batch_first else x
        return output if packed is None else packed._replace(data=output), ends

    def _steps_first(self, x: Any, batch_first: bool) -> tuple[Any, bool]:
        """(L, N, size), and whether the input has a batch."""
        if len(x.shape) not in (2, 3) or x.shape[-1] != self.input_size:
            axes = "N, L" if batch_first else "L, N"
            wanted = f"({axes}, {self.input_size}) or (L, {self.input_size})"
            raise ShapeError(f"the input must have the shape {wanted}, got {format_shape(x.shape)}")
        if len(x.shape) == 2:
            return op.expand_dims(x, 1), False
        return (op.permute_dims(x, (1, 0, 2)) if batch_first else x), True

    def _initial(self, initial: State | None, x: Any, count: int, sizes: list[int], batched: bool) -> list[Any]:
        """The first states of all layers and directions: given, or zeros."""
        shapes = [(count, x.shape[1], size) for size in sizes]
        if initial is None:
            return [[op.zeros(shape[1:], x.dtype)] * count for shape in shapes]
        found = []
        for value, shape in zip(initial, shapes, strict=True):
            value = as_relax(value)
            value = value if batched else op.expand_dims(value, 1)
            if not same_shape(value.shape, shape):
                wanted, got = format_shape(shape), format_shape(value.shape)
                raise ShapeError(f"an initial state must have the shape {wanted}, got {got}")
            found.append(value)
        return found

    def _limits(self, lengths: Any, x: Any) -> Any:
        lengths = as_relax(lengths)
        if len(lengths.shape) != 1 or not same_shape(lengths.shape, x.shape[1:2]):
            wanted, got = format_shape(x.shape[1:2]), format_shape(lengths.shape)
            raise ShapeError(f"lengths must have the shape {wanted}, got {got}", hint="a length for each sequence")
        if not lengths.dtype.startswith(("int", "uint")):
            raise DTypeError(f"lengths must be whole numbers, got {lengths.dtype}", hint='lengths.astype("int64")')
        return op.expand_dims(op.astype(lengths, "int64"), 1)

    def _direction(self, suffix: str, x: Any, begin: State, limits: Any, reverse: bool) -> tuple[State, Any]:
        """One layer in one direction: its last state, and its outputs (L, N, size)."""
        weight, projection = getattr(self, f"weight_hh{suffix}"), getattr(self, f"weight_hr{suffix}", None)
        bias_ih, bias_hh = (getattr(self, f"{name}{suffix}", None) for name in ("bias_ih", "bias_hh"))
        given = linear(x, getattr(self, f"weight_ih{suffix}"), bias_ih)
        needs_step = limits is not None or self.truncate is not None

        def body(*values: Any) -> tuple[State, tuple[Any]]:
            state, row = values[: self.states], values[self.states]
            number = values[self.states + 1] if needs_step else None
            begin = state if self.truncate is None else self._cut(state, number, reverse)
            new = self.step(row, begin, lambda h: linear(h, weight, bias_hh))
            if projection is not None:
                new = (linear(new[0], projection), *new[1:])
            output = new[0]
            if limits is not None:
                inside = op.less(number, limits)
                output = op.where(inside, output, op.zeros_like(output))
                new = tuple(op.where(inside, n, s) for n, s in zip(new, state, strict=True))
            return new, (output,)

        steps = [op.arange(0, x.shape[0], 1, "int64")] if needs_step else []
        result = scan(body, begin, (given, *steps), reverse=reverse)
        return tuple(result[0]), result[1][0]

    def _cut(self, state: State, number: Any, reverse: bool) -> State:
        """The state, through which no gradient flows at the beginning of each segment."""
        place = op.mod(number + 1 if reverse else number, const(self.truncate, "int64"))
        first = op.equal(place, const(0, "int64"))
        return tuple(op.where(first, op.grad.no_grad(s), s) for s in state)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        plain: dict[str, Any] = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0}
        plain |= {"bidirectional": False, "proj_size": 0, "truncate": None}
        values = ((name, getattr(self, name)) for name in plain)
        return text + "".join(f", {name}={value}" for name, value in values if value != plain[name])


class RNN(_Recurrent):
    """tanh(weight_ih·x + bias_ih + weight_hh·h + bias_hh) from step to step; ``nonlinearity`` "relu" in its place.

    Elman, Finding Structure in Time, 1990. Inputs and parameters as of :class:`LSTM`, without projections.

    Args:
        input_size: size of the last axis of the input.
        hidden_size: size of the state.
        num_layers: layers, one after the other.
        nonlinearity: "tanh" or "relu".
        bias: whether there is a bias.
        batch_first: whether inputs and results are (N, L, …) rather than (L, N, …).
        dropout: of the outputs between layers, in steps.
        bidirectional: whether a second direction goes from the end to the beginning; results are concatenated.
        truncate: through how many steps gradients flow back at most; None: all.
        dtype: of the parameters, float32 by default.
    """

    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        truncate: int | None = None,
        dtype: str | None = None,
    ) -> None:
        _activation(nonlinearity)
        self.nonlinearity = nonlinearity
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, truncate, dtype
        )

    def step(self, x: Any, state: State, hidden: Callable[[Any], Any]) -> State:
        return _plain_step(_activation(self.nonlinearity), x, state, hidden)

    def forward(self, input: Any, hx: Any = None, lengths: Any = None) -> tuple[Any, Any]:
        """(output, h_n): the outputs of the last layer for all steps, and the last state of each layer and direction,
        (num_layers · directions, N, hidden_size). ``hx``: the first states, zeros by default."""
        output, (h,) = self.run(input, None if hx is None else (hx,), lengths)
        return output, h


class LSTM(_Recurrent):
    """Long short-term memory: gates decide what a cell keeps, takes and shows.

    Arguments, parameters and their names are those of ``torch.nn.LSTM``: for layer k ``weight_ih_lk``,
    ``weight_hh_lk``, ``bias_ih_lk`` and ``bias_hh_lk``, with ``proj_size`` also ``weight_hr_lk``, and with ``_reverse``
    those of the other direction; uniform in ±1/√hidden_size at first. ``dropout`` drops outputs between layers in
    training.

    Inputs are (L, N, input_size), with ``batch_first`` (N, L, input_size), or (L, input_size), or what
    ``nn.utils.rnn.pack_padded_sequence`` gives. ``lengths`` (N,), whole numbers: of sequences that are padded at their
    end, outputs after it are 0, the last states are those at the end, and the other direction begins there.

    Args:
        input_size: size of the last axis of the input.
        hidden_size: size of the state.
        num_layers: layers, one after the other.
        bias: whether there is a bias.
        batch_first: whether inputs and results are (N, L, …) rather than (L, N, …).
        dropout: of the outputs between layers, in steps.
        bidirectional: whether a second direction goes from the end to the beginning; results are concatenated.
        proj_size: size of a projection of the hidden state; 0: none.
        truncate: gradients flow back through at most so many steps.
        dtype: of the parameters, float32 by default.

    Raises:
        ArgumentError: for sizes that are none.
        ShapeError: for inputs and states that do not fit.

    Examples:
        >>> lstm = nn.LSTM(16, 32, num_layers=2, batch_first=True)
        >>> output, (h, c) = lstm(np.zeros((4, 10, 16), "float32"))
        >>> output.shape, h.shape
        ((4, 10, 32), (2, 4, 32))
    """

    gates, states = 4, 2

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        *,
        truncate: int | None = None,
        dtype: str | None = None,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, truncate, dtype
        )

    def step(self, x: Any, state: State, hidden: Callable[[Any], Any]) -> State:
        return _lstm_step(x, state, hidden)

    def forward(self, input: Any, hx: Any = None, lengths: Any = None) -> tuple[Any, tuple[Any, Any]]:
        """(output, (h_n, c_n)): the outputs of the last layer for all steps, and the last states of each layer and
        direction, (num_layers · directions, N, hidden_size); with ``proj_size`` output and h are of that size.
        ``hx``: (h_0, c_0), zeros by default."""
        if hx is not None and len(hx) != 2:
            raise ArgumentError("the first states of an LSTM are two", hint="hx is (h_0, c_0)")
        output, (h, c) = self.run(input, None if hx is None else tuple(hx), lengths)
        return output, (h, c)


class GRU(_Recurrent):
    """Gated recurrent unit: gates decide what of the state is seen, and what is replaced.

    Inputs and parameters as of :class:`LSTM`, without projections; names and formulas as in ``torch.nn.GRU``.

    Args:
        input_size: size of the last axis of the input.
        hidden_size: size of the state.
        num_layers: layers, one after the other.
        bias: whether there is a bias.
        batch_first: whether inputs and results are (N, L, …) rather than (L, N, …).
        dropout: of the outputs between layers, in steps.
        bidirectional: whether a second direction goes from the end to the beginning; results are concatenated.
        truncate: through how many steps gradients flow back at most; None: all.
        dtype: of the parameters, float32 by default.

    Examples:
        >>> output, h = nn.GRU(16, 32, bidirectional=True)(np.zeros((10, 4, 16), "float32"))
        >>> output.shape
        (10, 4, 64)
    """

    gates = 3

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        truncate: int | None = None,
        dtype: str | None = None,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, truncate, dtype
        )

    def step(self, x: Any, state: State, hidden: Callable[[Any], Any]) -> State:
        return _gru_step(x, state, hidden)

    def forward(self, input: Any, hx: Any = None, lengths: Any = None) -> tuple[Any, Any]:
        """(output, h_n): the outputs of the last layer for all steps, and the last state of each layer and direction,
        (num_layers · directions, N, hidden_size). ``hx``: the first states, zeros by default."""
        output, (h,) = self.run(input, None if hx is None else (hx,), lengths)
        return output, h


# -- single steps


class _Cell(Module):
    """What RNNCell, LSTMCell and GRUCell share. Parameters: ``weight_ih`` (gates · hidden_size, input_size),
    ``weight_hh`` (gates · hidden_size, hidden_size), ``bias_ih`` and ``bias_hh``, as in PyTorch."""

    gates: ClassVar[int]
    states: ClassVar[int] = 1

    def __init__(self, input_size: int, hidden_size: int, bias: bool, dtype: str | None) -> None:
        _expect_size("input_size", input_size)
        _expect_size("hidden_size", hidden_size)
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        bound, rows = 1 / math.sqrt(hidden_size), self.gates * hidden_size

        def parameter(*shape: int) -> Parameter:
            return Parameter(shape, init=Uniform(-bound, bound), dtype=dtype)

        self.weight_ih, self.weight_hh = parameter(rows, input_size), parameter(rows, hidden_size)
        self.bias_ih = parameter(rows) if bias else None
        self.bias_hh = parameter(rows) if bias else None

    def step(self, x: Any, state: State, hidden: Callable[[Any], Any]) -> State:
        raise NotImplementedError

    def run(self, input: Any, state: State | None) -> State:
        """The new state of an input (N, input_size) or (input_size,)."""
        if len(input.shape) not in (1, 2) or input.shape[-1] != self.input_size:
            wanted = f"(N, {self.input_size}) or ({self.input_size},)"
            raise ShapeError(f"the input must have the shape {wanted}, got {format_shape(input.shape)}")
        shape = (*input.shape[:-1], self.hidden_size)
        if state is None:
            state = (op.zeros(shape, input.dtype),) * self.states
        for value in state:
            if not same_shape(value.shape, shape):
                raise ShapeError(f"a state must have the shape {format_shape(shape)}, got {format_shape(value.shape)}")
        x = linear(input, self.weight_ih, self.bias_ih)
        return self.step(x, tuple(state), lambda h: linear(h, self.weight_hh, self.bias_hh))

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(_Cell):
    """One step of :class:`RNN`: (N, input_size) and a state (N, hidden_size) give the new state.

    Parameters: ``weight_ih``, ``weight_hh``, ``bias_ih`` and ``bias_hh``, as in ``torch.nn.RNNCell``.

    Args:
        input_size: size of the last axis of the input.
        hidden_size: size of the state.
        bias: whether there is a bias.
        nonlinearity: "tanh" or "relu".
        dtype: of the parameters, float32 by default.
    """

    gates = 1

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", *,
        dtype: str | None = None,
    ) -> None:  # fmt: skip
        _activation(nonlinearity)
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, bias, dtype)

    def step(self, x: Any, state: State, hidden: Callable[[Any], Any]) -> State:
        return _plain_step(_activation(self.nonlinearity), x, state, hidden)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """The new state; ``hx``: the old one, zeros by default."""
        return self.run(input, None if hx is None else (hx,))[0]


class LSTMCell(_Cell):
    """One step of :class:`LSTM`: (N, input_size) and the states h and c, (N, hidden_size), give the new ones.

    Parameters: ``weight_ih``, ``weight_hh``, ``bias_ih`` and ``bias_hh``, as in ``torch.nn.LSTMCell``.

    Args:
        input_size: size of the last axis of the input.
        hidden_size: size of the state.
        bias: whether there is a bias.
        dtype: of the parameters, float32 by default.
    """

    gates, states = 4, 2

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, *, dtype: str | None = None) -> None:
        super().__init__(input_size, hidden_size, bias, dtype)

    def step(self, x: Any, state: State, hidden: Callable[[Any], Any]) -> State:
        return _lstm_step(x, state, hidden)

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """(h, c), the new states; ``hx``: the old ones, zeros by default."""
        h, c = self.run(input, None if hx is None else tuple(hx))
        return h, c


class GRUCell(_Cell):
    """One step of :class:`GRU`: (N, input_size) and a state (N, hidden_size) give the new state.

    Parameters: ``weight_ih``, ``weight_hh``, ``bias_ih`` and ``bias_hh``, as in ``torch.nn.GRUCell``.

    Args:
        input_size: size of the last axis of the input.
        hidden_size: size of the state.
        bias: whether there is a bias.
        dtype: of the parameters, float32 by default.
    """

    gates = 3

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, *, dtype: str | None = None) -> None:
        super().__init__(input_size, hidden_size, bias, dtype)

    def step(self, x: Any, state: State, hidden: Callable[[Any], Any]) -> State:
        return _gru_step(x, state, hidden)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """The new state; ``hx``: the old one, zeros by default."""
        return self.run(input, None if hx is None else (hx,))[0]
