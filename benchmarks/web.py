"""Training steps in headless Chromium: an exported trainer beside TensorFlow.js and jax-js, from the same weights."""

from __future__ import annotations

import json
import math
import shutil
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

import pullback
from benchmarks.chromium import Page
from benchmarks.harness import ROOT
from benchmarks.report import console, heading
from pullback import nn, optim

SIDES = ("pullback", "pullback worker", "tfjs", "jax-js")
MODELS = ("mlp", "lenet")
PACKAGES = ("@tensorflow/tfjs@4.22.0", "@tensorflow/tfjs-backend-wasm@4.22.0", "@jax-js/jax@0.1.25")
BATCH, RATE, STEPS = 64, 0.01, 5  # steps whose losses are compared
PAGES = Path(__file__).with_name("browser")
PEERS = ROOT / "build" / "browser-peers"


def run(
    models: Sequence[str], sides: Sequence[str], rounds: int, seconds: float, chromium: str, path: Path | None
) -> bool:
    """Measure, print, and write a file; returns whether our sides ran, and whoever ran has the same losses."""
    heading("Training steps in a browser")
    if {"tfjs", "jax-js"} & set(sides):
        fetch_peers()
    with tempfile.TemporaryDirectory(prefix="pullback-web-") as folder:
        site = Path(folder)
        shutil.copytree(PAGES, site, dirs_exist_ok=True)
        if PEERS.is_dir():
            (site / "node_modules").symlink_to(PEERS / "node_modules")
        for model in models:
            write_model(model, site)
        found = {model: measure(model, sides, rounds, seconds, chromium, site) for model in models}
    for model in models:
        report(model, found[model])
    if path is not None:
        path.write_text(json.dumps({"name": "web", "batch": BATCH, "models": found}, indent=1) + "\n")
    return all(agree(sides) for sides in found.values())


def fetch_peers() -> None:
    """TensorFlow.js and jax-js from npm, once."""
    PEERS.mkdir(parents=True, exist_ok=True)
    wanted = json.dumps(PACKAGES)
    stamp = PEERS / "packages.json"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    command = ["npm", "install", "--prefix", str(PEERS), "--no-audit", "--no-fund", "--ignore-scripts", *PACKAGES]
    subprocess.run(command, check=True, capture_output=True)
    stamp.write_text(wanted)


def network(model: str) -> nn.Module:
    """784-128-128-10, or LeNet-5 with maxima."""
    if model == "mlp":
        return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


def write_model(model: str, site: Path) -> None:
    """The exported trainer, and the batch and the weights for the others."""
    random = np.random.default_rng(0)
    x = random.standard_normal((BATCH, 784) if model == "mlp" else (BATCH, 1, 28, 28)).astype(np.float32)
    trainer = pullback.trainer(network(model), "cross_entropy", optim.SGD(RATE), example=x, seed=0)
    trainer.export(site / model, target="wasm32", name=model, batch_size=BATCH)
    tensors = [x, *(value.numpy() for value in trainer.params.values())]
    (site / f"{model}.bin").write_bytes(b"".join(np.ascontiguousarray(t).tobytes() for t in tensors))
    about = {"shapes": [list(t.shape) for t in tensors], "labels": [i % 10 for i in range(BATCH)], "rate": RATE}
    (site / f"{model}.json").write_text(json.dumps(about))


class _Handler(SimpleHTTPRequestHandler):
    """Isolates the page, so that peers may use threads."""

    extensions_map = {  # noqa: RUF012
        **SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".js": "text/javascript",
        ".wasm": "application/wasm",
    }

    def end_headers(self) -> None:
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""


@contextmanager
def served(site: Path) -> Iterator[str]:
    """The address of a folder while it is served."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()


def measure(
    model: str, sides: Sequence[str], rounds: int, seconds: float, chromium: str, site: Path
) -> dict[str, dict[str, Any]]:
    """By side: its first losses, and the milliseconds of its steps in rounds that take turns."""
    with tempfile.TemporaryDirectory() as profile, served(site) as address, Page(chromium, Path(profile)) as page:
        page.open(f"{address}/page.html")
        page.wait("window.isReady === true")
        found = {side: page.evaluate(f"start({side!r}, {model!r}, {STEPS})", 600) for side in sides}
        for side in found:
            found[side]["rounds"] = []
        for _ in range(rounds):
            for side in (s for s in sides if "failure" not in found[s]):
                times = page.evaluate(f"measure({side!r}, {1000 * seconds})", 600)
                found[side]["rounds"].append(statistics.median(times))
                found[side]["best"] = min(*times, found[side].get("best", math.inf))
    return found


def agree(found: dict[str, dict[str, Any]]) -> bool:
    """Whether ours ran, and all that ran have the losses of the first."""
    ran = [side["losses"] for side in found.values() if "failure" not in side]
    ours = all("failure" not in side for name, side in found.items() if name.startswith("pullback"))
    return ours and all(np.allclose(losses, ran[0], rtol=1e-3) for losses in ran)


def report(model: str, found: dict[str, dict[str, Any]]) -> None:
    table = Table(title=f"{model}, batch {BATCH}, SGD, float32: milliseconds", title_justify="left")
    for column in ("side", "step (median)", "step (best)", "first step, with loading", f"loss of step {STEPS}"):
        table.add_column(column, justify="left" if column == "side" else "right")
    for name, side in found.items():
        if "failure" in side:
            table.add_row(name, f"cannot: {side['failure'][:60]}", "", "", "")
        else:
            numbers = (statistics.median(side["rounds"]), side["best"], side["first"])
            table.add_row(name, *(f"{number:.2f}" for number in numbers), f"{side['losses'][-1]:.5f}")
    console.print(table)
    if not agree(found):
        console.print("[red]the losses differ, or a side of ours failed[/red]")
