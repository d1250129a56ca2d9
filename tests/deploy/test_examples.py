"""The programs of examples/deploy: they compile without a warning, run, and learn; all compute the same."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.deploy.exported import STRICT, Instance, compiler, kept, run_command

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "examples" / "deploy"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PULLBACK_OFFLINE": "1", "PULLBACK_DEBUG": "0"}
IMAGES, BATCH = 297, 16


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    """What train.py leaves: dist, images.bin and labels.bin."""
    folder = tmp_path_factory.mktemp("deploy")
    text = run_command(sys.executable, HERE / "train.py", cwd=folder, env=ENVIRONMENT)
    assert "libdigits.a" in text and "memory: instance" in text
    return folder


@pytest.fixture
def folder(exported, tmp_path) -> Path:
    """The same, for a program to write into."""
    return Path(shutil.copytree(exported, tmp_path / "work"))


def data(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    images = np.fromfile(folder / "images.bin", np.float32).reshape(-1, 64)
    return images, np.fromfile(folder / "labels.bin", np.int64)


def accuracies(text: str) -> list[float]:
    return [float(value) for value in re.findall(r"accuracy ([0-9.]+)", text)]


def test_train_is_short():
    lines = (HERE / "train.py").read_text().splitlines()
    assert sum(bool(line.strip()) and not line.lstrip().startswith(("#", '"""')) for line in lines) <= 25


def scores_of_first(folder: Path) -> np.ndarray:
    """After three epochs at the lower learning rate."""
    images, labels = data(folder)
    with Instance(folder / "dist") as native:
        native.call("set_hyperparameter", b"lr", ctypes.c_double(1e-3))
        native.run(images, labels, epochs=3)
        return native.predict(images[:1])[0][0]


@pytest.mark.allowance(10)
def test_c(folder):
    flags = ["-std=c11", "-O2", *STRICT]
    run_command(
        *compiler(), *flags, HERE / "main.c", "-Idist", "dist/libdigits.a", "-pthread", "-o", "main", cwd=folder
    )
    with Instance(folder / "dist") as native:
        expected = native.evaluate(*data(folder))
    first = run_command("./main", "images.bin", "labels.bin", "digits.safetensors", cwd=folder)
    begins = re.search(r"after 188 steps: loss ([0-9.]+), accuracy ([0-9.]+)", first)
    assert [float(v) for v in begins.groups()] == pytest.approx(expected, abs=1e-3)
    assert "epoch 3, 206 steps" in first and "epoch 5, 242 steps" in first and "after 242 steps" in first
    assert accuracies(first)[-1] > accuracies(first)[0]
    scores = [float(v) for v in first.split("scores of the first: ")[1].split()]
    np.testing.assert_allclose(scores, scores_of_first(folder), atol=0.006)
    second = run_command("./main", "images.bin", "labels.bin", "digits.safetensors", cwd=folder)
    assert second.startswith(first.splitlines()[4]) and "after 296 steps" in second
    assert not (folder / "digits.safetensors.tmp").exists()


