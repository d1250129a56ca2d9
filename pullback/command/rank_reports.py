"""What ranks tell the process that started them: lines of JSON among their output, which nobody else sees."""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any

from pullback.ir.environment import switch

LAUNCHED = "PULLBACK_LAUNCHED"  # is 1 in ranks that `train --ranks` started
_MARK = "\x1dpullback "


def is_launched() -> bool:
    """Whether a process listens that started this rank."""
    return switch(LAUNCHED)


def tell(**facts: Any) -> None:
    """Tell the process that started this rank, if it listens."""
    if is_launched():
        sys.stderr.flush()
        os.write(2, f"{_MARK}{json.dumps(facts)}\n".encode())


def tell_place() -> None:
    """Tell which process on which machine this rank is."""
    tell(pid=os.getpid(), host=socket.gethostname())


def told(line: str) -> dict[str, Any] | None:
    """What a line of output tells; None where it is output."""
    _, mark, text = line.partition(_MARK)  # other text may stand before it in the same line
    if not mark:
        return None
    try:
        facts = json.loads(text)
    except ValueError:  # the rank ended while it wrote
        return {}
    return facts if isinstance(facts, dict) else {}
