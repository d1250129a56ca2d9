"""Any number of rows: a model that is declared for some rows takes others in fit, evaluate, predict and update.

For each op that has a batch axis, what is derived from a module for 11 rows is what is made for other rows directly:
so it computes the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback
from pullback.ir import ArgumentError, IRModule, Op, ShapeError, UserError, assert_structural_equal
from pullback.ir.errors import PullbackError
from pullback.relax import BlockBuilder, Call, TensorStructInfo, TupleGetItem, TupleStructInfo, Var, const, op
from pullback.relax.op.family import composite
from pullback.relax.training import SetupTrainer, Trainer, make_trainer
from pullback.relax.training.interface import Interface
from pullback.relax.training.loss import CrossEntropyLoss, Loss, MSELoss
from pullback.relax.training.optimizer import SGD, Adam
from pullback.relax.training.rebatch import rebatched
from pullback.relax.transform import BindParams, DeadCodeElimination, DecomposeOpsForTraining, LegalizeOps, Pass
from pullback.script import from_source
from tests.relax.training import test_batch_norm as batch_norm
from tests.relax.training.models import assert_same, classes, mlp, params, trainer_of
from tests.samples import Case, all_ops, cases, dtypes_of

DECLARED, OTHERS = 11, (1, 3, 5)
MOST_SAMPLES = 2  # of an op

# Ops whose samples have no batch axis, and why.
WITHOUT_BATCH = {
    **dict.fromkeys(
        ("arange", "eye", "full", "hamming_window", "ones", "zeros", "shape_to_tensor"), "it takes no tensor with rows"
    ),
    **dict.fromkeys(
        ("random.bernoulli", "random.bits", "random.normal", "random.permutation", "random.randint", "random.shard",
         "random.site", "random.uniform"), "it takes a random state, and its attributes say its shape"
    ),
    **dict.fromkeys(("broadcast_to", "grad.diagonal"), "an attribute says the size"),
    "nn.with_divisor": "its operands are scalars",
    "nn.ctc_alphas": "the rows are the second axis of its result, as a part of nn.ctc_loss",
}  # fmt: skip


@dataclass(frozen=True)
class Sampled:
    """A sample with rows: of the arguments that have some, the number and the axis."""

    case: Case
    axes: dict[int, int]

    def model(self, rows: int) -> IRModule:
        """A backbone of the op; its inputs have their rows first. It has one parameter, a factor of float inputs."""
        builder, w = BlockBuilder(), Var("w", TensorStructInfo((), "float32"))
        inputs = {k: Var(f"x{k}", TensorStructInfo(self._shape(k, rows), self._dtype(k))) for k in self.axes}
        with builder.function("backbone", [*inputs.values(), w]):
            values = [self._argument(builder, k, inputs.get(k), w) for k in range(len(self.case.args))]
            result = builder.emit(Call(self.case.op, tuple(values), self.case.attrs))
            if isinstance(result.struct_info, TupleStructInfo):
                result = builder.emit(TupleGetItem(result, 0))
            if result.struct_info.dtype != "float32":
                result = builder.emit(op.multiply(op.astype(result, "float32"), w))
            builder.emit_func_output(result)
        return builder.get().with_attrs({"param_num": 1, "state_num": 0})

    def _dtype(self, number: int) -> str:
        return str(self.case.args[number].dtype.name)

    def _shape(self, number: int, rows: int) -> tuple[int, ...]:
        shape, axis = self.case.args[number].shape, self.axes[number]
        return (rows, *shape[:axis], *shape[axis + 1 :])

    def _argument(self, builder: BlockBuilder, number: int, given: Var | None, w: Var) -> Any:
        if given is None:
            return const(self.case.args[number], self._dtype(number))
        axis, rank = self.axes[number], given.struct_info.ndim
        value = given if self._dtype(number) != "float32" else builder.emit(op.multiply(given, w))
        return (
            value
            if axis == 0
            else builder.emit(op.permute_dims(value, (*range(1, axis + 1), 0, *range(axis + 1, rank))))
        )

    def takes_rows(self) -> bool:
        """Whether the types fit for each number of rows, and the result has as many or none."""
        try:
            results = {n: self.model(n)["backbone"].ret_struct_info for n in (DECLARED, *OTHERS)}
        except PullbackError:
            return False
        shapes = {n: info.shape for n, info in results.items()}
        rows = all(shape and shape[0] == n for n, shape in shapes.items())
        return len({shape[1:] if rows else shape for shape in shapes.values()}) == 1


def samples_with_rows(registered: Op) -> Iterator[Sampled]:
    """The op's samples, each with the most arguments that can have rows together."""
    dtypes = dtypes_of(registered)
    for case in cases(registered, "float32" if "float32" in dtypes else dtypes[0]):
        found = next((s for s in _choices(case) if s.takes_rows()), None)
        if found is not None:
            yield found


