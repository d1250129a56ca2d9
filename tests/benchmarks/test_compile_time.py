"""The networks whose compiles are timed, and the command that times them."""

from __future__ import annotations

import json

import pytest

from benchmarks import compile_time
from benchmarks.harness import ROOT
from benchmarks.networks import GRAPHS, NETWORKS, trainer_module
from pullback.relax.analysis import check_well_formed


@pytest.mark.parametrize(("name", "count"), [*((n, 0) for n in NETWORKS), *((n, 3) for n in GRAPHS)])
def test_every_network_is_a_trainer_module(name, count):
    module = trainer_module(name, count)
    check_well_formed(module)
    assert {"backbone_loss", "backbone_loss_adjoint"} <= {n for n, _ in module.items()}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_family_grows_with_its_number(name):
    small, large = (len(list(trainer_module(name, count)["backbone"].bindings)) for count in (4, 8))
    assert small < large <= 2 * small + 4


def test_a_compile_is_timed_beside_another_checkout(tmp_path):
    path = tmp_path / "compile.json"
    compile_time.run([], ["parameters"], [1, 2], 1, 1, ROOT, path)
    times = json.loads(path.read_text())["times"]
    assert set(times) == {f"parameters {n}, {side}" for n in (1, 2) for side in ("this tree", "against")}
    assert all(len(t["seconds"]) == 1 and t["seconds"][0] > 0 and t["failure"] is None for t in times.values())


def test_a_failed_compile_is_told(tmp_path):
    assert not compile_time.run(["no such network"], [], [], 1, 1, None, None)
