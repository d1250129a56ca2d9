"""How much memory calls of a function really take, in a process of its own: the counterpart of the plan.

python -m tests.driver.peak WIDTH BATCH   →   planned and measured bytes, as two numbers
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

import pullback
from pullback.driver.executable import Executable
from pullback.relax.training.optimizer import Adam
from tests.driver.models import mlp_trainer_module, step_arguments

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
CAN_MEASURE = STATUS.exists() and CLEAR.exists()


def planned_and_measured(width: int, batch: int) -> tuple[int, int]:
    """The bytes that a training step of an MLP should hold at its peak, and those that a fresh process holds more at
    the peak of three steps than before its tensors were made."""
    trainer(width, batch)["__step"].native()  # compiled and in the cache: with the environment below that takes long
    command = [sys.executable, "-m", "tests.driver.peak", str(width), str(batch)]
    # freed blocks go back to the system at once: what the process holds is what it uses
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split()
    return int(output[0]), int(output[1])


def trainer(width: int, batch: int) -> Executable:
    return pullback.compile(mlp_trainer_module((width, width, width, 10), batch, Adam(0.01)))


def _field(name: str) -> int:
    """A line of /proc/self/status, in bytes."""
    match = re.search(rf"^{name}:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE)
    assert match is not None, name
    return 1024 * int(match[1])


def main(width: int, batch: int) -> None:
    executable = trainer(width, batch)
    report = executable.memory("__step")
    step = executable["__step"]
    kinds = step.native().layout.inputs
    warm = mlp_trainer_module((8, 8, 10), 2, Adam(0.01))  # what Python and the thread pool need once is not counted
    pullback.compile(warm)["__step"].bind(step_arguments(warm))()
    CLEAR.write_text("5")  # the peak begins anew
    before = _field("VmRSS")
    call = step.bind([pullback.tensor(np.zeros(k.shape, k.dtype), copy=True) for k in kinds])
    for _ in range(3):
        call()
    print(report.total, _field("VmHWM") - before)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