def _choices(case: Case) -> Iterator[Sampled]:
    sizes = dict.fromkeys(size for a in case.args for size in a.shape)
    for size in sizes:
        axes = {k: a.shape.index(size) for k, a in enumerate(case.args) if size in a.shape}
        for count in range(len(axes), 0, -1):
            yield from (Sampled(case, {k: axes[k] for k in some}) for some in itertools.combinations(axes, count))


def setup(module: IRModule, legalize: bool = False) -> IRModule:
    info = module["backbone"].ret_struct_info
    return SetupTrainer(MSELoss(), SGD(0.1), [info, info], legalize=legalize)(module)


OPS = all_ops()
GROUPS = [OPS[k::20] for k in range(20)]


@pytest.mark.parametrize("registered", GROUPS, ids=[f"{g[0].short}…" for g in GROUPS])
def test_every_op_with_a_batch_axis_takes_any_number_of_rows(registered: Sequence[Op]) -> None:
    for each in [r for r in registered if r.short not in WITHOUT_BATCH]:
        sampled = list(itertools.islice(samples_with_rows(each), MOST_SAMPLES))
        assert sampled, f"{each.short} has no sample with rows: list it, and say why"
        for number, sample in enumerate(sampled):
            declared = setup(sample.model(DECLARED), legalize=number == 0)
            for rows in OTHERS:
                found, expected = rebatched(declared, Interface.of(declared), rows, True), setup(sample.model(rows))
                assert set(found) == set(expected)
                for name in ("backbone", "backbone_loss", "backbone_loss_adjoint"):
                    assert_structural_equal(found[name], expected[name])


# ---- models with ops that read their sizes when they are decomposed --------------------------------------------------

RNG = np.random.default_rng(0)


@pytest.fixture
def centred() -> Iterator[Op]:
    """A composite of a user's that reads the number of rows."""
    yield composite(
        "tests.centred",
        "x | scale=1.0",
        decompose=lambda x, *, scale: (x - op.sum(x) / float(np.prod(x.struct_info.shape))) * scale,
        doc="x less its mean, scaled.",
        samples=(),
    )
    del Op.registry["relax.tests.centred"]


def model_of(shape: tuple[Any, ...], weight: tuple[int, ...], body: Callable[[Any, Any], Any]) -> IRModule:
    """A backbone of one input x and one parameter w."""
    x, w = Var("x", TensorStructInfo(shape)), Var("w", TensorStructInfo(weight))
    builder = BlockBuilder()
    with builder.function("backbone", [x, w]):
        builder.emit_func_output(builder.emit(body(x, w)))
    return builder.get().with_attrs({"param_num": 1, "state_num": 0})


def resampled(x: Any, w: Any) -> Any:
    theta = op.reshape(op.matmul(op.nn.batch_flatten(x), w), (-1, 2, 3))
    return op.image.grid_sample(x, op.image.affine_grid(theta, (4, 5)))


MODELS: dict[str, tuple[tuple[int, ...], tuple[int, ...], Callable[[Any, Any], Any]]] = {
    "batch_flatten": ((2, 3), (6, 3), lambda x, w: op.matmul(op.nn.batch_flatten(x), w)),
    "einsum": ((2, 3), (3, 4), lambda x, w: op.einsum([x, w], "nij,jk->nik")),
    "expand": ((1, 3), (3,), lambda x, w: op.multiply(op.expand(x, (-1, 5, 3)), w)),
    "index_tensor": ((5,), (5,), lambda x, w: op.index_tensor([op.multiply(x, w), const(np.zeros(1, "int64"))])),
    "pixel_shuffle": ((8, 3, 2), (2,), lambda x, w: op.nn.pixel_shuffle(op.multiply(x, w), 2)),
    "pixel_unshuffle": ((2, 4, 6), (6,), lambda x, w: op.nn.pixel_unshuffle(op.multiply(x, w), 2)),
    "space_to_depth": ((2, 4, 6), (6,), lambda x, w: op.nn.space_to_depth(op.multiply(x, w), 2)),
    "grid_sample": ((2, 3, 4), (24, 6), resampled),
    "composite": ((3,), (3,), lambda x, w: Op.get("tests.centred")(op.multiply(x, w))),
}


