"""Optimizers: the update against NumPy, the shape of the function, errors, and one of the user's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback
from pullback import relax
from pullback.ir import ArgumentError, DTypeError, IRModule, ShapeError, UserError, assert_structural_equal
from pullback.relax import TensorStructInfo, Var, op
from pullback.relax.analysis import check_well_formed
from pullback.relax.interpreter import evaluate
from pullback.relax.training.optimizer import SGD, Adam, MomentumSGD, Optimizer
from pullback.script import relax as R
from pullback.tir import Var as SizeVar
from tests.relax.training.models import mlp

SHAPES = ((3, 4), (4,), ())


def params(dtypes: tuple[str, ...] = ("float64",) * 3) -> list[Var]:
    return [Var(f"p{i}", TensorStructInfo(s, d)) for i, (s, d) in enumerate(zip(SHAPES, dtypes, strict=True))]


def sgd(p: Any, g: Any, s: Any, t: int, lr: float, weight_decay: float = 0) -> tuple[Any, ...]:
    return (p - lr * (g + weight_decay * p),)


def momentum_sgd(
    p: Any, g: Any, s: Any, t: int, lr: float, momentum: float, dampening: float = 0, weight_decay: float = 0,
    nesterov: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    g = g + weight_decay * p
    v = g if t == 1 else momentum * s[0] + (1 - dampening) * g
    return p - lr * (g + momentum * v if nesterov else v), v


def adam(
    p: Any, g: Any, s: Any, t: int, lr: float, betas: Any = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0
) -> tuple[Any, ...]:
    g = g + weight_decay * p
    m, v = betas[0] * s[0] + (1 - betas[0]) * g, betas[1] * s[1] + (1 - betas[1]) * g * g
    m_hat, v_hat = m / (1 - betas[0] ** t), v / (1 - betas[1] ** t)
    return p - lr * m_hat / (np.sqrt(v_hat) + eps), m, v


CASES = [
    (SGD, sgd, 0, {"lr": 0.1}),
    (SGD, sgd, 0, {"lr": 0.1, "weight_decay": 0.01}),
    (MomentumSGD, momentum_sgd, 1, {"lr": 0.1, "momentum": 0.9}),
    (MomentumSGD, momentum_sgd, 1, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    (MomentumSGD, momentum_sgd, 1, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    (Adam, adam, 2, {"lr": 0.01}),
    (Adam, adam, 2, {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-5, "weight_decay": 0.1}),
]


@pytest.mark.parametrize(("kind", "reference", "slots", "options"), CASES)
@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_updates(kind: Any, reference: Any, slots: int, options: dict[str, Any], target: str) -> None:
    generator = np.random.default_rng(0)
    optimizer = kind(**options).init(params())
    vm = pullback.VirtualMachine(pullback.compile(IRModule({"step": optimizer.get_function()}), target))
    values = [np.asarray(generator.standard_normal(s)) for s in SHAPES]
    slot_values: list[Any] = [[np.zeros(s)] * slots for s in SHAPES]
    tensors: Any = tuple(map(pullback.tensor, values))
    for t in range(1, 5):
        gradients = [np.asarray(generator.standard_normal(s)) for s in SHAPES]
        tensors, optimizer.state = vm["step"](tensors, tuple(gradients), optimizer.state)
        for i, gradient in enumerate(gradients):
            values[i], *slot_values[i] = reference(values[i], gradient, slot_values[i], t, **options)
            np.testing.assert_allclose(tensors[i].numpy(), values[i], rtol=1e-12)
        assert optimizer.state[0].item() == t


def test_states() -> None:
    assert [s.shape for s in SGD(0.1).init(params()).state] == [()]
    assert [s.shape for s in MomentumSGD(0.1, 0.9).init(params()).state] == [(), *SHAPES]
    state = Adam(0.1).init(params()).state
    assert [s.shape for s in state] == [(), (), (), *SHAPES, *SHAPES]
    assert [s.item() for s in state[:3]] == [0, 1.0, 1.0]
    assert [s.dtype for s in state[:4]] == ["int64", "float64", "float64", "float64"]
    assert all((s.numpy() == 0).all() for s in state[3:])
    assert SGD(0.1).state is None


def test_structure() -> None:
    @R.function
    def expected(
        params: R.Tuple(R.Tensor((3, 3), "float32")),
        gradients: R.Tuple(R.Tensor((3, 3), "float32")),
        optim_states: R.Tuple(R.Tensor((), "int64")),
    ):
        with R.dataflow():
            num_steps = optim_states[0]
            num_steps_new = R.add(num_steps, R.const(1, "int64"))
            x = params[0]
            x_grad = gradients[0]
            lv = R.multiply(R.const(0.02, "float32"), x)
            x_grad_new = R.add(lv, x_grad)
            lv1 = R.multiply(R.const(0.01, "float32"), x_grad_new)
            x_new = R.subtract(x, lv1)
            params_new = (x_new,)
            optim_states_new = (num_steps_new,)
            R.output(params_new, optim_states_new)
        return (params_new, optim_states_new)

    function = SGD(0.01, 0.02).init(Var("x", TensorStructInfo((3, 3)))).get_function()
    assert_structural_equal(function, expected)
    names = [b.var.name for b in function.bindings]
    assert names[:6] == ["num_steps", "num_steps_new", "x", "x_grad", "lv", "x_grad_new"]


@pytest.mark.parametrize(
    "kind", [SGD(0.1, 0.1), MomentumSGD(0.1, 0.9, 0.1, nesterov=True), Adam(0.1, weight_decay=0.1)]
)
def test_mixed_dtypes(kind: Optimizer) -> None:
    variables = params(("float32", "float64", "float32"))
    function = kind.init(variables).get_function()
    check_well_formed(function)
    values = tuple(np.asarray(np.ones(v.shape), v.dtype) for v in variables)
    new, states = evaluate(IRModule({"f": function}), "f", (values, values, tuple(s.numpy() for s in kind.state)))
    assert [v.dtype.name for v in new] == ["float32", "float64", "float32"]
    assert [s.dtype for s in states] == [np.dtype(s.dtype) for s in kind.state]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_parameters_have_exact_scalars(dtype: str) -> None:
    optimizer = Adam(0.1).init(Var("x", TensorStructInfo((2,), dtype)))
    assert [s.dtype for s in optimizer.state] == ["int64", "float64", "float64", dtype, dtype]
    check_well_formed(optimizer.get_function())


class SignSGD(Optimizer):
    """The documented way to an optimizer of one's own: no state but the step count."""

    def __init__(self, lr: float) -> None:
        super().__init__("SignSGD")
        self.lr = float(lr)

    def update(self, step: Any, param: Var, gradient: Var) -> Any:  # type: ignore[override]
        return (param - op.sign(gradient) * self.lr,)


