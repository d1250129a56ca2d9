"""The demo looks at its arguments before it trains."""

from __future__ import annotations

import pytest

from pullback import demo
from pullback.demo import fashion_mnist
from pullback.ir import ArgumentError


@pytest.fixture(autouse=True)
def never_trained(monkeypatch):
    def load(*_):
        raise AssertionError("the arguments come first")

    monkeypatch.setattr(fashion_mnist, "load", load)


def test_numbers_are_positive():
    with pytest.raises(ArgumentError, match="epochs must be at least 1, got 0"):
        demo.main(epochs=0)
    with pytest.raises(ArgumentError, match=r"threads must be .* 1.*, got 0"):
        demo.main(epochs=1, threads=0)


def test_the_picture_can_be_written(tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        demo.main(picture=tmp_path / "nowhere" / "picture.png")
    with pytest.raises(PermissionError, match="cannot be written there"):
        demo.main(picture=tmp_path)
    with pytest.raises(AssertionError, match="the arguments come first"):
        demo.main(epochs=1, picture=tmp_path / "picture.png")