def pair(name: str, rows: int, legalize: bool = False, target: str = "debug") -> Trainer:
    """A trainer of a model for so many rows, whose parameters are the same for each number."""
    shape, weight, body = MODELS[name]
    module = setup(model_of((rows, *shape), weight, body), legalize)
    trainer = Trainer(module, pullback.VirtualMachine(pullback.compile(module, target)))
    trainer.load_params([np.random.default_rng(1).standard_normal(weight).astype("float32")])
    return trainer


def rows_for(trainer: Trainer, rows: int) -> tuple[np.ndarray, np.ndarray]:
    slots = (trainer._interface.inputs[0], trainer._interface.targets[0])
    return tuple(RNG.standard_normal((rows, *s.info.shape[1:])).astype("float32") for s in slots)  # type: ignore


@pytest.mark.usefixtures("centred")
@pytest.mark.parametrize("name", [n for n in MODELS if n != "index_tensor"])
def test_models_take_any_number_of_rows(name: str) -> None:
    """More and fewer rows than declared: what a model gives that is declared for that number."""
    declared = pair(name, 6, legalize=name in ("batch_flatten", "einsum"))
    start = params(declared)
    for rows in (1, 4, 9):
        x, y = rows_for(declared, rows)
        exact = pair(name, rows)
        declared.load_params(start)
        np.testing.assert_array_equal(declared.predict(x).numpy(), exact.predict(x).numpy())
        assert declared.evaluate(x, y, batch_size=rows) == exact.evaluate(x, y)
        assert declared.update(x, y).item() == exact.update(x, y).item()
        assert_same(params(declared), params(exact))
    x, y = rows_for(declared, 10)
    declared.fit(x, y, verbose=0)
    assert declared.evaluate(x, y).count == 10
    shape = declared.predict(x).shape
    assert declared.predict(x[:0]).shape == (0, *shape[1:])


@pytest.mark.parametrize("legalize", [False, True])
def test_the_last_batch_of_a_flattened_model(legalize: bool) -> None:
    """Natively: 100 rows in batches of 64."""
    trainer = pair("batch_flatten", 64, legalize, "llvm")
    interpreted = pair("batch_flatten", 64)
    x, y = rows_for(trainer, 100)
    for each in (trainer, interpreted):
        each.fit(x, y, epochs=2, shuffle=False, verbose=0)
    np.testing.assert_allclose(params(trainer)[0], params(interpreted)[0], rtol=1e-5)
    np.testing.assert_allclose(trainer.predict(x), interpreted.predict(x), rtol=1e-4, atol=1e-5)
    assert trainer.evaluate(x, y).loss == pytest.approx(interpreted.evaluate(x, y).loss, rel=1e-5)


def aliased() -> IRModule:
    """``y = x`` and ``z = (y, …)[0]`` in the model."""
    return from_source("""
from pullback.script import ir as I, relax as R
@I.ir_module
class Model:
    I.module_attrs({"param_num": 1, "state_num": 0})
    @R.function
    def backbone(x: R.Tensor((4, 3), "float32"), w: R.Tensor((3, 2), "float32")):
        with R.dataflow():
            y = x
            both = (y, w)
            z = both[0]
            out = R.matmul(R.exp(z), w)
            again = out
            R.output(again)
        return again
""")


@pytest.mark.parametrize("legalize", [False, True])
@pytest.mark.parametrize("printed", [False, True])
def test_aliases_in_the_model(legalize: bool, printed: bool) -> None:
    module = setup(aliased(), legalize)
    module = from_source(module.script()) if printed else module
    trainer = Trainer(module, pullback.VirtualMachine(pullback.compile(module, "debug")))
    x, y = RNG.standard_normal((10, 3)), RNG.standard_normal((10, 2))
    trainer.fit(x.astype("float32"), y.astype("float32"), verbose=0)
    assert trainer.steps == 3


