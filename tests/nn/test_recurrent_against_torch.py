"""Recurrent layers and their cells against PyTorch: RNN, LSTM, GRU, RNNCell, LSTMCell, GRUCell."""

from __future__ import annotations

import numpy as np
import pytest

from pullback import nn
from pullback.ir.errors import ArgumentError, DTypeError, ShapeError
from pullback.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from pullback.relax import op
from pullback.relax.interpreter import evaluate
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.transform import AddRandomState

torch = pytest.importorskip("torch")

KINDS = ["RNN", "LSTM", "GRU"]
SHAPES = {
    "one layer": {},
    "no bias": {"bias": False},
    "two layers": {"num_layers": 2},
    "both directions": {"bidirectional": True},
    "batch first": {"batch_first": True},
    "all": {"num_layers": 3, "bidirectional": True, "batch_first": True},
}


def flat(value):
    return [leaf for v in value for leaf in flat(v)] if isinstance(value, (tuple, list)) else [value]


def results(net, twin, *inputs):
    """What ``net`` computes of the inputs with its twin's parameters, by the interpreter."""
    module = net.export(*inputs)
    found = evaluate(module, "backbone", [*inputs, *(p.detach().numpy() for p in twin.parameters())])
    return flat(found)


def compare(found, wanted):
    wanted = flat(wanted)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-12, atol=1e-12)


def pair(kind, *sizes, **options):
    torch.manual_seed(0)
    twin = getattr(torch.nn, kind)(*sizes, **options).double()
    net = getattr(nn, kind)(*sizes, **options, dtype="float64")
    assert [(n, p.shape) for n, p in net.named_parameters()] == [
        (n, tuple(p.shape)) for n, p in twin.named_parameters()
    ]
    return net, twin


def data(*shape):
    return np.random.default_rng(1).standard_normal(shape)


@pytest.mark.parametrize("options", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_layers(kind, options):
    net, twin = pair(kind, 3, 5, **options)
    x = data(4, 7, 3)
    compare(results(net, twin, x), twin(torch.tensor(x)))


def test_other_options():
    net, twin = pair("RNN", 3, 5, nonlinearity="relu")
    x = data(4, 2, 3)
    compare(results(net, twin, x), twin(torch.tensor(x)))
    net, twin = pair("LSTM", 3, 5, num_layers=2, bidirectional=True, proj_size=2)
    compare(results(net, twin, x), twin(torch.tensor(x)))


class WithState(nn.Module):
    """A layer whose first states are inputs."""

    def __init__(self, layer):
        self.layer = layer

    def forward(self, x, *states):
        return self.layer(x, states if len(states) > 1 else states[0])


@pytest.mark.parametrize("kind", KINDS)
def test_first_states(kind):
    net, twin = pair(kind, 3, 5, num_layers=2, bidirectional=True)
    x, states = data(6, 2, 3), [data(4, 2, 5) for _ in range(2 if kind == "LSTM" else 1)]
    given = [torch.tensor(s) for s in states]
    compare(
        results(WithState(net), twin, x, *states), twin(torch.tensor(x), tuple(given) if len(given) > 1 else given[0])
    )


@pytest.mark.parametrize("kind", KINDS)
def test_one_sequence(kind):
    net, twin = pair(kind, 3, 5, bidirectional=True)
    x = data(6, 3)
    module = net.export(TensorStructInfo((6, 3), "float64"))
    found = evaluate(module, "backbone", [x, *(p.detach().numpy() for p in twin.parameters())])
    compare(flat(found), twin(torch.tensor(x)))


class Packed(nn.Module):
    """A layer over padded sequences, by their lengths or as PyTorch's programs write it."""

    def __init__(self, layer, pack):
        self.layer, self.pack = layer, pack

    def forward(self, x, lengths):
        if not self.pack:
            return self.layer(x, lengths=lengths)
        output, last = self.layer(pack_padded_sequence(x, lengths, batch_first=self.layer.batch_first))
        return pad_packed_sequence(output, batch_first=self.layer.batch_first)[0], last


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_sequences_of_different_lengths(kind, batch_first, pack):
    net, twin = pair(kind, 3, 5, num_layers=2, bidirectional=True, batch_first=batch_first)
    lengths = np.array([4, 7, 1, 6])
    x = data(4, 7, 3) if batch_first else data(7, 4, 3)
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.tensor(x), torch.tensor(lengths), batch_first, False)
    output, last = twin(packed)
    wanted = torch.nn.utils.rnn.pad_packed_sequence(output, batch_first)[0]
    compare(results(Packed(net, pack), twin, x, lengths), (wanted, last))