class AdaGrad(Optimizer):
    """One with a state for each parameter."""

    slots = ("sum",)

    def __init__(self, lr: float) -> None:
        super().__init__("AdaGrad")
        self.lr = float(lr)

    def update(self, step: Any, param: Var, gradient: Var, total: Var) -> Any:  # type: ignore[override]
        total = step.emit(total + gradient * gradient, "sum_new")
        return param - gradient * self.lr / (op.sqrt(total) + 1e-10), total


def test_own_optimizers() -> None:
    g = np.random.default_rng(0).standard_normal(5)
    p = np.ones(5)
    x = Var("x", TensorStructInfo((5,), "float64"))
    sign = SignSGD(0.1).init(x)
    (new,), _ = evaluate(IRModule({"f": sign.get_function()}), "f", ((p,), (g,), (np.int64(0),)))
    np.testing.assert_allclose(new, p - 0.1 * np.sign(g))
    ada = AdaGrad(0.1).init([x])
    (new,), states = evaluate(IRModule({"f": ada.get_function()}), "f", ((p,), (g,), (np.int64(3), g * g)))
    np.testing.assert_allclose(new, p - 0.1 * g / np.sqrt(2 * g * g))
    np.testing.assert_allclose(states[1], 2 * g * g)
    assert states[0] == 4 and repr(ada) == "AdaGrad(lr=0.1)"


