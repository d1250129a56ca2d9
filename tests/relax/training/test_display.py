"""What fit shows: lines, a bar in a terminal, a table in a notebook, nothing; and output that fails."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from pullback.driver import watch
from pullback.ir import ArgumentError
from pullback.relax.training import EpochRecord, History, display, notebook, progress
from tests.relax.training.models import classes, trainer_of

X, Y = classes(30)
ROOT = Path(__file__).resolve().parents[3]
LINE = r"epoch {}: loss \d\.\d{{4}}, val_loss \d\.\d{{4}}, val_accuracy \d\.\d{{4}}, \d+\.\d\d s\n"


@pytest.mark.parametrize("verbose", ["auto", 1, 2, True])
def test_lines(verbose: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "WORTH_A_LINE", float("inf"))  # however long compiling takes on a busy machine
    trainer_of().fit(X, Y, epochs=2, validation=(X, Y), verbose=verbose)
    assert re.fullmatch(LINE.format(1) + LINE.format(2), capsys.readouterr().out)


@pytest.mark.parametrize("verbose", [0, False])
def test_nothing(verbose: Any, capsys: pytest.CaptureFixture[str]) -> None:
    trainer_of().fit(X, Y, verbose=verbose)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("verbose", [3, -1, "loud", None, 1.0])
def test_what_verbose_cannot_be(verbose: Any) -> None:
    with pytest.raises(ArgumentError, match=re.escape(f'verbose must be "auto", 0, 1 or 2, got {verbose!r}')):
        trainer_of().fit(X, Y, verbose=verbose)


def test_compiling_is_told_where_it_took_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(display, "WORTH_A_LINE", 0.0)
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(display.Lines, "compiling", lambda self, done, count, seconds: seen.append((done, count)))
    trainer = trainer_of("llvm")
    trainer.fit(X[:8], Y[:8])
    first, _ = capsys.readouterr().out.splitlines()
    count = seen[-1][1]
    assert re.fullmatch(rf"compiled {count} kernels in \d+\.\d s", first)
    assert seen[0] == (0, 0) and len(seen) > count, "before, between passes, and when each is begun"
    assert all(done <= whole for done, whole in seen) and seen == sorted(seen)
    trainer_of("llvm").fit(X[:8], Y[:8])
    assert capsys.readouterr().out.startswith("compiled no kernel, all were in the cache, in ")
    monkeypatch.setattr(display, "WORTH_A_LINE", 1e6)
    trainer_of("llvm").fit(X[:8], Y[:8])
    assert capsys.readouterr().out.startswith("epoch 1: loss")


def test_only_what_this_thread_compiles_is_counted() -> None:
    assert watch.kernels() is None
    with watch.watched(lambda kernels: None) as outer:
        with watch.watched(lambda kernels: None) as inner:
            assert watch.kernels() is inner
        assert watch.kernels() is outer
    assert watch.kernels() is None


# ---- output that fails -----------------------------------------------------------------------------------------------


class Failing(io.StringIO):
    """An output that takes so many writes."""

    def __init__(self, error: Exception, writes: int) -> None:
        super().__init__()
        self.error, self.left = error, writes

    def write(self, text: str) -> int:
        self.left -= 1
        if self.left < 0:
            raise self.error
        return len(text)


@pytest.mark.parametrize(
    "error",
    [BrokenPipeError(32, "Broken pipe"), OSError(28, "No space left on device"), UnicodeEncodeError("a", "", 0, 1, "")],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.parametrize("is_terminal", [False, True])
def test_output_that_fails_does_not_end_the_training(
    error: Exception, is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
    output = Failing(error, 1)
    monkeypatch.setattr(sys, "stdout", output)
    trainer = trainer_of()
    with pytest.warns(RuntimeWarning, match=r"(?s)the progress of fit cannot be shown: .*; training goes on without"):
        history = trainer.fit(X, Y, epochs=3)
    assert len(history) == trainer.epochs == 3 and output.left < 0


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_nor_does_a_warning_that_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Failing(OSError(5, "gone"), 0))
    assert len(trainer_of().fit(X, Y, epochs=2)) == 2


TRAINING = """
import sys
from tests.relax.training.models import classes, trainer_of
x, y = classes(64)
trainer = trainer_of()
trainer.fit(x, y, epochs=int(sys.argv[1]), validation=(x[:8], y[:8]))
print(trainer.epochs, file=sys.stderr)
"""


def test_a_pipe_whose_reader_has_gone() -> None:
    code = "import subprocess, sys; read, write = __import__('os').pipe(); __import__('os').close(read)\n"
    code += "done = subprocess.run([sys.executable, '-c', sys.argv[1], '3'], stdout=write, stderr=-1, text=True)\n"
    code += "print(done.stderr)"
    done = subprocess.run([sys.executable, "-c", code, TRAINING], capture_output=True, text=True, cwd=ROOT, timeout=100)
    assert re.search(r"^3$", done.stdout, re.M), done
    assert "Broken pipe; training goes on without" in done.stdout


def test_a_terminal_gets_a_bar_and_lines() -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINING, "3"], stdout=theirs, stderr=subprocess.PIPE, cwd=ROOT, env=environment
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # Linux says so when the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert process.stderr is not None and process.stderr.read() == b"3\n" and process.wait(60) == 0
    text = shown.decode()
    for epoch in (1, 2, 3):
        assert f"epoch {epoch}: loss" in text and f"epoch {epoch}/3  loss" in text
    assert "━" in text and "/64" in text
    assert text.rstrip().endswith(("\x1b[?25h", "\x1b[2K")), "the cursor is back, the bar is gone"


def test_a_bar_of_an_unknown_number_of_rows(capsys: pytest.CaptureFixture[str]) -> None:
    os.environ.setdefault("TERM", "xterm")
    bar = display.Bar()
    bar.begin(2, None)
    bar.advance(1, 8, 0.5)
    bar.epoch(EpochRecord(1, {"loss": 0.5}, 1.0))
    bar.close()
    assert "epoch 1: loss 0.5000, 1.00 s" in capsys.readouterr().out


# ---- notebooks -------------------------------------------------------------------------------------------------------

CELLS = (
    "from tests.relax.training.models import classes, trainer_of\n"
    "x, y = classes(64)\n"
    "trainer = trainer_of('llvm')\n"
    "history = trainer.fit(x, y, epochs=3, validation=(x[:8], y[:8]))",
    "history",
    "trainer.fit(x, y, epochs=2)",
    "history.plot()",
    "trainer.lr_find(x, y, steps=10, end=1e-3)",
    "trainer.fit(x, y, verbose=2)\nNone",
)


def test_a_notebook_shows_a_live_table() -> None:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    NotebookClient(book, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    fitted, shown, alone, plotted, found, lines = (cell.outputs for cell in book.cells)
    (area,) = fitted
    assert area.output_type == "display_data", "one area, that is replaced"
    html = area.data["text/html"]
    assert html.count("<tr>") == 1 + 1 + 3 and "<progress" not in html and "<polyline" in html
    assert "epoch 3: loss" in area.data["text/plain"]
    assert shown[0].data["text/html"].count("<tr>") == 5
    assert [o.output_type for o in alone] == ["display_data"], "the value of the cell is the table that stands there"
    (picture,) = plotted
    assert "image/png" in picture.data, "once"
    assert "<polyline" in found[-1].data["text/html"]
    assert [o.output_type for o in lines] == ["stream"] and lines[0].text.startswith("epoch 6: loss")


class Shown:
    """Stands for a notebook's area."""

    def __init__(self) -> None:
        self.contents: list[tuple[str, str]] = []

    def show(self, html: str, text: str) -> None:
        self.contents.append((html, text))