@pytest.mark.slow
def test_c_refuses_a_damaged_checkpoint(folder):
    run_command(*compiler(), "-O1", HERE / "main.c", "-Idist", "dist/libdigits.a", "-pthread", "-o", "main", cwd=folder)
    data = bytearray((folder / "dist" / "digits.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "digits.safetensors").write_bytes(data)
    with pytest.raises(AssertionError, match="error: "):
        run_command("./main", "images.bin", "labels.bin", "digits.safetensors", cwd=folder)
    assert (folder / "digits.safetensors").read_bytes() == data


@pytest.mark.slow
@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_cpp(folder, standard):
    cxx = shutil.which(os.environ.get("CXX", "c++"))
    if cxx is None:
        pytest.skip("there is no C++ compiler")
    flags = [f"-std={standard}", "-O2", *STRICT]
    run_command(cxx, *flags, HERE / "main.cpp", "-Idist", "dist/libdigits.a", "-pthread", "-o", "main", cwd=folder)
    text = run_command("./main", "images.bin", "labels.bin", "digits.safetensors", cwd=folder)
    assert "after 242 steps" in text and "one more step: loss" in text
    assert re.search(r"the first is a [0-9]\n", text)
    assert "after 297 steps" in run_command("./main", "images.bin", "labels.bin", "digits.safetensors", cwd=folder)


def python_steps(folder: Path) -> float:
    """What ctypes_example.py and the Rust program do: five epochs in order; the last loss."""
    images, labels = data(folder)
    with Instance(folder / "dist") as native:
        for _ in range(5):
            for first in range(0, IMAGES - BATCH + 1, BATCH):
                loss = native.step(images[first : first + BATCH], labels[first : first + BATCH])
        native.save(folder / "expected.safetensors")
    return loss


def check_steps(folder: Path, text: str, checkpoint: str) -> None:
    """The program has done the same, and was refused a wrong label."""
    loss = python_steps(folder)
    assert f"loss {loss:.4f}" in text and accuracies(text)[-1] > 0.95 > accuracies(text)[0]
    assert "refused: nn.nll_loss: a target is neither a class" in text
    assert kept(folder / checkpoint) == kept(folder / "expected.safetensors")


@pytest.mark.slow
def test_ctypes(folder):
    """It needs no pullback: none can be found."""
    program = (
        "import runpy, sys; sys.modules['pullback'] = None; sys.argv = sys.argv[1:];"
        " runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [sys.executable, "-c", program, HERE / "ctypes_example.py", "dist/libdigits.so"]
    check_steps(folder, run_command(*command, cwd=folder), "digits.safetensors")


@pytest.mark.slow
def test_rust(folder):
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not installed")
    environment = {**os.environ, "DIGITS": str(folder / "dist"), "CARGO_TARGET_DIR": str(folder / "target")}
    manifest = HERE / "rust" / "Cargo.toml"
    run_command("cargo", "build", "--offline", "--locked", "--quiet", "--manifest-path", manifest, env=environment)
    program = folder / "target" / "debug" / "digits"
    text = run_command(program, "images.bin", "labels.bin", "rust.safetensors", cwd=folder)
    check_steps(folder, text, "rust.safetensors")
    assert "after 278 steps" in text
    again = run_command(program, "images.bin", "labels.bin", "rust.safetensors", cwd=folder)
    assert "after 368 steps" in again


@pytest.mark.slow
def test_federated(folder):
    text = run_command(
        sys.executable, HERE / "federated.py", "dist/libdigits.so", cwd=folder, env=ENVIRONMENT, timeout=300
    )
    rounds = re.findall(r"round (\d+): (\d+) clients, (\d+) images, accuracy ([0-9.]+)", text)
    assert [(int(n), int(clients), int(images)) for n, clients, images, _ in rounds] == [
        (1, 3, 237), (2, 3, 237), (3, 2, 190), (4, 2, 190), (5, 2, 190), (6, 2, 190),
    ]  # fmt: skip
    assert float(rounds[-1][3]) > 0.8 and float(rounds[-1][3]) > float(rounds[0][3])
    with Instance(folder / "dist") as native:
        native.load(folder / "federated.safetensors")
        images, labels = data(folder)
        (scores,) = native.predict(np.ascontiguousarray(images[::5]))
    assert f"{np.mean(scores.argmax(1) == labels[::5]):.3f}" == rounds[-1][3]


@pytest.mark.slow
def test_the_mean_of_what_clients_have_learnt(folder):
    """get_parameters and add_parameters, with weights: NumPy's mean."""
    sys.path.insert(0, str(HERE))
    try:
        from ctypes_example import Digits
    finally:
        sys.path.remove(str(HERE))
    images, labels = data(folder)
    path = str(folder / "dist" / "libdigits.so")
    middle = Digits(path)
    before = middle.parameters()
    changes = []
    for number in range(3):
        client = Digits(path)
        client.set_parameters(before)
        client.step(images[number * BATCH :][:BATCH], labels[number * BATCH :][:BATCH])
        changes.append(client.parameters() - before)
        client.close()
    weights = np.array([0.5, 0.3, 0.2])
    for change, weight in zip(changes, weights, strict=True):
        middle.add_parameters(change, weight)
    expected = before + np.tensordot(weights, np.array(changes, np.float64), 1)
    np.testing.assert_allclose(middle.parameters(), expected, atol=1e-7)
    middle.close()
