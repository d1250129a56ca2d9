"""What a call takes and returns lives as long as somebody has it: Python's collector of cycles is not needed."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback
from pullback.ir.errors import UserError
from pullback.relax.training.optimizer import Adam
from pullback.runtime.library import allocated_bytes
from pullback.script import from_source
from tests.driver.models import mlp_trainer_module
from tests.relax.training.models import classes, trainer_of

SOURCE = """
from pullback.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def one(x: R.Tensor((100, 200), "float32")):
        y = R.exp(x)
        return y

    @R.function
    def nested(x: R.Tuple(R.Tensor((100, 200), "float32"), R.Tensor(("n", 200), "float32"))):
        a = x[0]
        b = x[1]
        c = R.exp(a)
        d = R.exp(b)
        e = R.nn.softmax(b)
        return (c, (d, (e,)))

    @R.function
    def checked(x: R.Tensor((100, 200), "float32"), i: R.Tensor((100,), "int64")):
        y = R.nn.nll_loss(x, i)
        return y
"""
X, LABELS = np.ones((100, 200), np.float32), np.zeros(100, np.int64)


def machine() -> Any:
    return pullback.VirtualMachine(pullback.compile(from_source(SOURCE)), profile=True)


def calls_of_a_machine() -> dict[str, Callable[[], Any]]:
    vm, x = machine(), pullback.tensor(X, copy=True)
    bound = vm.bind("one", [x])

    def wrong_label() -> None:
        with contextlib.suppress(UserError):
            vm["checked"](X, LABELS + 200)

    def wrong_shape() -> None:
        with contextlib.suppress(UserError):
            vm["one"](X[:50])

    return {
        "one": lambda: vm["one"](X),
        "a tuple": lambda: vm["nested"]((X, x)),
        "bound": lambda: bound(),
        "to bind": lambda: vm.bind("nested", [x, x])(),
        "profile": lambda: vm.profile("one", x),
        "an array": lambda: vm["one"](X).numpy(),
        "a wrong label": wrong_label,
        "a wrong shape": wrong_shape,
    }


def calls_of_a_trainer() -> dict[str, Callable[[], Any]]:
    trainer = trainer_of("llvm", optimizer=Adam(1e-3))
    x, y = classes(24)
    return {
        "update": lambda: trainer.update(x[:8], y[:8]),
        "predict": lambda: trainer.predict(x[:8]),
        "evaluate": lambda: trainer.evaluate(x, y),
        "fit": lambda: trainer.fit(x, y, batch_size=8),
        "fit and validate": lambda: trainer.fit(x[:20], y[:20], batch_size=8, validation=(x, y)),
        "export": lambda: {k: v.numpy().copy() for k, v in trainer.export_params().items()},
    }


@pytest.mark.parametrize("calls", [calls_of_a_machine, calls_of_a_trainer])
def test_nothing_is_kept(calls: Callable[[], dict[str, Callable[[], Any]]]) -> None:
    growth = {}
    for name, call in calls().items():
        for _ in range(3):
            call()
        gc.collect()
        gc.disable()
        try:
            before = allocated_bytes()
            for _ in range(5):
                call()
            growth[name] = allocated_bytes() - before
        finally:
            gc.enable()
    assert not any(growth.values()), growth


def test_a_trainer_module_gives_everything_back() -> None:
    """The virtual machine too, with its arenas and constants."""
    gc.collect()
    before = allocated_bytes()
    module = mlp_trainer_module((20, 12, 5), 8, Adam(0.01))
    vm = pullback.VirtualMachine(pullback.compile(module))
    vm["backbone"](*[np.zeros(v.struct_info.shape, np.float32) for v in module["backbone"].params])
    assert allocated_bytes() > before
    del vm, module
    gc.collect()
    assert allocated_bytes() == before
