"""Models with batch norm: moving statistics are states, updated in place by a step, and used for inference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pullback.ir import IRModule, Op, UserError
from pullback.relax import BlockBuilder, TensorStructInfo, Tuple, Var, op
from pullback.relax.training.loss import CrossEntropyLoss
from pullback.relax.training.make import make_trainer
from pullback.relax.training.optimizer import SGD, Adam

INPUTS, HIDDEN, CLASSES, BATCH = 6, 8, 3, 10
STATES = ("mean0", "var0", "mean1", "var1")


def model(batch: Any = BATCH, dtype: str = "float64") -> IRModule:
    """linear → batch norm → relu → batch norm → linear, the norms' moving statistics being four states."""

    def var(name: str, *shape: Any) -> Var:
        return Var(name, TensorStructInfo(shape, dtype))

    x = var("x", batch, INPUTS)
    params = [var("w0", INPUTS, HIDDEN), *(var(f"{n}{k}", HIDDEN) for k in (0, 1) for n in ("gamma", "beta"))]
    params += [var("w1", HIDDEN, CLASSES), var("b", CLASSES)]
    w0, gamma0, beta0, gamma1, beta1, w1, b = params
    states = [var(name, HIDDEN) for name in STATES]
    builder = BlockBuilder()
    with builder.function("backbone", [x, *params, *states]):
        with builder.dataflow():
            first = builder.emit(op.nn.batch_norm(x @ w0, gamma0, beta0, *states[:2]))
            second = builder.emit(op.nn.batch_norm(op.nn.relu(first[0]), gamma1, beta1, *states[2:], momentum=0.3))
            out = builder.emit_output(second[0] @ w1 + b)
            news = [builder.emit_output(f[k]) for f in (first, second) for k in (1, 2)]
        builder.emit_func_output(Tuple((out, *news)))
    return builder.get().with_attrs({"param_num": len(params), "state_num": len(states)})


def data(rows: int = BATCH, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, INPUTS)) + 2, rng.integers(0, CLASSES, rows)


def test_scales_and_variances_begin_with_one() -> None:
    trainer = make_trainer(model(), CrossEntropyLoss(), SGD(0.1))
    for name in ("gamma0", "gamma1"):
        np.testing.assert_array_equal(trainer.params[name].numpy(), np.ones(HIDDEN))
    for name, value in trainer.states.items():
        np.testing.assert_array_equal(value.numpy(), np.full(HIDDEN, float(name.startswith("var"))))
    trainer.zero_init_states()
    np.testing.assert_array_equal(trainer.states["var0"].numpy(), np.zeros(HIDDEN))


def test_checkpoint_goes_on_bit_for_bit(tmp_path: Path) -> None:
    x, y = data()
    first = make_trainer(model(dtype="float32"), CrossEntropyLoss(), Adam(0.05), seed=2)
    x = x.astype("float32")
    first.update(x, y)
    first.save(tmp_path / "checkpoint")
    second = make_trainer(model(dtype="float32"), CrossEntropyLoss(), Adam(0.05), seed=7)
    second.load(tmp_path / "checkpoint")
    for trainer in (first, second):
        trainer.update(x, y)
    for name, value in first.states.items():
        assert value.numpy().tobytes() == second.states[name].numpy().tobytes(), name
    assert first.predict(x).numpy().tobytes() == second.predict(x).numpy().tobytes()


def test_statistics_are_updated_in_place() -> None:
    x, y = data()
    trainer = make_trainer(model(), CrossEntropyLoss(), SGD(0.1))
    kept, before = trainer._values.states, trainer.states
    trainer.update(x, y)
    assert trainer._values.states is kept
    for name, tensor in zip(STATES, kept, strict=True):
        assert not np.array_equal(trainer.states[name].numpy(), before[name].numpy())
        np.testing.assert_array_equal(trainer.states[name].numpy(), np.array(tensor))


def test_a_batch_of_one_row_cannot_train() -> None:
    trainer = make_trainer(model(1), CrossEntropyLoss(), SGD(0.1))
    x, y = data(1)
    with pytest.raises(
        UserError, match=r"nn\.batch_norm in training needs more than one value for each channel, got 1"
    ):
        trainer.update(x, y)
    trainer.predict(x)


def test_a_norm_in_a_function_that_the_backbone_calls() -> None:
    """It has its form for inference in ``predict`` too, and its states begin as they should."""
    inner = model()
    callee = inner["backbone"]
    builder = BlockBuilder(IRModule({"inner": callee}))
    params = [Var(p.name, p.struct_info) for p in callee.params]
    with builder.function("backbone", params):
        builder.emit_func_output(builder.emit(builder.module.get_global_var("inner")(*params)))
    outer = builder.get().with_attrs(inner.attrs)
    trainers = [make_trainer(m, CrossEntropyLoss(), SGD(0.1), seed=4) for m in (inner, outer)]
    x, y = data()
    for trainer in trainers:
        trainer.update(x, y)
    first, second = (trainer.predict(x).numpy() for trainer in trainers)
    np.testing.assert_array_equal(first, second)


def test_initial_values_name_arguments() -> None:
    for registered in Op.registry.values():
        assert set(registered.initial) <= set(registered.signature.tensors), registered.name


@pytest.mark.parametrize("name", ["group_norm", "instance_norm", "layer_norm"])
def test_other_norms_take_any_number_of_rows(name: str) -> None:
    """A model whose batch size is written down is derived anew for the last batch of an epoch, and for evaluation."""
    x, w = (Var(n, TensorStructInfo(s)) for n, s in (("x", (BATCH, 4, 3)), ("w", (3, 2))))
    attrs = {
        "group_norm": {"num_groups": 2, "channel_axis": 1, "axes": 2},
        "instance_norm": {"channel_axis": 1, "axes": 2},
        "layer_norm": {"axes": (1,)},
    }[name]
    gamma, beta = (Var(n, TensorStructInfo((4,))) for n in ("gamma", "beta"))
    builder = BlockBuilder()
    with builder.function("backbone", [x, w, gamma, beta]):
        normal = getattr(op.nn, name)(x, gamma, beta, **attrs)
        builder.emit_func_output(builder.emit(op.mean(op.nn.relu(normal), 1) @ w))
    trainer = make_trainer(
        builder.get().with_attrs({"param_num": 3, "state_num": 0}), CrossEntropyLoss(), SGD(0.5), seed=1
    )
    np.testing.assert_array_equal(trainer.params["gamma"].numpy(), np.ones(4))
    rng = np.random.default_rng(0)
    rows, labels = rng.standard_normal((25, 4, 3)).astype("float32"), rng.integers(0, 2, 25)
    before = trainer.evaluate(rows, labels).loss
    trainer.fit(rows, labels, batch_size=BATCH, epochs=5, verbose=0)
    assert trainer.evaluate(rows, labels).loss < before
