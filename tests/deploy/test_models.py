"""Exported trainers of many kinds: ten native steps are Python's bit for bit, and what cannot be exported is told."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import nn, optim
from pullback.deploy.program import program_of
from pullback.deploy.targets import platform
from pullback.ir.errors import ArgumentError, TargetError, UserError
from pullback.nn import functional as F
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.training import SetupTrainer, Trainer
from pullback.relax.training.loss import CrossEntropyLoss, MSELoss
from pullback.script import ir as I
from pullback.script import relax as R
from tests.deploy.exported import Instance, kept

BATCH = 8
RNG = np.random.default_rng(0)
X = RNG.normal(size=(10 * BATCH, 12)).astype(np.float32)
Y = RNG.integers(0, 3, len(X))
AGE = RNG.normal(size=(len(X), 1)).astype(np.float32)
SCORE = RNG.normal(size=(len(X), 1)).astype(np.float32)
CLASS_WEIGHTS = np.array([1.0, 0.5, 2.0], np.float32)


def mlp(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), *layers, nn.Linear(16, 3))


class Both(nn.Module):
    """Two inputs and two outputs."""

    def __init__(self) -> None:
        self.body = nn.Linear(13, 16)
        self.kind, self.score = nn.Linear(16, 3), nn.Linear(16, 1)

    def forward(self, image, age):
        h = F.relu(self.body(F.cat([image, age], dim=1)))
        return self.kind(h), self.score(h)


def both_loss(kind, score, true_kind, true_score):
    return F.cross_entropy(kind, true_kind) + 0.5 * F.mse_loss(score, true_score)


class Image(nn.Module):
    """A convolution with batch norm and dropout."""

    def __init__(self) -> None:
        self.conv, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.drop, self.head = nn.Dropout(0.25), nn.Linear(48, 3)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x.reshape(-1, 1, 3, 4))))
        return self.head(self.drop(x.flatten(1)))


class Text(nn.Module):
    """Attention over tokens."""

    def __init__(self) -> None:
        self.embed = nn.Embedding(11, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.1)
        self.head = nn.Linear(16, 11)

    def forward(self, tokens):
        return self.head(self.block(self.embed(tokens))).transpose(1, 2)


class Recurrent(nn.Module):
    """A recurrent layer, a loop of one's own that draws in each step, and a branch."""

    def __init__(self) -> None:
        self.layer, self.head = nn.GRU(3, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        _, last = self.layer(x.reshape(-1, 4, 3))
        h = last[0]
        (h,) = R.fori_loop(3, lambda i, h: (R.dropout(R.tanh(h * 1.5), p=0.2),), (h,))
        h = R.cond(R.sum(h) > 0.0, lambda: h * 2.0, lambda: h)
        return self.head(h)


class Tree(nn.Module):
    """Four rows as a tree of numbers of rows, which calls itself."""

    def __init__(self) -> None:
        self.left, self.right, self.head = nn.Linear(3, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        rows = x.reshape(-1, 4, 3)

        def node(node, k):
            own = R.tanh(self.left(R.take(rows, k, axis=1)))
            return R.cond(k < 3, lambda: own + R.tanh(self.right(node(k + 1))) * node(k + 2), lambda: own)

        kind = R.Tensor((x.shape[0], 8), "float32")
        root = R.recursive(lambda f, k: R.cond(k > 3, lambda: R.zeros(kind.shape, "float32"), lambda: node(f, k)),
                           (R.Tensor((), "int64"),), kind)  # fmt: skip
        return self.head(root(R.const(0)))


class Halting(nn.Module):
    """As many steps as the data asks for, which keep their values for the gradient in boxes."""

    def __init__(self, max_steps: int | None = None) -> None:
        self.max_steps = max_steps
        self.first, self.step, self.head = nn.Linear(12, 16), nn.Linear(16, 16), nn.Linear(16, 3)

    def forward(self, x):
        h = F.tanh(self.first(x))
        going_on = lambda h: R.sum(h * h) > 4.0  # noqa: E731
        body = lambda h: (F.tanh(self.step(h)) * 0.3 + h * 0.5,)  # noqa: E731
        (h,) = R.while_loop(going_on, body, (h,), max_steps=self.max_steps)
        return self.head(h)


def frozen() -> nn.Module:
    net = mlp()
    net[0].requires_grad_(False)
    return net


@I.ir_module
class Declared:
    @R.function
    def backbone(
        mean: R.State((12,), initial=0.5),
        w: R.Param((12, 16)),
        x: R.Tensor(("n", 12), "float32"),
        b: R.Param((16,), trainable=False, initial=0.25),
        seen: R.State((), "int64"),
        head: R.Param((16, 3)),
    ):
        with R.dataflow():
            y = R.nn.relu(R.matmul(x - mean, w) + b) @ head
            new_mean = mean * 0.9 + R.mean(x, axis=0) * 0.1
            more = seen + R.const(1, "int64")
            R.output(y, new_mean, more)
        return (y, new_mean, more)


def weighted() -> pullback.training.Trainer:
    given = [Y, TensorStructInfo((3,), "float32")]
    return trainer(mlp(), CrossEntropyLoss(), targets=given)


TOKENS = RNG.integers(0, 11, (len(X), 6))
ADAM = optim.Adam(lr=1e-2)


def trainer(net, loss="cross_entropy", optimizer=ADAM, example=X, **options):
    return pullback.trainer(net, loss, optimizer, example=example, **options)


KINDS = {
    "mlp": (lambda: trainer(mlp()), (X, Y)),
    "sgd": (lambda: trainer(mlp(), optimizer=optim.SGD(lr=0.1, momentum=0.9)), (X, Y)),
    "regression": (lambda: trainer(nn.Linear(12, 1), "mse"), (X, SCORE)),
    "batch norm": (lambda: trainer(mlp(nn.BatchNorm1d(16))), (X, Y)),
    "dropout": (lambda: trainer(mlp(nn.Dropout(0.3))), (X, Y)),
    "average": (lambda: trainer(mlp(), optimizer=optim.EMA(ADAM, 0.9)), (X, Y)),
    "run time": (lambda: trainer(mlp(), optimizer=optim.Adam(lr=optim.RunTime(1e-2))), (X, Y)),
    "schedule": (lambda: trainer(mlp(), optimizer=optim.SGD(lr=optim.ExponentialLR(0.1, 0.9))), (X, Y)),
    "clipped": (lambda: trainer(mlp(), optimizer=optim.ClipByGlobalNorm(ADAM, 0.1)), (X, Y)),
    "declared": (lambda: pullback.trainer(Declared, "cross_entropy", ADAM), (X, Y)),
    "frozen": (lambda: trainer(frozen()), (X, Y)),
    "image": (lambda: trainer(Image()), (X, Y)),
    "text": (lambda: trainer(Text(), example=TOKENS), (TOKENS, TOKENS)),
    "recurrent": (lambda: trainer(Recurrent()), (X, Y)),
    "tree": (lambda: trainer(Tree()), (X, Y)),
    "halting": (lambda: trainer(Halting()), (X, Y)),
    "both": (
        lambda: trainer(Both(), both_loss, example=(X, AGE), targets=[Y, SCORE]),
        (X, AGE, Y, SCORE),
    ),
    "class weights": (weighted, (X, Y, CLASS_WEIGHTS)),
    "bfloat16": (lambda: trainer(mlp(), precision="bfloat16"), (X, Y)),
    "float16": (lambda: trainer(mlp(), precision="float16"), (X, Y)),
    "debug": (lambda: trainer(mlp(), target="debug"), (X, Y)),
}


def batch_of(arrays, number):
    """Rows of a batch; what has none stays."""
    rows = slice(number * BATCH, (number + 1) * BATCH)
    return [a[rows] if len(a) == len(X) else a for a in arrays]


@pytest.mark.parametrize("kind", KINDS)
def test_ten_steps_are_pythons(kind, tmp_path):
    make, arrays = KINDS[kind]
    trainer = make()
    inputs = len(trainer._interface.inputs)
    trainer.export(tmp_path / "out", name="made", batch_size=BATCH)
    with Instance(tmp_path / "out", threads=2) as native:
        for number in range(10):
            batch = batch_of(arrays, number)
            expected = float(trainer.update(batch[:inputs], batch[inputs:]))
            got = native.step(*batch)
            if kind == "debug":  # the interpreter's order of sums is another
                np.testing.assert_allclose(got, expected, rtol=1e-5)
            else:
                assert got == expected, number
        assert native.number("steps") == 10
        native.save(tmp_path / "native.safetensors")
        trainer.save(tmp_path / "python.safetensors")
        if kind != "debug":
            assert kept(tmp_path / "native.safetensors") == kept(tmp_path / "python.safetensors")
            given = [a[: 2 * BATCH + 3] if len(a) == len(X) else a for a in arrays]
            expected = trainer.predict(*given[:inputs], batch_size=BATCH)
            outputs = expected if isinstance(expected, tuple) else (expected,)
            for got, wanted in zip(native.predict(*given[:inputs]), outputs, strict=True):
                np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-5, atol=1e-6)
        trainer.load(tmp_path / "native.safetensors")
        batch = batch_of(arrays, 0)
        assert native.step(*batch) == pytest.approx(float(trainer.update(batch[:inputs], batch[inputs:])), rel=1e-5)


# ---- what is refused


@I.ir_module
class Fixed:
    I.module_attrs({"param_num": 1, "state_num": 0})

    @R.function
    def backbone(x: R.Tensor((4, 3), "float32"), w: R.Tensor((3, 2), "float32")):
        return x @ w


@I.ir_module
class Sequences:
    I.module_attrs({"param_num": 1, "state_num": 0})

    @R.function
    def backbone(x: R.Tensor(("n", "t", 3), "float32"), w: R.Tensor((3, 2), "float32")):
        return x @ w


@I.ir_module
class Scalar:
    I.module_attrs({"param_num": 1, "state_num": 0})

    @R.function
    def backbone(x: R.Tensor((), "float32"), w: R.Tensor((3, 2), "float32")):
        return x * w


@I.ir_module
class Mean:
    I.module_attrs({"param_num": 1, "state_num": 0})

    @R.function
    def backbone(x: R.Tensor(("n", 3), "float32"), w: R.Tensor((3, 2), "float32")):
        return R.mean(x @ w, axis=0)


@pytest.mark.parametrize("rows", [None, 6])
def test_a_model_of_a_fixed_batch_has_it_or_another(rows, tmp_path):
    trainer = pullback.trainer(Fixed, "mse", "sgd")
    made = trainer.export(tmp_path / "out", name="fixed", batch_size=rows)
    batch = 4 if rows is None else rows
    assert made.manifest["batch"] == batch
    x, y = X[:batch, :3], np.ones((batch, 2), np.float32)
    expected = np.mean((x @ trainer.params["w"].numpy() - y) ** 2)
    with Instance(tmp_path / "out") as native:
        assert native.step(np.ascontiguousarray(x), y) == pytest.approx(expected, rel=1e-6)


def test_symbolic_sizes_are_given(tmp_path):
    trainer = pullback.trainer(Sequences, "mse", "sgd")
    for problem, sizes in {
        "an exported library has fixed sizes, and t of input x is not given": {},
        "the trainer has no symbolic size 'q' but the batch": {"t": 5, "q": 2},
        "the size 'n' is the batch": {"t": 5, "n": 4},
    }.items():
        with pytest.raises(ArgumentError) as error:
            trainer.export(tmp_path / "out", name="sequences", sizes=sizes)
        assert problem in str(error.value) and "hint" in str(error.value)
    made = trainer.export(tmp_path / "out", name="sequences", batch_size=2, sizes={"t": 5})
    assert made.manifest["inputs"][0]["shape"] == [2, 5, 3]
    x, y = RNG.normal(size=(2, 5, 3)).astype(np.float32), np.ones((2, 5, 2), np.float32)
    with Instance(tmp_path / "out") as native:
        assert native.step(x, y) == float(trainer.update(x, y))


@pytest.mark.parametrize(("module", "message"), [(Scalar, "no batch dimension"), (Mean, "whose first axis is not")])
def test_models_without_rows(module, message, tmp_path):
    with pytest.raises(UserError, match=message):
        pullback.trainer(module, "mse", "sgd").export(tmp_path / "out", name="odd")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m55", "wasm32"])
def test_a_bare_machine_has_no_memory_for_steps_without_end(target):
    """Predictions keep nothing, and can be exported; so can steps of a loop with a greatest number of them."""
    made, where = trainer(Halting()), platform(target)
    with pytest.raises(TargetError, match="step keeps values of every step of a loop") as error:
        program_of(made, "halting", where, BATCH, {}, ("step", "predict"))
    assert target in str(error.value) and "max_steps=…" in str(error.value)
    assert not program_of(made, "halting", where, BATCH, {}, ("predict",)).needs_heap
    limited = trainer(Halting(max_steps=50))
    assert not program_of(limited, "halting", where, BATCH, {}, ("step", "predict")).needs_heap


def test_only_what_needs_it_allocates(tmp_path):
    for name, net, functions in (
        ("mlp", mlp(), ("step", "predict")),
        ("looking", Halting(), ("predict",)),
        ("halting", Halting(), ("step", "predict")),
    ):
        trainer(net).export(tmp_path / name, name=name, functions=functions)
        text = (tmp_path / name / f"{name}.c").read_text()
        assert ("PB_WITH_HEAP" in text) == (name == "halting")
        header = (tmp_path / name / f"{name}.h").read_text()
        assert "nothing is allocated later" in header and ("malloc" in header) == (name == "halting")


def test_a_trainer_that_is_not_built(tmp_path):
    setup = SetupTrainer(MSELoss(), optim.SGD(lr=0.1), [TensorStructInfo((4, 2), "float32")] * 2)
    trainer = Trainer(Fixed, 1, setup)
    with pytest.raises(UserError, match="not built yet"):
        trainer.export(tmp_path / "out", name="built")
    trainer.build("llvm").export(tmp_path / "out", name="built")
    assert (tmp_path / "out" / "libbuilt.a").exists()


def test_a_bare_machine_has_no_memory_for_recursion(tmp_path):
    with pytest.raises(TargetError, match="functions that call themselves, each call on memory of its own") as error:
        trainer(Tree()).export(tmp_path / "out", name="tree", target="cortex-m7", batch_size=BATCH)
    assert "cortex-m7 allocates no memory" in str(error.value)
    assert "write a loop" in str(error.value)
