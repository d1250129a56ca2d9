"""Random programs of branches and loops: native code, with dead memory poisoned too, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.relax.interpreter import evaluate
from tests.driver.test_control_native import run
from tests.properties.random_control import Maker
from tests.relax.test_control import flat

COUNT, PER_TEST = 60, 5


@pytest.mark.parametrize("first", range(0, COUNT, PER_TEST))
def test_random_programs(first, monkeypatch):
    for seed in range(first, first + PER_TEST):
        module, arguments = Maker(seed).make()
        wanted = flat(evaluate(module, "main", arguments))
        found = run(module, arguments)
        with monkeypatch.context() as patch:
            patch.setenv("PULLBACK_POISON", "1")
            poisoned = run(module, arguments)
        for a, b, c in zip(found, wanted, poisoned, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4, err_msg=f"seed {seed}")
            assert a.tobytes() == c.tobytes(), f"seed {seed}"
