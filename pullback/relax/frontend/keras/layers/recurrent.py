"""Recurrent layers: a cell over the steps of sequences, as one loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback.ir.errors import UserError
from pullback.relax import op
from pullback.relax.control import scan
from pullback.relax.frontend.keras.layers.form import trains
from pullback.relax.frontend.keras.ops.array import items
from pullback.relax.frontend.keras.table import KERAS, Call, cast

State = tuple[Any, ...]  # what goes from step to step
Step = Callable[[Any, State], tuple[Any, State]]  # a row of the input and the state -> the output and the new state


def run_steps(
    step: Step, rows: Any, begin: Sequence[Any], mask: Any, reverse: bool, zero_output: bool
) -> tuple[Any, Any, State]:
    """The last output, the outputs (L, N, …) in the order of the steps, and the last state, for rows (L, N, …).

    Where the mask (N, L) is false the state stays as it is, and the output is its first tensor, or zero.
    """
    xs = [rows]
    if mask is not None:
        xs.append(op.expand_dims(op.permute_dims(cast(mask, "bool"), (1, 0)), 2))
    count = len(begin)

    def body(*values: Any) -> tuple[State, tuple[Any]]:
        state, row = tuple(values[:count]), values[count]
        output, new = step(row, state)
        if mask is None:
            return tuple(new), (output,)
        kept = values[count + 1]
        old = op.zeros_like(output) if zero_output else state[0]
        output = op.where(_like(kept, output), output, old)
        return tuple(op.where(_like(kept, n), n, s) for n, s in zip(new, state, strict=True)), (output,)

    found = scan(body, tuple(begin), tuple(xs), reverse=reverse)
    states = tuple(found[0][k] for k in range(count))
    outputs = op.flip(found[1][0], 0) if reverse else found[1][0]
    size = outputs.shape[0]
    last = op.take(outputs, op.shape_to_tensor((size,))[0] - 1, 0) if not isinstance(size, int) else outputs[size - 1]
    return last, outputs, states


def _like(kept: Any, x: Any) -> Any:
    """(N, 1) with as many axes as x."""
    missing = len(x.shape) - 2
    return op.expand_dims(kept, list(range(2, 2 + missing))) if missing > 0 else kept


def _layer(
    c: Call, sequences: Any, initial_state: Any, mask: Any, step_of: Callable[[Any], tuple[Step, Any]], sizes: Any
) -> Any:
    """What a recurrent layer returns. ``step_of``: from the rows (L, N, …) to the step, and what it gets of them."""
    if c.stateful:
        raise UserError("a stateful recurrent layer is not converted", hint="stateful=False, and give initial_state")
    rows = op.permute_dims(sequences, [1, 0, *range(2, len(sequences.shape))])
    if initial_state is None:
        begin = [op.zeros(size, c.compute_dtype) for size in sizes(rows)]
    else:
        given = initial_state if isinstance(initial_state, (list, tuple)) else [initial_state]
        begin = [cast(s, c.compute_dtype) for s in given]
    step, given_rows = step_of(rows)
    last, outputs, states = run_steps(
        step, given_rows, begin, mask, bool(c.go_backwards), bool(c.zero_output_for_mask)
    )  # fmt: skip
    output = op.permute_dims(outputs, [1, 0, *range(2, len(outputs.shape))]) if c.return_sequences else last
    return (output, *states) if c.return_state else output


@KERAS.register("layers.RNN", "layers.ConvLSTM1D", "layers.ConvLSTM2D", "layers.ConvLSTM3D")
def rnn(c: Call, sequences: Any, initial_state: Any = None, mask: Any = None, training: Any = None) -> Any:
    """A layer with any cell, whose call is traced as the body of the loop."""
    cell = c.cell
    kwargs = {"training": training} if getattr(cell, "_call_has_training_arg", False) else {}
    is_image = hasattr(cell, "spatial_dims")  # of ConvLSTM, whose two states are images
    shapes = [0, 0] if is_image else c.state_size

    def step_of(rows: Any) -> tuple[Step, Any]:
        def step(row: Any, state: State) -> tuple[Any, State]:
            output, new = c.run(cell, row, _nested(shapes, list(state)), **kwargs)
            return output, tuple(_flat(new))

        return step, rows

    def sizes(rows: Any) -> list[Any]:
        if is_image:
            inner = tuple(cell.compute_output_shape((1, *rows.shape[2:]))[0][1:])
            return [(rows.shape[1], *inner)] * 2
        return [(rows.shape[1], size) for size in _flat(shapes)]

    initial = None if initial_state is None else _flat(initial_state)
    return _layer(c, sequences, initial, mask, step_of, sizes)


def _flat(value: Any) -> list[Any]:
    return [v for item in value for v in _flat(item)] if isinstance(value, (list, tuple)) else [value]


def _nested(like: Any, values: list[Any]) -> Any:
    """Values in the structure of a list of sizes."""
    return [_nested(s, values) if isinstance(s, (list, tuple)) else values.pop(0) for s in like]


# -- the cells of Keras, whose products with the input are one product for all steps


def _drops(cell: Any, rate: float, training: Any, x: Any, count: int) -> list[Any] | None:
    """Dropout's factors for (N, features), of each gate, which are those of all steps; None where nothing drops."""
    if not rate or not trains(training):
        return None
    ones = op.ones(tuple(x.shape[-2:]), x.dtype)
    return [op.dropout(ones, p=float(rate)) for _ in range(count)]


