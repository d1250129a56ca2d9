"""The benchmarks' models have the same bits after five steps: with 1, 2 and 3 threads, from run to run, with and
without temporaries in place and recomputation, over poisoned memory, and after saving and loading."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.models import MODELS

pytestmark = pytest.mark.slow  # each trains all models, in processes of their own

PROGRAM = """
import hashlib, sys, tempfile
import pullback
from pullback import relax
from pullback.driver import pipeline
from benchmarks.workers.relax_module import module_of, setup
from tests.benchmarks.test_against_torch import TINY

def without_in_place(poison):
    return options(in_place=False, poison=poison)

variant = sys.argv[1]
options = pipeline.MemoryOptions
if variant == "not-in-place":
    pipeline.MemoryOptions = without_in_place
elif variant == "in-place-always":
    pipeline.MemoryOptions = lambda poison: options(smallest=1, poison=poison)
elif variant == "saved":
    class Keep(pipeline.Rematerialize):
        def run(self, module):
            return module
    pipeline.Rematerialize = Keep
elif variant not in ("plain", "loaded"):
    raise ValueError(variant)

for model in TINY:
    module = setup(model, relax, legalize=False)(module_of(model, relax))
    machine = relax.VirtualMachine(pullback.compile(module), pullback.cpu())
    def trainer():
        return relax.training.Trainer(module, machine, pullback.cpu())
    training = trainer()
    training.load_params(model.parameters())
    training.load_states(model.states())
    x, y = model.data()
    for step in range(5):
        if variant == "loaded" and step == 3:
            with tempfile.TemporaryDirectory() as folder:
                training.save(f"{folder}/three.safetensors")
                training = trainer()
                training.load(f"{folder}/three.safetensors")
        training.update(x, y)
    tensors = [*training.export_params().values(), *training.export_states().values()]
    print(model.name, hashlib.sha256(b"".join(t.numpy().tobytes() for t in tensors)).hexdigest())
"""


def run(variant: str, cache: Path, threads: int = 2, poison: bool = False) -> str:
    """A digest for each model. Patched pipelines have a cache of their own: its keys know nothing of patches."""
    folder = {
        "PULLBACK_CACHE_DIR": str(cache / f"{'plain' if variant == 'loaded' else variant}{poison}"),
        "PULLBACK_POISON": str(int(poison)),
    }
    environment = os.environ | folder | {"PYTHONPATH": os.getcwd(), "PULLBACK_NUM_THREADS": str(threads)}
    command = [sys.executable, "-c", PROGRAM, variant]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("caches")


@pytest.fixture(scope="module")
def expected(folder: Path) -> str:
    found = run("plain", folder, threads=1)
    assert len(found.splitlines()) == len(MODELS)
    return found


def test_threads_and_runs(folder: Path, expected: str) -> None:
    for threads in (2, 3, 2):
        assert run("plain", folder, threads) == expected, f"{threads} threads"


@pytest.mark.parametrize("variant", ["not-in-place", "in-place-always", "saved"])
def test_passes(variant: str, folder: Path, expected: str) -> None:
    assert run(variant, folder) == expected


def test_poisoned_memory(folder: Path, expected: str) -> None:
    assert run("plain", folder, poison=True) == expected


def test_saved_and_loaded(folder: Path, expected: str) -> None:
    assert run("loaded", folder) == expected
