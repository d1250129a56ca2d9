"""Training of recurrent layers against PyTorch: ten losses in float64, and all that a trainer does with them."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import nn, optim
from pullback.relax import BlockBuilder, TensorStructInfo, Var, op
from pullback.relax.control import scan
from pullback.relax.transform import Gradient
from pullback.runtime import get_num_threads, set_num_threads

torch = pytest.importorskip("torch")

TOLERANCE = 1e-9
KINDS = ["LSTM", "GRU"]
BATCH, LENGTH, WIDTH, HIDDEN, CLASSES = 4, 7, 3, 5, 2


def draw(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Sequences (N, L, width) and their classes."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(BATCH, LENGTH, WIDTH)), rng.integers(0, CLASSES, BATCH)


def classifier(package, kind, options, forward=None):
    """A recurrent layer and a linear one on its last output; ``forward(net, x)`` gives other outputs."""

    class Classifier(package.Module):
        def __init__(self):
            super().__init__()
            self.layer = getattr(package, kind)(WIDTH, HIDDEN, batch_first=True, **options)
            self.head = package.Linear(HIDDEN * (2 if options.get("bidirectional") else 1), CLASSES)

        def forward(self, *inputs):
            if forward is not None:
                return forward(self, *inputs)
            return self.head(self.layer(*inputs)[0][:, -1])

    return Classifier()


def twins(kind, options, ours=None, theirs=None, more=None):
    """The same classifier of both packages, in float64; ``more``: options of ours alone."""
    torch.manual_seed(0)
    twin = classifier(torch.nn, kind, options, theirs).double()
    net = classifier(nn, kind, {**options, **(more or {})}, ours).to("float64")
    net.load_state_dict({name: value.numpy() for name, value in twin.state_dict().items()})
    return net, twin


def assert_same_losses(net, twin, inputs, y, steps=10):
    """``inputs``: those of ours, of which PyTorch's twin takes the same tensors."""
    trainer = pullback.trainer(net, "cross_entropy", optim.Adam(lr=0.01), example=inputs)
    optimizer = torch.optim.Adam(twin.parameters(), lr=0.01)
    tensors, labels = [torch.from_numpy(i) for i in inputs], torch.from_numpy(y)
    expected, found = [], []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(twin(*tensors), labels)
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
        found.append(trainer.update(inputs if len(inputs) > 1 else inputs[0], y).item())
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE)
    assert expected[-1] < expected[0]


@pytest.mark.parametrize("kind", KINDS)
def test_ten_losses(kind):
    x, y = draw()
    assert_same_losses(*twins(kind, {"num_layers": 2, "bidirectional": True}), (x,), y)


@pytest.mark.parametrize("kind", KINDS)
def test_truncated(kind):
    """PyTorch's state is detached after every three steps."""

    def theirs(net, x):
        state, outputs = None, []
        for part in x.split(3, 1):
            output, state = net.layer(part, state)
            state = tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()
            outputs.append(output)
        return net.head(torch.cat(outputs, 1).mean(1))

    def ours(net, x):
        return net.head(net.layer(x)[0].mean(1))

    x, y = draw()
    assert_same_losses(*twins(kind, {}, ours, theirs, {"truncate": 3}), (x,), y)
    net, twin = twins(kind, {}, ours, theirs)
    with pytest.raises(AssertionError, match="Mismatched"):
        assert_same_losses(net, twin, (x,), y)  # the truncation matters


@pytest.mark.parametrize("kind", KINDS)
def test_sequences_of_different_lengths(kind):
    def theirs(net, x, lengths):
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        output, _ = torch.nn.utils.rnn.pad_packed_sequence(net.layer(packed)[0], batch_first=True, total_length=LENGTH)
        return net.head(output.sum(1))

    def ours(net, x, lengths):
        return net.head(net.layer(x, lengths=lengths)[0].sum(1))

    x, y = draw()
    lengths = np.array([7, 2, 5, 1])
    assert_same_losses(*twins(kind, {"bidirectional": True}, ours, theirs), (x, lengths), y)