def _given(c: Call, cell: Any, rows: Any, bias: Any, gates: int, training: Any) -> Any:
    """The products of all rows with the kernel, plus a bias."""
    kernel, each = c.weight(cell.kernel), gates if getattr(cell, "implementation", 2) == 1 else 1
    masks = _drops(cell, cell.dropout, training, rows, each)
    if masks is None:
        found = op.matmul(rows, kernel)
    elif each == 1:
        found = op.matmul(rows * masks[0], kernel)
    else:
        parts = items(op.split(kernel, gates, 1))
        found = op.concat([op.matmul(rows * m, k) for m, k in zip(masks, parts, strict=True)], -1)
    return found if bias is None else found + bias


class _Hidden:
    """Products of a state with the recurrent kernel, for all gates or some, after dropout."""

    def __init__(self, c: Call, cell: Any, rows: Any, gates: int, training: Any) -> None:
        self.kernel, self.gates = c.weight(cell.recurrent_kernel), gates
        self.units = cell.units
        each = gates if getattr(cell, "implementation", 2) == 1 else 1
        like = op.zeros((rows.shape[1], self.units), rows.dtype)
        self.masks = _drops(cell, cell.recurrent_dropout, training, like, each)

    def __call__(self, h: Any, first: int = 0, last: int | None = None) -> Any:
        last = self.gates if last is None else last
        if self.masks is None or len(self.masks) == 1:
            x = h if self.masks is None else h * self.masks[0]
            return op.matmul(x, self._part(first, last))
        parts = [op.matmul(h * self.masks[k], self._part(k, k + 1)) for k in range(first, last)]
        return parts[0] if len(parts) == 1 else op.concat(parts, -1)

    def _part(self, first: int, last: int) -> Any:
        if (first, last) == (0, self.gates):
            return self.kernel
        return op.strided_slice(self.kernel, [1], [first * self.units], [last * self.units])


def _bias(c: Call, cell: Any) -> Any:
    return c.weight(cell.bias) if cell.use_bias else None


def _units(cell: Any, count: int) -> Callable[[Any], list[Any]]:
    return lambda rows: [(rows.shape[1], cell.units)] * count


@KERAS.register("layers.SimpleRNN")
def simple_rnn(c: Call, sequences: Any, initial_state: Any = None, mask: Any = None, training: Any = None) -> Any:
    cell = c.cell

    def step_of(rows: Any) -> tuple[Step, Any]:
        hidden = _Hidden(c, cell, rows, 1, training)

        def step(x: Any, state: State) -> tuple[Any, State]:
            h = c.activation(cell.activation, x + hidden(state[0]))
            return h, (h,)

        return step, _given(c, cell, rows, _bias(c, cell), 1, training)

    return _layer(c, sequences, initial_state, mask, step_of, _units(cell, 1))


@KERAS.register("layers.LSTM")
def lstm(c: Call, sequences: Any, initial_state: Any = None, mask: Any = None, training: Any = None) -> Any:
    cell = c.cell

    def step_of(rows: Any) -> tuple[Step, Any]:
        hidden = _Hidden(c, cell, rows, 4, training)

        def step(x: Any, state: State) -> tuple[Any, State]:
            gates = op.split(x + hidden(state[0]), 4, -1)
            i, f, o = (c.activation(cell.recurrent_activation, gates[k]) for k in (0, 1, 3))
            carry = f * state[1] + i * c.activation(cell.activation, gates[2])
            h = o * c.activation(cell.activation, carry)
            return h, (h, carry)

        return step, _given(c, cell, rows, _bias(c, cell), 4, training)

    return _layer(c, sequences, initial_state, mask, step_of, _units(cell, 2))


@KERAS.register("layers.GRU")
def gru(c: Call, sequences: Any, initial_state: Any = None, mask: Any = None, training: Any = None) -> Any:
    cell = c.cell
    given_bias = kept_bias = None
    if cell.use_bias:
        bias = c.weight(cell.bias)
        given_bias, kept_bias = (bias[0], bias[1]) if cell.reset_after else (bias, None)

    def step_of(rows: Any) -> tuple[Step, Any]:
        hidden = _Hidden(c, cell, rows, 3, training)

        def step(x: Any, state: State) -> tuple[Any, State]:
            (h,) = state
            given = items(op.split(x, 3, -1))
            if cell.reset_after:
                product = hidden(h)
                kept = items(op.split(product if kept_bias is None else product + kept_bias, 3, -1))
            else:
                kept = items(op.split(hidden(h, 0, 2), 2, -1))
            z, r = (c.activation(cell.recurrent_activation, given[k] + kept[k]) for k in (0, 1))
            candidate = r * kept[2] if cell.reset_after else hidden(r * h, 2, 3)
            new = c.activation(cell.activation, given[2] + candidate)
            h = z * h + (1.0 - z) * new
            return h, (h,)

        return step, _given(c, cell, rows, given_bias, 3, training)

    return _layer(c, sequences, initial_state, mask, step_of, _units(cell, 1))
