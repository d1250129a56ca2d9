"""What ranks report to who started them: over a socket, or behind a mark in their output."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys

import pytest

from pullback.command import rank_reports
from pullback.command.rank_reports import LAUNCHED, REPORTS, tell, told


def test_reports_are_no_output(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    tell(pid=1)
    assert capfd.readouterr().err == ""
    monkeypatch.setenv(LAUNCHED, "1")
    tell(pid=7, host="é")
    line = capfd.readouterr().err
    assert told(line.removesuffix("\n")) == {"pid": 7, "host": "é"} and line.count("\n") == 1
    assert told("pullback {}") is None and told(line[:-4]) == {}


def test_reports_over_a_socket(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """All that ranks said before they ended is heard, and the ends come in their order; a forked child is no rank."""
    with rank_reports.Reports() as reports:
        environment = {LAUNCHED: "1", REPORTS: str(reports.path), "PMI_SIZE": "3"}
        text = "import os\nfrom pullback.command.rank_reports import connect, tell\nconnect()\ntell(said='{0}é')\n"
        text += "if not os.fork():\n    import time; print(os.getpid(), flush=True); time.sleep(60)\n"
        text += "input()\nos.kill(os.getpid(), 9)"
        ranks = [
            subprocess.Popen(
                [sys.executable, "-c", text.format(rank)], env=os.environ | environment | {"PMI_RANK": str(rank)},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )
            for rank in range(3)
        ]  # fmt: skip
        children = [int(rank.stdout.readline()) for rank in ranks]  # type: ignore[union-attr]
        ended: list[int | None] = []
        with selectors.DefaultSelector() as selector:
            for reporter in iter(reports.accept, None):
                selector.register(reporter.socket, selectors.EVENT_READ, reporter)
            said: dict[int | None, str] = {}
            while selector.get_map():
                for key, _ in selector.select(60):
                    facts = key.data.take()
                    for fact in facts or []:
                        said[key.data.rank] = fact["said"]
                    if facts is None:
                        selector.unregister(key.fileobj)
                if len(said) == 3 and not ended:
                    for rank in (2, 0, 1):  # nobody looks, meanwhile
                        ranks[rank].stdin.write(b"\n")  # type: ignore[union-attr]
                        ranks[rank].stdin.close()  # type: ignore[union-attr]
                        assert ranks[rank].wait() == -signal.SIGKILL
                    ended += [reporter.rank for reporter in reports.ended()]
        for child, rank_ in zip(children, ranks, strict=True):
            os.kill(child, signal.SIGKILL)
            rank_.stdout.close()  # type: ignore[union-attr]
    assert said == {0: "0é", 1: "1é", 2: "2é"} and ended == [2, 0, 1]
    assert not reports.path.parent.exists()
    monkeypatch.setenv(LAUNCHED, "1")
    monkeypatch.setenv(REPORTS, str(reports.path))  # of another machine, say
    rank_reports.connect()
    tell(said="by output")
    assert told(capfd.readouterr().err.strip("\n")) == {"said": "by output"}
