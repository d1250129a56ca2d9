"""The kernels of models and of random contractions are those of the committed list, on machines described by hand."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.schedule import kernel_digests
from tests.schedule.kernel_digests import FLOAT32, MACHINES, PAIRS, RANDOM, SECTIONS, digests, read, write


def check(request: pytest.FixtureRequest, machine: str, part: str) -> None:
    found = digests(machine, part)
    if request.config.getoption("--update-golden"):
        write((machine, part), found)
        return
    expected = read().get((machine, part), {})
    changed = [name for name, digest in found.items() if expected.get(name) != digest]
    changed += [f"{name} (is no kernel any more)" for name in expected if name not in found]
    assert not changed, (
        f"kernels changed: {', '.join(changed)}; compare `python -m tests.schedule.kernel_digests {machine} {part!r}` "
        "before and after, and if they should, run this file with --update-golden"
    )


@pytest.mark.parametrize("part", FLOAT32)
@pytest.mark.parametrize("machine", MACHINES)
def test_models(request, machine, part):
    check(request, machine, part)


@pytest.mark.parametrize("part", [part for machine, part in SECTIONS if machine == PAIRS])
def test_mixed_precision(request, part):
    check(request, PAIRS, part)


@pytest.mark.parametrize("part", RANDOM)
@pytest.mark.parametrize("machine", MACHINES)
def test_random_contractions(request, machine, part):
    check(request, machine, part)


def test_file_has_all_sections_and_no_others():
    assert list(read()) == list(SECTIONS)


def test_digests_are_the_same_in_every_process():
    """Neither the hashes of strings nor what was lowered before decide the order of anything in a kernel."""
    code = "from tests.schedule.kernel_digests import texts; print(texts('avx2', 'mlp'))"
    run = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": "7"}, capture_output=True, text=True,
        check=True, cwd=kernel_digests.FILE.parents[2],
    )  # fmt: skip
    assert run.stdout.strip() == str(kernel_digests.texts("avx2", "mlp"))
