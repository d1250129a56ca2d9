"""Devices by name and by target."""

from types import SimpleNamespace

import pytest

from pullback.ir.errors import TargetError
from pullback.runtime import Device, cpu, device


@pytest.mark.parametrize(
    "target",
    [
        "cpu",
        "llvm",
        "llvm -mcpu=znver4",
        cpu(),
        SimpleNamespace(kind="llvm"),
        SimpleNamespace(kind=SimpleNamespace(name="llvm")),
    ],
)
def test_everything_that_names_the_cpu(target):
    assert device(target) == device(target, 0) == cpu(0) == Device("cpu", 0)


def test_a_device_is_a_value():
    assert repr(cpu()) == "cpu(0)"
    assert (cpu().kind, cpu().index) == ("cpu", 0)
    assert len({cpu(), cpu(0)}) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: device("cuda"), 'unknown device \'cuda\'\nhint: known ones are "cpu", "llvm"'),
        (lambda: device(""), 'unknown device \'\'\nhint: known ones are "cpu", "llvm"'),
        (lambda: device(3), "expected a target or a device's name, got 3"),
        (lambda: cpu(1), "there is no device cpu(1)\nhint: the only device is cpu(0)"),
        (lambda: cpu("0"), "a device's index must be an int, got '0'\nhint: write pullback.cpu(0)"),
        (lambda: Device("gpu"), "unknown device 'gpu'\nhint: the only kind of device is \"cpu\""),
    ],
)
def test_errors(make, message):
    with pytest.raises(TargetError) as caught:
        make()
    assert str(caught.value) == message
