"""What a notebook shows: HTML that is well-formed, escaped, and without colours of the background."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest

import pullback
from pullback import nn
from pullback.relax.training import SetupTrainer, Trainer
from pullback.relax.training.loss import MSELoss
from pullback.relax.training.optimizer import SGD
from pullback.script import relax as R

X = np.random.default_rng(0).random((8, 4), dtype=np.float32)
ODD = "<script>alert('x & y')</script>"


class Odd(nn.Module):
    def __init__(self):
        self.inner = nn.Sequential({"a<b>": nn.Linear(4, 3)})

    def extra_repr(self) -> str:
        return ODD

    def forward(self, x):
        return R.nn.softmax(self.inner(x))


class Page(HTMLParser):
    """Reads a page; raises where a tag is closed that was not open."""

    void = ("br", "polyline", "meta")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open, self.tags, self.text = [], [], ""
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def trainer():
    return pullback.trainer(Odd(), "mse", "sgd", example=X)


def test_modules_fold_and_are_escaped():
    page = Page(Odd()._repr_html_())
    assert "script" not in page.tags and ODD in page.text and "a<b>" in page.text
    assert page.tags.count("details") == 3 and "15 parameters" in page.text and "(3, 4)" in page.text
    net = Odd()
    net.inner.requires_grad_(False)
    assert "15 frozen" in net._repr_html_()


def test_trainers_reports_and_summaries(trainer):
    report = trainer.profile_step(X, X[:, :3])
    summary = trainer.summary()
    for thing, words in (
        (trainer, "optimizer: SGD"), (report, "a<b>"), (report, "µs"), (summary, "a<b>"), (summary, "peak of a step"),
        (summary, "FLOPs"), (summary.memory, "arena is fullest"), (report.table(100, 10), "roofline"),
    ):  # fmt: skip
        page = Page(thing._repr_html_())
        assert words in page.text and "script" not in page.tags, words
    assert repr(report).startswith("Report(__step: ") and "\n" not in repr(report)
    assert repr(summary.memory) == f"MemoryReport(__step: {summary.memory.total:,} bytes)"


def test_modules_of_functions_are_scripts_in_colours(trainer):
    page = Page(trainer.mod._repr_html_())
    assert "R.matmul" in page.text or "R.linear" in page.text
    assert {"details", "pre", "span"} <= set(page.tags) and "backbone_loss_adjoint" in page.text
    assert "background" not in trainer.mod._repr_html_().replace("background:none", "")


@pytest.mark.parametrize("shape", [(), (3,), (200, 300), (0, 2)])
def test_tensors(shape):
    page = Page(pullback.tensor(np.zeros(shape, "int64"))._repr_html_())
    assert f"Tensor {shape} int64, {8 * int(np.prod(shape)):,} bytes" in page.text and len(page.text) < 400


def test_a_trainer_that_is_not_built():
    info = pullback.relax.TensorStructInfo((2, 3), "float32")
    module = nn.Linear(4, 3).export(R.Tensor((2, 4), "float32"))
    made = Trainer(module, 2, SetupTrainer(MSELoss(), SGD(0.1), [info, info]))
    assert made._repr_html_() == "Trainer(not built)" == repr(made)