@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("bias", [True, False])
def test_cells(kind, bias):
    net, twin = pair(kind, 3, 5, bias=bias)
    x, states = data(4, 3), [data(4, 5) for _ in range(2 if kind == "LSTMCell" else 1)]
    compare(results(net, twin, x), twin(torch.tensor(x)))
    given = tuple(map(torch.tensor, states))
    compare(results(WithState(net), twin, x, *states), twin(torch.tensor(x), given if len(given) > 1 else given[0]))


class CellInLoop(nn.Module):
    """A loop of one's own over a cell."""

    def __init__(self, cell):
        self.cell = cell

    def forward(self, x):
        h = op.zeros((x.shape[1], 5), "float64")
        (last,), (all_,) = op.scan(lambda h, row: (lambda new: ((new,), (new,)))(self.cell(row, h)), (h,), (x,))
        return all_, last


def test_a_cell_in_a_loop():
    net, twin = pair("GRUCell", 3, 5)
    x = data(6, 2, 3)
    h, rows = torch.zeros(2, 5, dtype=torch.float64), []
    for row in torch.tensor(x):
        h = twin(row, h)
        rows.append(h)
    compare(results(CellInLoop(net), twin, x), (torch.stack(rows), h))


def test_dropout_between_layers():
    """It drops outputs of all layers but the last, in training."""
    net = nn.GRU(3, 64, num_layers=2, dropout=0.5)
    x = data(5, 2, 3).astype(np.float32)
    module = AddRandomState("backbone")(net.export(x))
    net.init_parameters(seed=0)
    values = [np.asarray(p.data) for p in net.parameters()]
    first, second = (evaluate(module, "backbone", [x, *values, np.array([1, k], np.uint64)])[0] for k in (0, 1))
    assert not np.array_equal(first, second)
    assert np.all(first != 0)


def test_first_values():
    net = nn.LSTM(3, 64, num_layers=2)
    net.init_parameters(seed=0)
    for p in net.parameters():
        values = np.asarray(p.data)
        assert 0.11 < np.abs(values).max() <= 1 / 8
        assert abs(values.mean()) < 0.02


REFUSED = {
    "no size": (lambda: nn.GRU(0, 5), ArgumentError, "input_size must be a whole number"),
    "layers": (lambda: nn.GRU(3, 5, num_layers=0), ArgumentError, "num_layers"),
    "projection": (lambda: nn.LSTM(3, 5, proj_size=5), ArgumentError, "proj_size"),
    "nonlinearity": (lambda: nn.RNN(3, 5, nonlinearity="gelu"), ArgumentError, "'tanh' or 'relu'"),
    "dropout": (lambda: nn.LSTM(3, 5, dropout=2.0), ArgumentError, "dropout"),
    "truncate": (lambda: nn.LSTM(3, 5, truncate=0), ArgumentError, "truncate"),
    "features": (lambda: nn.LSTM(3, 5).export(data(4, 7, 4)), ShapeError, "must have the shape"),
    "axes": (lambda: nn.LSTM(3, 5).export(data(2, 4, 7, 3)), ShapeError, "must have the shape"),
    "state": (lambda: WithState(nn.GRU(3, 5)).export(data(4, 2, 3), data(2, 2, 5)), ShapeError, "an initial state"),
    "lengths": (
        lambda: Packed(nn.GRU(3, 5), False).export(data(4, 2, 3), np.array([1, 2, 3])),
        ShapeError,
        "lengths must have",
    ),
    "cell": (lambda: nn.GRUCell(3, 5).export(data(4, 4)), ShapeError, "must have the shape"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    make, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        make()


def test_lengths_are_whole_numbers():
    net = Packed(nn.GRU(3, 5), False)
    with pytest.raises(DTypeError, match="whole numbers"):
        net.export(TensorStructInfo((4, 2, 3), "float32"), TensorStructInfo((2,), "float32"))


@pytest.mark.parametrize("kind", KINDS)
def test_layers_called_with_arrays(kind):
    """Native code, and the results in PyTorch's tuples."""
    net, twin = pair(kind, 3, 5, num_layers=2, bidirectional=True)
    net.load_state_dict(twin.state_dict())
    x = data(6, 4, 3)
    output, last = net(x)
    assert isinstance(last, tuple) == (kind == "LSTM")
    compare(flat((output, last)), twin(torch.tensor(x)))