def test_relax_optimizer_has_the_same_optimizers() -> None:
    assert relax.optimizer.SGD is SGD


INTEGER, FLOAT = Var("n", TensorStructInfo((2,), "int64")), Var("x", TensorStructInfo((2,)))
SYMBOLIC = Var("s", TensorStructInfo((SizeVar("n", "int64"),)))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: SGD(0.1).get_function(), UserError, "no parameters yet"),
        (lambda: SGD(0.1).init([]), ArgumentError, "no parameter to optimize"),
        (
            lambda: SGD(0.1).init(mlp()),
            ArgumentError,
            "SGD.init takes variables, the parameters to optimize, got IRModule",
        ),
        (lambda: Adam(0.1, betas=0.9), ArgumentError, "betas must be a pair of numbers, got 0.9"),
        (lambda: Adam(0.1, betas=(0.9,)), ArgumentError, r"betas must be a pair of numbers, got \(0.9,\)"),
        (lambda: SGD(0.1).init([3]), ArgumentError, "optimizes variables, got int 3"),
        (lambda: SGD(0.1).init([INTEGER]), DTypeError, r"float tensors, parameter n is Tensor\(\(2,\), int64\)"),
        (lambda: SGD(0.1).init([FLOAT, FLOAT]), ArgumentError, "parameter x is given to SGD twice"),
        (lambda: Adam(0.1).init([SYMBOLIC]), ShapeError, "a state for parameter s needs a shape that is known"),
        (lambda: SGD("fast"), ArgumentError, "lr must be a number, got 'fast'"),
        (lambda: SGD(-1.0), ArgumentError, "lr must be a finite number ≥ 0, got -1.0"),
        (lambda: Adam(0.1, betas=(0.9, 1.0)), ArgumentError, "betas must be less than 1"),
        (lambda: setattr(SGD(0.1).init(FLOAT), "state", (1, 2)), ArgumentError, "SGD has 1 states, got 2"),
    ],
)
def test_errors(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


class Own(Optimizer):
    """An optimizer whose update is the given function of parameter and gradient."""

    def __init__(self, function: Any) -> None:
        super().__init__("Own")
        self._function = function

    def update(self, step: Any, param: Any, gradient: Any, *slots: Any) -> Any:
        return self._function(param, gradient)


class OwnWithState(Own):
    slots = ("v",)


class OwnWithScalar(Own):
    scalars = {"decay": 1.0}  # noqa: RUF012

    def advance(self, scalars: Any, values: Any) -> Any:
        return {}


class OwnAdam(Adam):
    """It prepares something, and forgets what Adam does."""

    def prepare(self, now: Any) -> Any:
        return {"half_lr": now.values["lr"] * 0.5}


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (
            Own(lambda p, g: p - g),
            r"Own.update must return the tuple \(the new parameter,\), it returned one expression"
            r"\nhint: write return \(new_param,\)",
        ),
        (Own(lambda p, g: None), "it returned one NoneType"),
        (Own(lambda p, g: (p, g)), "it returned 2 values"),
        (OwnWithState(lambda p, g: (p,)), r"\(the new parameter, its new v\), it returned 1 values"),
        (Own(lambda p, g: (1.0,)), "the new parameter is no expression but 1.0"),
        (
            Own(lambda p, g: (op.sum(p),)),
            r"the new parameter of x must be Tensor\(\(2,\), float32\), it is Tensor\(\(\)",
        ),
        (OwnWithScalar(lambda p, g: (p,)), "OwnWithScalar.advance must return a dict of the new decay, it returned {}"),
        (
            OwnAdam(0.1),
            "a step has no value 'beta1_prod_correction'; its values are: .*half_lr"
            r"\nhint: .*an override adds to super\(\).prepare\(now\)",
        ),
    ],
)
def test_errors_of_an_own_update(optimizer: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        optimizer.init(FLOAT).get_function()
