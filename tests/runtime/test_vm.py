"""The virtual machine: calls by name, and what it refuses."""

from __future__ import annotations

import pytest

from pullback.ir import ArgumentError
from pullback.runtime.vm import VirtualMachine


class Doubles:
    """An executable of one function."""

    calls = 0

    def function(self, name):
        def double(x):
            self.calls += 1
            return 2 * x

        double.profile = lambda x: f"the profile of f({x})"
        return double


def test_the_machine():
    executable = Doubles()
    machine = VirtualMachine(executable)
    assert machine["f"](3) == 6 and machine.module is machine and str(machine.device) == "cpu(0)"
    seconds = machine.time_evaluator("f", number=5, repeat=2)(3)
    assert len(seconds) == 2 and executable.calls == 1 + 1 + 5 * 2
    assert machine.profile("f", 3) == "the profile of f(3)"  # without a word at construction
    with pytest.raises(ArgumentError, match=r"runs what pullback\.compile returns, not int"):
        VirtualMachine(3)
    with pytest.raises(ArgumentError, match="expected a Device, got 'cpu'"):
        VirtualMachine(executable, "cpu")
