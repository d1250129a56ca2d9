"""Clipping, accumulation, averages and parameter groups: beside NumPy, through trainers, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.ir import ArgumentError, UserError
from pullback.relax.training.lr_schedule import LinearLR
from pullback.relax.training.optimizer import (
    EMA,
    LAMB,
    SGD,
    Accumulate,
    Adam,
    AdamW,
    ClipByGlobalNorm,
    ClipByValue,
    MomentumSGD,
    Optimizer,
    ParameterGroups,
    RunTime,
)
from tests.relax.training.models import assert_same, classes, params, trainer_of, with_state
from tests.relax.training.optimizers import NAMES, run, values_and_gradients, variables

INFINITY = float("inf")
X, Y = classes(24)


def after(optimizer: Optimizer, steps: int = 6, **options: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Parameters and states after some steps."""
    return list(run(optimizer, *values_and_gradients(steps), **options))[-1]


def close(found: Any, expected: Any, rtol: float = 1e-12) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-15)


def test_clip_by_value() -> None:
    (values, (gradients,)) = values_and_gradients(1)
    found, _ = after(ClipByValue(SGD(1.0), 0.3), 1)
    close(found, [p - np.clip(g, -0.3, 0.3) for p, g in zip(values, gradients, strict=True)])


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.5, INFINITY])
@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_clip_by_global_norm(norm_type: float, max_norm: float) -> None:
    (values, (gradients,)) = values_and_gradients(1)
    total = np.linalg.norm(np.concatenate([g.ravel() for g in gradients]), norm_type)
    scale = min(1.0, max_norm / (total + 1e-6))
    found, _ = after(ClipByGlobalNorm(SGD(1.0), max_norm, norm_type), 1)
    close(found, [p - scale * g for p, g in zip(values, gradients, strict=True)])


def test_the_norm_of_halves_is_computed_in_float32() -> None:
    ones = np.full((300,), 300.0, "float16")  # the squares are beyond float16
    ((found,), _), *_ = run(ClipByGlobalNorm(SGD(1.0), 1.0), [ones], [[ones]])
    np.testing.assert_allclose(found, 300 - 1 / np.sqrt(300), rtol=1e-3)


def test_clipping_leaves_out_frozen_parameters() -> None:
    values, (gradients,) = values_and_gradients(1)
    groups = ParameterGroups(SGD(1.0), {"kernel": {"frozen": True}})
    found, _ = after(ClipByGlobalNorm(groups, 0.5), 1)
    total = np.sqrt(sum(float((g * g).sum()) for g in gradients[:3]))
    close(found, [*(p - 0.5 / (total + 1e-6) * g for p, g in zip(values[:3], gradients[:3], strict=True)), values[3]])


