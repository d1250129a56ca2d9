"""The parameters after 20 steps of the tutorial's model are the same bits: with 1, 2 and 3 threads, from run to run,
and when the process is killed after ten steps, right after saving, and another one goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

PROGRAM = """
import hashlib, os, signal, sys
import numpy as np
import pullback
from pullback.demo.mlp import MLP
from pullback.relax.training.loss import CrossEntropyLoss
from pullback.relax.training.optimizer import LAMB, Accumulate, Adam, ClipByGlobalNorm

first, last, load, save = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
optimizer = eval(sys.argv[5])
rng = np.random.default_rng(0)
x, y = rng.random((20, 64, 784), np.float32), rng.integers(0, 10, (20, 64))
trainer = pullback.trainer(MLP, CrossEntropyLoss("mean"), optimizer, seed=0)
if load:
    trainer.load(load)
for k in range(first, last):
    trainer.update(x[k], y[k])
if save:
    trainer.save(save)
    os.kill(os.getpid(), signal.SIGKILL)
print(hashlib.sha256(b"".join(t.numpy().tobytes() for t in trainer.export_params().values())).hexdigest())
"""


NORMED = "Accumulate(ClipByGlobalNorm(LAMB(1e-2), 0.1), 3)"  # sums over all elements of all gradients and parameters


def run(first: int, last: int, threads: int, load: str = "", save: str = "", optimizer: str = "Adam(1e-3)") -> str:
    """The digest that the program prints; when it saves it is killed, and prints nothing."""
    environment = os.environ | {"PYTHONPATH": os.getcwd(), "PULLBACK_NUM_THREADS": str(threads)}
    command = [sys.executable, "-c", PROGRAM, str(first), str(last), load, save, optimizer]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == (-signal.SIGKILL if save else 0), done.stderr
    return done.stdout.strip()


def test_threads_runs_and_resumption(tmp_path) -> None:
    digests = [run(0, 20, threads) for threads in (1, 2, 3, 2)]
    checkpoint = str(tmp_path / "ten.safetensors")
    run(0, 10, 2, save=checkpoint)
    digests += [run(10, 20, threads, load=checkpoint) for threads in (1, 2)]
    assert len(digests[0]) == 64
    assert len(set(digests)) == 1, digests


def test_global_reductions_and_resumption_between_applications(tmp_path) -> None:
    digests = [run(0, 20, threads, optimizer=NORMED) for threads in (1, 3)]
    checkpoint = str(tmp_path / "ten.safetensors")
    run(0, 10, 2, save=checkpoint, optimizer=NORMED)
    digests += [run(10, 20, 2, load=checkpoint, optimizer=NORMED)]
    assert len(digests[0]) == 64 and len(set(digests)) == 1, digests


NORMS = """
import hashlib
import numpy as np
import pullback
from pullback.script import ir as I, relax as R

@I.ir_module
class Model:
    @R.function
    def main(
        index: R.Tensor((96, 64), "int64"), table: R.Tensor((500, 80), "float32"),
        gamma: R.Tensor((64,), "float32"), scale: R.Tensor((80,), "float32"), weight: R.Tensor((96, 64, 80), "float32"),
    ):
        with R.dataflow():
            x = R.take(table, index, axis=0)
            batch = R.nn.batch_norm(x, gamma, gamma, gamma, gamma)
            row = R.nn.layer_norm(R.nn.relu(batch[0]), scale, scale)
            loss = R.sum(row * weight)
            R.output(loss)
        return loss

rng = np.random.default_rng(0)
shapes = ((500, 80), (64,), (80,), (96, 64, 80))
values = [rng.integers(0, 500, (96, 64)), *(rng.standard_normal(s, "float32") for s in shapes)]
module = pullback.relax.transform.Gradient("main", ["table", "gamma", "scale"])(Model)
loss, adjoints = pullback.compile(module)["main_adjoint"](*values)
print(hashlib.sha256(b"".join(t.numpy().tobytes() for t in (loss, *adjoints))).hexdigest())
"""


def test_norms_and_embeddings_with_any_threads(tmp_path) -> None:
    program = tmp_path / "norms.py"
    program.write_text(NORMS)
    digests = []
    for threads in ("1", "2", "3"):
        environment = os.environ | {"PYTHONPATH": os.getcwd(), "PULLBACK_NUM_THREADS": threads}
        command = [sys.executable, str(program)]
        digests.append(subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout)
    assert len(digests[0].strip()) == 64 and len(set(digests)) == 1, digests
