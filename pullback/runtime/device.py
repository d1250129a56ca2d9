"""Where tensors live. There is one device so far: the CPU of this process."""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.errors import TargetError

_KINDS_OF_NAMES = {"cpu": "cpu", "llvm": "cpu"}  # a target's name, or a device's own
_NUMBERS = {"cpu": 1}  # of kinds, in DLPack


@dataclass(frozen=True)
class Device:
    """The device number ``index`` of the given ``kind``.

    Args:
        kind: of the device: "cpu".
        index: its number.

    Examples:
        >>> pullback.cpu().kind
        'cpu'
    """

    kind: str
    index: int = 0

    def __post_init__(self) -> None:
        if self.kind != "cpu":
            raise TargetError(f"unknown device {self.kind!r}", hint='the only kind of device is "cpu"')
        if isinstance(self.index, bool) or not isinstance(self.index, int):
            raise TargetError(f"a device's index must be an int, got {self.index!r}", hint="write pullback.cpu(0)")
        if self.index != 0:
            raise TargetError(f"there is no device cpu({self.index})", hint="the only device is cpu(0)")

    @property
    def device_type(self) -> int:
        """The kind as a number of DLPack's: 1 is a CPU."""
        return _NUMBERS[self.kind]

    @property
    def device_id(self) -> int:
        """The index."""
        return self.index

    @property
    def exist(self) -> bool:
        """Whether the device is there."""
        return True

    def __str__(self) -> str:
        return f"{self.kind}({self.index})"

    __repr__ = __str__


def cpu(index: int = 0) -> Device:
    """The CPU of this process.

    Args:
        index: its number; there is one, 0.

    Returns:
        the device.

    Examples:
        >>> pullback.cpu()
        cpu(0)
    """
    return Device("cpu", index)


def device(target: object, index: int = 0) -> Device:
    """The device on which code for ``target`` runs.

    Args:
        target: a name ("llvm", "cpu"), a target's text ("llvm -mcpu=znver4"), an object with a ``kind`` such as a
            Target, a ``device_type``, or a Device, which is returned as it is.
        index: its number.

    Returns:
        the device.

    Examples:
        >>> pullback.device("llvm")
        cpu(0)
    """
    if isinstance(target, Device):
        return target
    if type(target) is int and target in _NUMBERS.values():
        target = next(kind for kind, number in _NUMBERS.items() if number == target)
    name = target if isinstance(target, str) else getattr(target, "kind", None)
    name = getattr(name, "name", name)  # TVM's target.kind.name
    if not isinstance(name, str):
        raise TargetError(f"expected a target or a device's name, got {target!r}")
    words = name.split()
    kind = _KINDS_OF_NAMES.get(words[0]) if words else None
    if kind is None:
        known = ", ".join(f'"{known}"' for known in _KINDS_OF_NAMES)
        raise TargetError(f"unknown device {name!r}", hint=f"known ones are {known}")
    return Device(kind, index)


def enabled(name: object) -> bool:
    """Whether code for a target of this name, or text, can be made and run here.

    >>> enabled("llvm"), enabled("cuda")
    (True, False)
    """
    try:
        device(name)
    except TargetError:
        return False
    return True
