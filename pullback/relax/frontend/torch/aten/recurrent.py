"""Recurrent layers, which stay loops over the steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pullback import nn
from pullback.relax.frontend.torch.table import ATEN


class _Kind(Protocol):
    """A class of recurrent layers or of cells."""

    @property
    def gates(self) -> int: ...

    def __call__(self, *args: Any, **options: Any) -> Any: ...


def _layer(
    kind: _Kind, params: Sequence[Any], has_biases: bool, num_layers: int, dropout: float, bidirectional: bool,
    proj_size: int = 0, **more: Any,
) -> Any:  # fmt: skip
    """A layer of ``kind`` whose parameters are graph values: the flat weights of PyTorch."""
    gates = kind.gates
    hidden, given = params[0].shape[0] // gates, params[0].shape[1]
    extra = {"proj_size": proj_size} if proj_size else {}
    layer = kind(
        given, hidden, num_layers, bias=has_biases, dropout=dropout, bidirectional=bidirectional, **extra, **more
    )  # fmt: skip
    values = iter(params)
    for k in range(num_layers):
        for suffix in ("", "_reverse")[: 1 + bidirectional]:
            names = ["weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if has_biases else ())]
            for name in (*names, *(("weight_hr",) if proj_size else ())):
                full = f"{name}_l{k}{suffix}"
                delattr(layer, full)
                setattr(layer, full, next(values))
    return layer


def _run(layer: Any, input: Any, hx: Sequence[Any], batch_first: bool) -> tuple[Any, ...]:
    layer.batch_first = batch_first
    output, states = layer.run(input, tuple(hx), None)
    return output, *states


@ATEN.register("aten.lstm.input")
def lstm(
    input: Any, hx: Sequence[Any], params: Sequence[Any], has_biases: bool, num_layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    size, hidden = hx[0].shape[-1], params[0].shape[0] // 4
    p = dropout if train else 0.0
    layer = _layer(nn.LSTM, params, has_biases, num_layers, p, bidirectional, 0 if size == hidden else size)
    return _run(layer, input, hx, batch_first)


@ATEN.register("aten.gru.input")
def gru(
    input: Any, hx: Any, params: Sequence[Any], has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    layer = _layer(nn.GRU, params, has_biases, num_layers, dropout if train else 0.0, bidirectional)
    return _run(layer, input, (hx,), batch_first)


PLAIN: dict[str, Callable[..., Any]] = {}  # rnn_tanh and rnn_relu


def _add_plain(nonlinearity: str) -> None:
    def rnn(
        input: Any, hx: Any, params: Sequence[Any], has_biases: bool, num_layers: int, dropout: float, train: bool,
        bidirectional: bool, batch_first: bool,
    ) -> Any:  # fmt: skip
        p = dropout if train else 0.0
        layer = _layer(nn.RNN, params, has_biases, num_layers, p, bidirectional, nonlinearity=nonlinearity)
        return _run(layer, input, (hx,), batch_first)

    def cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
        return _cell(nn.RNNCell, input, (hx,), (w_ih, w_hh, b_ih, b_hh), nonlinearity=nonlinearity)[0]

    PLAIN[nonlinearity] = ATEN.register(f"aten.rnn_{nonlinearity}.input")(rnn)
    ATEN.register(f"aten.rnn_{nonlinearity}_cell")(cell)


_add_plain("tanh")
_add_plain("relu")


def _cell(kind: _Kind, input: Any, state: Sequence[Any], weights: Sequence[Any], **more: Any) -> Any:
    gates = kind.gates
    cell = kind(weights[0].shape[1], weights[0].shape[0] // gates, bias=weights[2] is not None, **more)
    for name, value in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), weights, strict=True):
        delattr(cell, name)
        setattr(cell, name, value)
    return cell.run(input, tuple(state))


@ATEN.register("aten.lstm_cell")
def lstm_cell(input: Any, hx: Sequence[Any], w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
    return tuple(_cell(nn.LSTMCell, input, hx, (w_ih, w_hh, b_ih, b_hh)))


@ATEN.register("aten.gru_cell")
def gru_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
    return _cell(nn.GRUCell, input, (hx,), (w_ih, w_hh, b_ih, b_hh))[0]


ATEN.refuse(
    {
        f"aten.{name}.data": "packed sequences have sizes that depend on the data; pad them, and mask what is beyond"
        for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")
    }
)