def test_predict_and_update_take_lists_and_tensors() -> None:
    trainer = trainer_of()
    x, y = classes(5)
    expected = trainer.predict(x).numpy()
    for given in ([x], (x,), [pullback.tensor(x)]):
        np.testing.assert_array_equal(trainer.predict(given).numpy(), expected)
    np.testing.assert_array_equal(trainer.predict(x.tolist()).numpy(), expected)
    np.testing.assert_array_equal(trainer.predict(list(x)).numpy(), expected)
    np.testing.assert_array_equal(trainer.predict([x[0]]).numpy(), trainer.predict(x[:1]).numpy())
    losses = []
    for inputs, targets in ((x, y), ([x], [y]), ((x,), (pullback.tensor(y),)), (pullback.tensor(x), y)):
        other = trainer_of()
        losses.append(other.update(inputs, targets).item())
    assert len(set(losses)) == 1


def test_several_inputs() -> None:
    a, b, w = (Var(n, TensorStructInfo(s)) for n, s in (("a", (4, 3)), ("b", (4, 3)), ("w", (3,))))
    builder = BlockBuilder()
    with builder.function("backbone", [a, b, w]):
        builder.emit_func_output(builder.emit((a + b) * w))
    model = builder.get().with_attrs({"param_num": 1, "state_num": 0})
    trainer = make_trainer(model, MSELoss(), SGD(0.1), target="debug")
    trainer.load_params([np.ones(3, "float32")])
    one, two = np.ones((6, 3), "float32"), np.full((6, 3), 2, "float32")
    for result in (trainer.predict(one, two), trainer.predict([one, two]), trainer.predict((one, two))):
        np.testing.assert_array_equal(result.numpy(), one + two)
    assert trainer.update([one, two], one).item() == 4
    with pytest.raises(ShapeError, match=r"input b must have shape \(6, 3\), got \(4, 3\)"):
        trainer.predict(one, two[:4])


def test_no_rows() -> None:
    trainer = trainer_of("llvm")
    assert trainer.predict(np.zeros((0, 20), "float32")).shape == (0, 5)
    before = params(trainer)
    for model in (trainer, trainer_of(model=mlp(pullback.tir.Var("n", "int64")))):
        with pytest.raises(ArgumentError, match="input x has 0 rows: a step needs at least one"):
            model.update(np.zeros((0, 20), "float32"), np.zeros(0, "int64"))
    assert_same(before, params(trainer))


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision(precision: str) -> None:
    x, y = classes(5)
    declared, exact = (trainer_of(model=mlp(n), optimizer=Adam(0.1), precision=precision) for n in (8, 5))
    assert declared.update(x, y).item() == exact.update(x, y).item()
    assert_same(params(declared), params(exact))


def test_random_numbers() -> None:
    from tests.relax.training.test_random import dropping

    x, y = (a[:3] for a in classes(8))
    declared, exact = (trainer_of(model=dropping(n)) for n in (8, 3))
    for _ in range(2):
        assert declared.update(x, y).item() == exact.update(x, y).item()
    np.testing.assert_array_equal(declared.predict(x).numpy(), exact.predict(x).numpy())


def test_profiles_of_other_sizes() -> None:
    trainer = trainer_of("llvm", profile=True)
    x, y = classes(3)
    assert trainer.profile_step(x, y).calls and trainer.profile_adjoint(x, y).calls


# ---- passes after SetupTrainer ---------------------------------------------------------------------------------------

LABELS = [TensorStructInfo((8, 5)), TensorStructInfo((8,), "int64")]


def trained(module: IRModule) -> Trainer:
    trainer = Trainer(module, pullback.VirtualMachine(pullback.compile(module, "debug")))
    trainer.xavier_uniform_init_params(0)
    x, y = classes(14)
    trainer.fit(x, y, shuffle=False, verbose=0)
    return trainer


def normed() -> IRModule:
    return SetupTrainer(MSELoss(), SGD(0.1), [TensorStructInfo((10, 3), "float64")] * 2, legalize=False)(
        batch_norm.model()
    )