def test_the_table_of_a_notebook_is_told_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    area = Shown()
    monkeypatch.setattr(display, "Area", lambda: area)
    monkeypatch.setattr(display, "in_notebook", lambda: True)
    monkeypatch.setattr(display, "NOTEBOOK_INTERVAL", 0.0)
    monkeypatch.setattr(progress.time, "perf_counter", iter(range(10**6)).__next__)  # each look is a second later
    trainer_of("llvm").fit(X, Y, epochs=2)
    texts = [text for _, text in area.contents]
    assert texts[0].startswith("compiling … 1.0 s")
    assert any(re.search(r"^epoch 2/2: 30/30 rows, loss \d", text, re.M) for text in texts)
    assert any('<progress value="24" max="30"></progress> 24/30 rows' in html for html, _ in area.contents) or any(
        '<progress value="30" max="30">' in html for html, _ in area.contents
    )
    assert "<div>compiled " in area.contents[-1][0] and "<progress" not in area.contents[-1][0]


def test_this_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not notebook.in_notebook()
    terminal = type("TerminalInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", type("", (), {"get_ipython": staticmethod(lambda: terminal)}))
    assert not notebook.in_notebook()
    terminal.kernel = object()
    assert notebook.in_notebook()
    assert isinstance(display.display_for("auto", History()), display.NotebookTable)
