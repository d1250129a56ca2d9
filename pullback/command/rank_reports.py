"""What ranks report to the process that started them: JSON objects, a line each.

Ranks of the same machine connect to a socket of that process. Others write the lines to standard error, behind a mark:
the launcher of MPI passes them on, and nobody else sees them.

The end of a connection says that its rank has ended. A process that is killed closes its files before anything notices
its death, those first that it opened last: the connection goes before what the launcher of MPI has handed to the rank.
So the first connection that ends is that of the first rank that ended, even when the launcher kills the others at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from pullback.ir.environment import switch, variable
from pullback.ir.forks import in_child
from pullback.runtime import mpi

LAUNCHED = "PULLBACK_LAUNCHED"  # is 1 in ranks that `train --ranks` started
REPORTS = "PULLBACK_REPORTS"  # the path of the socket on which their reports are awaited
_MARK = "\x1dpullback "
_LONGEST_FOLDER = 60  # bytes: a socket's path has 104 at the most on macOS

Facts = dict[str, Any]


# ---- a rank's end

_connection: socket.socket | None = None


def is_launched() -> bool:
    """Whether a process listens that started this rank."""
    return switch(LAUNCHED)


def connect() -> None:
    """Connect this rank to the process that started it, if that listens on this machine."""
    global _connection
    path, started_by = variable(REPORTS), mpi.launcher()
    rank = 0 if started_by is None else started_by.rank
    if not path or rank is None or _connection is not None:
        return
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
        connection.sendall(_line({"rank": rank}))
    except OSError:  # it is on another machine
        connection.close()
        return
    _connection = connection


def _disconnect() -> None:
    """Of a forked child: it is no rank, and may outlive one."""
    global _connection
    if _connection is not None:
        _connection.close()
        _connection = None


in_child(_disconnect)


def tell(**facts: Any) -> None:
    """Tell the process that started this rank, if it listens."""
    if not is_launched():
        return
    if _connection is not None:
        with contextlib.suppress(OSError):  # it has ended
            _connection.sendall(_line(facts))
            return
    sys.stderr.flush()
    os.write(2, _MARK.encode() + _line(facts))


def _line(facts: Facts) -> bytes:
    return json.dumps(facts).encode() + b"\n"


# ---- the end of who started it


def told(line: str) -> Facts | None:
    """What a line of output reports; None where it is output."""
    _, mark, text = line.partition(_MARK)  # other text may stand before it in the same line
    return _facts(text) if mark else None


def _facts(text: str | bytes) -> Facts:
    try:
        facts = json.loads(text)
    except ValueError:  # the rank ended while it wrote
        return {}
    return facts if isinstance(facts, dict) else {}


class Reports:
    """A socket that ranks of this machine connect to; a context that removes it."""

    def __init__(self) -> None:
        is_long = len(os.fsencode(tempfile.gettempdir())) > _LONGEST_FOLDER
        self._folder = tempfile.mkdtemp(prefix="pullback-", dir="/tmp" if is_long else None)
        self.path = Path(self._folder) / "reports"
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(self.path))
        self.socket.listen(socket.SOMAXCONN)
        self.socket.setblocking(False)
        self._ends = select.epoll() if hasattr(select, "epoll") else None
        self._reporters: dict[int, Reporter] = {}

    def __enter__(self) -> Reports:
        return self

    def __exit__(self, *_: object) -> None:
        for closing in (self.socket, self._ends, *(r.socket for r in self._reporters.values())):
            if closing is not None:
                closing.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def accept(self) -> Reporter | None:
        """The next rank that has connected; None where there is none."""
        try:
            connection = self.socket.accept()[0]
        except BlockingIOError:
            return None
        found = self._reporters[connection.fileno()] = Reporter(connection)
        if self._ends is not None:
            self._ends.register(connection, select.EPOLLRDHUP | select.EPOLLET)
        return found

    def ended(self) -> list[Reporter]:
        """Those whose connections have ended since, in the order of time; none where there is no epoll."""
        return [] if self._ends is None else [self._reporters[number] for number, _ in self._ends.poll(0)]


class Reporter:
    """The connection of one rank; ``rank`` is None until it has said which one it is."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.rank: int | None = None
        self._rest = b""
        connection.setblocking(False)

    def take(self) -> list[Facts] | None:
        """What the rank has reported since; None after its end."""
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return []
        except ConnectionError:
            data = b""
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        found = [_facts(line) for line in lines]
        if self.rank is None and found:
            self.rank = found.pop(0).get("rank")
        return found