@pytest.mark.parametrize("steps", [[LegalizeOps()], [DeadCodeElimination()], [LegalizeOps(), LegalizeOps()]])
def test_passes_that_lose_nothing(steps: Sequence[Pass]) -> None:
    module = plain = SetupTrainer(CrossEntropyLoss(), SGD(0.05), LABELS, legalize=False)(mlp())
    for step in steps:
        module = step(module)
    for found, expected in zip(params(trained(module)), params(trained(plain)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_a_pass_that_writes_sizes_is_no_source() -> None:
    """The norm's constants would be those of ten rows."""
    module = DecomposeOpsForTraining()(normed())
    trainer = Trainer(module, pullback.VirtualMachine(pullback.compile(module, "debug")))
    trainer.init_states()
    x, _ = batch_norm.data(4)
    with pytest.raises(UserError, match="backbone was changed by a pass after SetupTrainer, so it cannot be derived"):
        trainer.evaluate(x, np.zeros((4, 3)))


def test_a_module_that_does_not_tell_its_source() -> None:
    module = SetupTrainer(CrossEntropyLoss(), SGD(0.05), LABELS)(mlp())
    record = {k: v for k, v in module.attrs["training"].items() if k != "source"}
    with pytest.raises(UserError, match="does not tell from what it was made, so it cannot be derived for 6 rows"):
        trained(module.with_attr("training", record))


FUNCTIONS = """
from pullback.script import ir as I, relax as R, tir as T
@I.ir_module
class M:
    I.module_attrs({"param_num": 1, "state_num": 0})
    @R.function(private=True)
    def inner(x: R.Tensor((4, 3), "float32"), w: R.Tensor((3, 2), "float32")) -> R.Tensor((4, 2), "float32"):
        return R.matmul(x, w)
    @T.prim_func
    def twice(x: T.Buffer((4, 3), "float32"), y: T.Buffer((4, 3), "float32")):
        for i in range(4):
            for j in range(3):
                y[i, j] = x[i, j] * T.float32(2)
    @R.function
    def backbone(x: R.Tensor((4, 3), "float32"), w: R.Tensor((3, 2), "float32")):
        cls = M
        a = VALUE
        y = BODY
        return y
"""
TWICE = 'R.call_tir(cls.twice, (x,), out_sinfo=R.Tensor((4, 3), "float32"))'


def test_a_backbone_that_calls_another_function() -> None:
    model = from_source(FUNCTIONS.replace("VALUE", "R.exp(x)").replace("BODY", "cls.inner(a, w)"))
    trainer = make_trainer(model, MSELoss(), SGD(0.1), target="debug")
    x = RNG.standard_normal((6, 3)).astype("float32")
    expected = np.exp(x) @ trainer.params["w"].numpy()
    np.testing.assert_allclose(trainer.predict(x).numpy(), expected, rtol=1e-5)
    assert trainer.evaluate(x, expected, batch_size=6).loss < 1e-10


@pytest.mark.parametrize("value", [TWICE, 'R.match_cast(x, R.Tensor((4, 3), "float32"))'])
@pytest.mark.parametrize("body", ["R.matmul(a, w)", "R.sum(R.matmul(a, w))"])
def test_kernels_and_casts_of_declared_sizes_are_refused(value: str, body: str) -> None:
    """They would read rows that are not there."""
    model = from_source(FUNCTIONS.replace("VALUE", value).replace("BODY", body))
    trainer = make_trainer(model, MSELoss(), SGD(0.1), targets=model["backbone"].ret_struct_info)
    trainer.predict(np.ones((4, 3), "float32"))
    for rows in (3, 8):
        with pytest.raises(UserError):
            trainer.predict(np.ones((rows, 3), "float32"))


class Divided(Loss):
    """A mean that reads the number of rows from the types."""

    def __init__(self) -> None:
        super().__init__("divided", 1)

    def expression(self, predictions: Var, targets: Var) -> Any:
        rows, columns = predictions.struct_info.shape
        return op.sum(op.abs(op.subtract(predictions, targets))) / float(rows * columns)


def test_a_loss_that_reads_the_number_of_rows() -> None:
    """For other rows it would divide by that of the declared ones."""
    trainer = trainer_of(loss=Divided())
    x, y = classes(11)
    trainer.update(x[:8], np.eye(5, dtype="float32")[y[:8]])
    with pytest.raises(UserError, match=r"the loss divided reads the number of rows when it is made, .* for 3 rows"):
        trainer.fit(x, np.eye(5, dtype="float32")[y], verbose=0)
    assert trainer.steps == 1


def bound_model() -> IRModule:
    values = {"w1": np.full((16, 12), 0.1, "float32"), "b2": np.zeros(5, "float32")}
    return BindParams("backbone", values)(mlp())


def test_parameters_bound_in_the_model() -> None:
    """They are constants for any number of rows, and no longer counted as parameters."""
    model = bound_model()
    assert model.attrs["param_num"] == 4
    trainer = trainer_of(model=model)
    assert list(trainer.params) == ["w0", "b0", "b1", "w2"]
    x, y = classes(11)
    trainer.fit(x, y, verbose=0)
    assert trainer.predict(x).shape == (11, 5)


@pytest.mark.parametrize("legalize", [False, True])
def test_parameters_bound_in_a_trainer_module(legalize: bool) -> None:
    """``predict`` takes the constant, and no other value for another parameter; other rows would lose it."""
    plain = SetupTrainer(CrossEntropyLoss(), SGD(0.05), LABELS, legalize=legalize)(mlp())
    w0 = np.full((20, 16), 0.01, "float32")
    module = from_source(BindParams("backbone", {"w0": w0})(plain).script())
    trainers = [Trainer(m, pullback.VirtualMachine(pullback.compile(m, "debug"))) for m in (plain, module)]
    for trainer in trainers:
        trainer.xavier_uniform_init_params(0)
    trainers[0].load_params({"w0": w0})
    x, _ = classes(8)
    np.testing.assert_array_equal(trainers[0].predict(x).numpy(), trainers[1].predict(x).numpy())
    with pytest.raises(UserError, match="backbone was changed by a pass after SetupTrainer"):
        trainers[1].predict(x[:3])


def test_a_model_that_writes_its_batch_out() -> None:
    """64 rows of 64 numbers are 64 rows whatever the batch: the types alone would not tell."""
    model = model_of((64, 64), (1,), lambda x, w: op.sum(op.multiply(op.reshape(x, (64, -1)), w), 1))
    trainer = make_trainer(model, MSELoss(), SGD(0.1), target="debug")
    with pytest.raises(ShapeError, match=r"backbone cannot run on batches of 3 rows: its output 0 is Tensor\(\(64,\)"):
        trainer.predict(np.zeros((3, 64), "float32"))


# ---- drop_last -------------------------------------------------------------------------------------------------------


def normed_trainer(rows: int = 4) -> Trainer:
    return make_trainer(batch_norm.model(rows), CrossEntropyLoss(), SGD(0.1), seed=1)


def test_a_last_batch_of_one_row_is_named() -> None:
    trainer = normed_trainer()
    before = params(trainer)
    message = (
        r"the last batch of an epoch has 1 row \(9 rows in batches of 4\): nn\.batch_norm in training needs.*"
        r"\nhint: fit\(…, drop_last=True\) leaves that batch out; with batch_size=3 the last one has 3"
    )
    with pytest.raises(ShapeError, match=message):
        trainer.fit(*batch_norm.data(9), verbose=0)
    assert_same(before, params(trainer))
    trainer.fit(*batch_norm.data(9), batch_size=3, verbose=0)


def test_drop_last() -> None:
    x, y = batch_norm.data(9)
    trainer, other = normed_trainer(), normed_trainer()
    history = trainer.fit(x, y, epochs=2, drop_last=True, shuffle=False, validation=(x, y), verbose=0)
    same = other.fit(x[:8], y[:8], epochs=2, shuffle=False, validation=(x, y), verbose=0)
    assert trainer.steps == 4
    assert [(e.loss, e.validation_loss) for e in history.epochs] == [(e.loss, e.validation_loss) for e in same.epochs]
    assert_same(params(trainer), params(other))


def test_what_is_dropped_changes_with_the_order() -> None:
    trainer, seen = trainer_of(loss=MSELoss("sum")), set()
    x = np.eye(20, dtype="float32")[:9]
    for _ in range(12):
        before = params(trainer)[0]
        trainer.fit(x, np.ones((9, 5)), drop_last=True, verbose=0)
        seen |= set(np.flatnonzero((params(trainer)[0] == before).all(1)[:9]).tolist())
    assert len(seen) > 1


def test_drop_last_leaves_a_batch() -> None:
    trainer = trainer_of()
    x, y = classes(5)
    with pytest.raises(ArgumentError, match="drop_last leaves no batch: there are 5 rows, and batches have 8"):
        trainer.fit(x, y, drop_last=True, verbose=0)
    with pytest.raises(ArgumentError, match="drop_last must be True or False, got 1"):
        trainer.fit(x, y, drop_last=1, verbose=0)
    assert trainer.steps == 0


def test_old_checkpoints_go_on_with_other_rows(tmp_path: Path) -> None:
    first, second = trainer_of(optimizer=Adam(0.1)), trainer_of(optimizer=Adam(0.1))
    x, y = classes(5)
    first.update(x, y)
    first.save(tmp_path / "c")
    second.load(tmp_path / "c")
    assert first.update(x[:3], y[:3]).item() == second.update(x[:3], y[:3]).item()