def trainer_of(kind, precision=None, **options):
    net = classifier(nn, kind, {"num_layers": 2, "bidirectional": True, **options})
    x = draw()[0].astype("float32")
    return pullback.trainer(net, "cross_entropy", optim.Adam(lr=0.02), example=x, precision=precision, seed=3)


def task(count: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Whether the first numbers of a sequence add up to more than 0: the layer has to remember them."""
    x = np.random.default_rng(1).normal(size=(count, LENGTH, WIDTH)).astype("float32")
    return x, (x[:, :2].sum((1, 2)) > 0).astype("int64")


@pytest.mark.parametrize(
    "options", [{}, {"dropout": 0.2}, {"precision": "bfloat16"}], ids=["plain", "dropout", "mixed"]
)
def test_learns(options, tmp_path):
    """Any number of rows; what was learnt can be saved and loaded."""
    x, y = task()
    trainer = trainer_of("LSTM", **options)
    trainer.fit(x, y, epochs=30, batch_size=24, verbose=0)  # the last batch has 16
    predicted = trainer.predict(x).numpy()
    assert (predicted.argmax(1) == y).mean() > 0.9
    np.testing.assert_allclose(trainer.predict(x[:5]).numpy(), predicted[:5], rtol=1e-4, atol=1e-5)
    trainer.save(tmp_path / "state")
    other = trainer_of("LSTM", **options)
    other.load(tmp_path / "state")
    assert (other.predict(x).numpy() == predicted).all()
    losses = [t.update(x[:8], y[:8]).item() for t in (trainer, other)]
    assert losses[0] == losses[1]


@pytest.fixture
def threads():
    before = get_num_threads()
    yield set_num_threads
    set_num_threads(before)


@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_threads(kind, threads):
    x, y = task()
    found = []
    for count in (1, 2, 3):
        threads(count)
        trainer = trainer_of(kind)
        losses = [trainer.update(x, y).item() for _ in range(3)]
        found.append([np.float32(losses).tobytes(), *(v.numpy().tobytes() for v in trainer.state_dict().values())])
    assert found[0] == found[1] == found[2]


def scanned(checkpoint_every):
    """The loss of a recurrence of 64 steps and its gradients, compiled."""
    weight, x = (Var(n, TensorStructInfo(s, "float64")) for n, s in (("weight", (8, 8)), ("x", (64, 4, 8))))
    builder = BlockBuilder()
    with builder.function("main", [weight, x]):
        with builder.dataflow():

            def body(h, row):
                h = op.tanh(op.sin(op.matmul(h, weight)) + row)
                return (h,), ()

            begin = builder.emit(op.zeros((4, 8), "float64"))
            (end,), _ = scan(body, (begin,), (x,), checkpoint_every=checkpoint_every)
            result = builder.emit_output(op.sum(end))
        builder.emit_func_output(result)
    return pullback.compile(Gradient("main", ["weight", "x"])(builder.get()))


def test_segments_take_less_memory():
    rng = np.random.default_rng(0)
    arrays = [pullback.nd.array(v) for v in (rng.normal(size=(8, 8)) / 3, rng.normal(size=(64, 4, 8)))]
    whole, parts = scanned(None), scanned(8)
    expected, found = (c["main_adjoint"](*arrays) for c in (whole, parts))
    assert found[0].numpy() == expected[0].numpy()
    for a, b in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-15)
    weight, x = (torch.tensor(a.numpy(), requires_grad=True) for a in arrays)
    h = torch.zeros(4, 8, dtype=torch.float64)
    for row in x:
        h = torch.tanh(torch.sin(h @ weight) + row)
    h.sum().backward()
    for a, b in zip(expected[1], (weight.grad, x.grad), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=TOLERANCE, atol=1e-12)
    assert parts.memory("main_adjoint").arena_bytes < 0.7 * whole.memory("main_adjoint").arena_bytes
