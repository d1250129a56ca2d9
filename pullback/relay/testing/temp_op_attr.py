"""An attribute of an operator for the time of a block."""

from __future__ import annotations

from typing import Any

from pullback.relay.op.registry import get


class TempOpAttr:
    """Inside the block the operator has the attribute, afterwards what it had before.

    >>> with TempOpAttr("nn.conv2d", "FTVMLegalize", legalize):
    ...     module = relay.transform.Legalize()(module)
    """

    def __init__(self, op_name: str, attr_key: str, attr_value: Any) -> None:
        self.op, self.attr_key, self.attr_value = get(op_name), attr_key, attr_value
        self._before: Any = None

    def __enter__(self) -> TempOpAttr:
        self._before = self.op.get_attr(self.attr_key)
        self.op.set_attr(self.attr_key, self.attr_value)
        return self

    def __exit__(self, *raised: Any) -> None:
        if self._before is None:
            self.op.reset_attr(self.attr_key)
        else:
            self.op.set_attr(self.attr_key, self._before)