@pytest.mark.parametrize("inner", [lambda: SGD(0.1), lambda: Adam(0.01), lambda: EMA(LAMB(0.01), 0.5)])
def test_accumulation_is_a_step_on_the_mean(inner: Any) -> None:
    values, gradients = values_and_gradients(9)
    means = [[sum(g) / 3 for g in zip(*gradients[i : i + 3], strict=True)] for i in (0, 3, 6)]
    small = list(run(Accumulate(inner(), 3), values, gradients))
    large = list(run(inner(), values, means))
    for i, (found, states) in enumerate(small, 1):
        assert states[0] == i
        if i % 3:  # not a bit changes in between, but for the count and the sums
            before = small[i - 2][0] if i > 1 else values
            assert_same(found, before)
            kept = len(large[0][1])
            assert_same(
                states[1:kept], small[i - 2][1][1:kept] if i > 1 else [s * 0 + _first(s) for s in states[1:kept]]
            )
        else:
            close(found, large[i // 3 - 1][0])
            close(states[1 : len(large[0][1])], large[i // 3 - 1][1][1:])
            assert all(not s.any() for s in states[-len(values) :])


def _first(state: np.ndarray) -> float:
    return 1.0 if state.shape == () and state.dtype == np.float64 and state == 1.0 else 0.0


def test_average() -> None:
    values, gradients = values_and_gradients(6)
    history = [found for found, _ in run(SGD(0.1), values, gradients)]
    averages = history[0]
    for i, (found, states) in enumerate(run(EMA(SGD(0.1), 0.8), values, gradients)):
        averages = [0.8 * a + (1 - 0.8) * p for a, p in zip(averages, history[i], strict=True)] if i else history[0]
        close(found, history[i])
        assert states[1] == i + 1
        close(states[2:], averages)


def test_groups() -> None:
    values, gradients = values_and_gradients(6)
    rules = {"s*": {"lr": LinearLR(0.3)}, "b": {"lr": 0.5, "momentum": 0.0}, "kernel": {"frozen": True}}
    found, states = after(ParameterGroups(MomentumSGD(0.1, 0.9, weight_decay=0.1), rules))
    alone = [
        MomentumSGD(0.1, 0.9, weight_decay=0.1), MomentumSGD(0.5, 0.0, weight_decay=0.1),
        MomentumSGD(LinearLR(0.3), 0.9, weight_decay=0.1),
    ]  # fmt: skip
    velocities = []
    for i, optimizer in enumerate(alone):
        one = list(run(optimizer, values[i : i + 1], [g[i : i + 1] for g in gradients]))[-1]
        close(found[i : i + 1], one[0])
        velocities.append(one[1][1])
    np.testing.assert_array_equal(found[3], values[3])
    close(states[1:], [velocities[0], velocities[2], velocities[1]])  # the group of none, then in the order of patterns


def test_the_first_pattern_that_matches_counts() -> None:
    rules = {"w": {"lr": 0.0}, "?": {"lr": 1.0}, "*": {"frozen": True}}
    values, (gradients,) = values_and_gradients(1)
    found, states = after(ParameterGroups(SGD(0.1), rules), 1)
    close(found, [values[0], values[1] - gradients[1], *values[2:]])
    assert len(states) == 1


def test_options_of_pairs_and_of_own_optimizers() -> None:
    class Own(Optimizer):
        def __init__(self, rate: float, *, sign: float = 1.0) -> None:
            super().__init__("Own")
            self.rate, self.sign = rate, sign

        def update(self, step: Any, param: Any, gradient: Any) -> Any:  # type: ignore[override]
            return (param - gradient * (self.rate * self.sign),)

    values, (gradients,) = values_and_gradients(1)
    found, _ = after(ParameterGroups(Own(0.1), {"w": {"sign": -1.0}, "b": {"rate": 1.0}}), 1)
    rates = (-0.1, 1.0, 0.1, 0.1)
    close(found, [p - r * g for p, r, g in zip(values, rates, gradients, strict=True)])
    groups = ParameterGroups(Adam(0.1), {"w": {"betas": (0.5, 0.6)}})
    assert groups.init(variables()).roles["optimizer_states"][:3] == ("num_steps", "beta1_prod", "beta2_prod")
    close(after(groups, 4)[0][:1], list(run(Adam(0.1, (0.5, 0.6)), *_only(0, 4)))[-1][0])


def _only(i: int, steps: int) -> Any:
    values, gradients = values_and_gradients(steps)
    return [values[i]], [[g[i]] for g in gradients]


# ---- through trainers ------------------------------------------------------------------------------------------------

FULL = {
    "everything": lambda: EMA(
        Accumulate(
            ClipByGlobalNorm(
                ParameterGroups(AdamW(RunTime(0.01)), {"b*": {"weight_decay": 0}, "w0": {"frozen": True}}), 0.5
            ),
            3,
        ),
        0.9,
    ),
    "averages of steps": lambda: Accumulate(EMA(ClipByValue(SGD(LinearLR(0.2)), 0.01), 0.5), 2),
}


@pytest.mark.parametrize("make", FULL.values(), ids=FULL.keys())
def test_backends_agree(make: Any) -> None:
    trainers = [trainer_of(target, optimizer=make()) for target in ("debug", "llvm")]
    for trainer in trainers:
        trainer.fit(X, Y, epochs=4, batch_size=8, verbose=0)
    for interpreted, native in zip(*(t.optimizer_states for t in trainers), strict=True):
        np.testing.assert_allclose(native.numpy(), interpreted.numpy(), rtol=1e-4, atol=1e-6)
    for interpreted, native in zip(*map(params, trainers), strict=True):
        np.testing.assert_allclose(native, interpreted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("steps", [3, 4])
@pytest.mark.parametrize("make", FULL.values(), ids=FULL.keys())
def test_resumes_bit_for_bit(make: Any, steps: int, tmp_path: Any) -> None:
    """Between two applications of accumulated gradients too."""
    whole, first, second = (trainer_of("llvm", optimizer=make()) for _ in range(3))
    batches = [(X[i : i + 8], Y[i : i + 8]) for i in (0, 8, 16, 4, 12, 0, 8, 16)]
    for batch in batches:
        whole.update(*batch)
    for batch in batches[:steps]:
        first.update(*batch)
    first.save(tmp_path / "middle")
    second.load(tmp_path / "middle")
    for batch in batches[steps:]:
        second.update(*batch)
    assert_same(params(whole), params(second))
    for a, b in zip(whole.optimizer_states, second.optimizer_states, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert_same([v.numpy() for v in whole.averages.values()], [v.numpy() for v in second.averages.values()])


def test_frozen_parameters_stay_and_their_gradients_are_not_computed() -> None:
    trainer = trainer_of("llvm", optimizer=ParameterGroups(Adam(0.1), {"*0": {"frozen": True}}), profile=True)
    before = trainer.params
    trainer.fit(X, Y, epochs=2, verbose=0)
    for name, value in trainer.params.items():
        assert (value.numpy() == before[name].numpy()).all() == name.endswith("0"), name
    all_trained = trainer_of("llvm", optimizer=Adam(0.1), profile=True)
    contractions = [
        sum("matmul" in call.name for call in t.profile_step(X[:8], Y[:8]).calls) for t in (trainer, all_trained)
    ]
    assert contractions == [6, 8]  # without the gradients of w0 and of what w0 is multiplied from
    assert not any(label.endswith("0") for label in trainer.mod.attrs["training"]["optimizer_states"])


def test_averages_through_a_trainer() -> None:
    trainer = trainer_of("llvm", optimizer=EMA(ParameterGroups(SGD(0.2), {"w0": {"frozen": True}}), 0.7))
    assert_same([v.numpy() for v in trainer.averages.values()], params(trainer))  # before the first step
    history = []
    for i in (0, 8, 16):
        trainer.update(X[i : i + 8], Y[i : i + 8])
        history.append(params(trainer))
    averages = history[0]
    for later in history[1:]:
        averages = [0.7 * a + 0.3 * p for a, p in zip(averages, later, strict=True)]
    found = trainer.averages
    assert list(found) == list(trainer.params)
    for a, b in zip(found.values(), averages, strict=True):
        np.testing.assert_allclose(a.numpy(), b, rtol=1e-5, atol=1e-7)
    plain = trainer_of("llvm")
    plain.load_params(found)
    np.testing.assert_array_equal(trainer.predict(X[:8], averaged=True).numpy(), plain.predict(X[:8]).numpy())
    assert trainer.evaluate(X, Y, averaged=True) == plain.evaluate(X, Y)
    assert_same(params(trainer), history[-1])
    trainer.update(X[:8], Y[:8])  # still trains the parameters, not the averages
    assert trainer.steps == 4


def test_an_average_needs_a_step_of_what_it_is_in() -> None:
    trainer = trainer_of("llvm", optimizer=Accumulate(EMA(SGD(0.2), 0.5), 2))
    trainer.update(X[:8], Y[:8])
    assert_same([v.numpy() for v in trainer.averages.values()], params(trainer))
    trainer.update(X[:8], Y[:8])
    assert_same([v.numpy() for v in trainer.averages.values()], params(trainer))
    trainer.update(X[:8], Y[:8])
    trainer.update(X[:8], Y[:8])
    assert any((v.numpy() != p).any() for v, p in zip(trainer.averages.values(), params(trainer), strict=True))


def test_states_of_the_model_go_on_while_gradients_accumulate() -> None:
    from pullback.relax.training.loss import MSELoss

    trainer = trainer_of("llvm", MSELoss(), Accumulate(SGD(0.1), 3), with_state())
    for _ in range(4):
        trainer.update(np.ones((4, 3), "float32"), np.ones((4, 2), "float32"))
    assert trainer.states["calls"].item() == 4


# ---- what they refuse ------------------------------------------------------------------------------------------------


class MakesItself(Optimizer):
    def get_function(self) -> Any:
        return None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ClipByValue(0.1, SGD(0.1)), r"ClipByValue wraps an optimizer, such as Adam\(1e-3\), got 0.1"),
        (lambda: EMA(SGD), "EMA wraps an optimizer, .* got the class SGD"),
        (lambda: EMA(MakesItself("x")), "EMA cannot wrap MakesItself, which makes its function itself"),
        (lambda: ClipByValue(SGD(0.1), -1), "max_value must be a finite number ≥ 0, got -1"),
        (lambda: ClipByGlobalNorm(SGD(0.1), INFINITY), "max_norm must be a finite number ≥ 0, got inf"),
        (lambda: ClipByGlobalNorm(SGD(0.1), 1.0, 0), "norm_type must be positive, got 0"),
        (lambda: Accumulate(SGD(0.1), 0), "every must be an int ≥ 1, got 0"),
        (lambda: Accumulate(SGD(0.1), 2.0), "every must be an int ≥ 1, got 2.0"),
        (lambda: EMA(SGD(0.1), 1.5), "decay must be at most 1, got 1.5"),
        (lambda: EMA(Accumulate(EMA(SGD(0.1)), 2)), "keeps one average of each parameter: EMA is in EMA"),
        (
            lambda: ParameterGroups(EMA(SGD(0.1)), {}),
            r"takes a plain optimizer, not EMA\nhint: wrap the groups: EMA\(ParameterGroups",
        ),
        (lambda: ParameterGroups(SGD(0.1), [("w", {})]), "groups must be a dict of patterns, got list"),
        (lambda: ParameterGroups(SGD(0.1), {1: {}}), "named by a pattern of parameter names, got 1"),
        (lambda: ParameterGroups(SGD(0.1), {"w": 0.1}), "group 'w' must be a dict such as {\"lr\": 0.01}, got 0.1"),
        (
            lambda: ParameterGroups(SGD(0.1), {"w": {"rate": 0.1}}),
            "group 'w': SGD has no argument rate; it has: lr, weight_decay, maximize, frozen",
        ),
        (lambda: ParameterGroups(SGD(0.1), {"w": {"lr": -1}}), "group 'w': lr must be a finite number ≥ 0, got -1"),
        (lambda: ParameterGroups(SGD(0.1), {"w": {"frozen": 1}}), "frozen must be True or False, got 1"),
        (
            lambda: ParameterGroups(SGD(0.1), {"w": {"frozen": True, "lr": 0.1}}),
            "group 'w' is frozen, so that lr would have no effect",
        ),
        (
            lambda: ParameterGroups(SGD(0.1), {"bais": {"lr": 1.0}}).init(variables()),
            f"no parameter matches 'bais'; the parameters are: {', '.join(NAMES)}",
        ),
        (
            lambda: ParameterGroups(SGD(0.1), {"*": {"frozen": True}}).init(variables()),
            "all parameters are frozen: w, b",
        ),
    ],
)
def test_errors(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


def test_no_averages() -> None:
    trainer = trainer_of()
    for use in (lambda: trainer.averages, lambda: trainer.predict(X[:8], averaged=True)):
        with pytest.raises(UserError, match="the optimizer SGD keeps no averages of parameters"):
            use()
