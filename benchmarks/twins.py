"""The programs of `examples/` beside PyTorch: the same layers, weights and batches; losses, and the time of a step.

The layers have the same names in both libraries, so each model is written once, as a function of the package ``nn``.
What draws random numbers (dropout, augmentation) is left out, as the two libraries draw different ones.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import report

ROWS, STEPS = 50, 20
TOLERANCE = 2e-4  # of the losses of all steps, relative: float32 in another order of sums


@dataclass(frozen=True)
class Twin:
    """A program: its model and the loss as functions of a package ``nn``, one of PyTorch's or ours."""

    title: str
    model: Callable[[Any], Any]
    loss: Callable[[Any], Any]  # of nn: a function of outputs and targets
    optimizer: Callable[[Any], Any]  # of the package of optimizers: what it is made of, as a function of its first args
    inputs: Callable[[np.random.Generator], np.ndarray]
    targets: Callable[[np.random.Generator, np.ndarray], np.ndarray]
    frozen: tuple[str, ...] = ()
    clip: float | None = None


def digits_cnn(nn: Any) -> Any:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 7 * 7, 10)),
    )


def tabular(nn: Any) -> Any:
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))


def char_gpt(nn: Any) -> Any:
    characters, length, width = 70, 64, 128

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.place = nn.Embedding(characters, width), nn.Embedding(length, width)
            block = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
            self.blocks = nn.TransformerEncoder(block, 2, nn.LayerNorm(width))
            self.head = nn.Linear(width, characters)

        def forward(self, x: Any) -> Any:
            mask = nn.Transformer.generate_square_subsequent_mask(length)
            h = self.token(x) + self.place.weight
            return self.head(self.blocks(h, mask, is_causal=True)).transpose(1, 2)

    return GPT()


def char_lstm(nn: Any) -> Any:
    characters, width = 70, 128

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Embedding(characters, width)
            self.layers = nn.LSTM(width, width, num_layers=2, batch_first=True)
            self.head = nn.Linear(width, characters)

        def forward(self, x: Any) -> Any:
            return self.head(self.layers(self.token(x))[0]).transpose(1, 2)

    return Model()


def finetune(nn: Any) -> Any:
    body = (nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return nn.Sequential(nn.Sequential(*body), nn.Linear(512, 5))


def autoencoder(nn: Any) -> Any:
    class Autoencoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 8))
            self.decode = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 64), nn.Sigmoid())

        def forward(self, x: Any) -> Any:
            code = self.encode(x)
            return self.decode(code), code

    return Autoencoder()


def reconstruction(nn: Any) -> Any:
    return lambda picture, code, x: nn.functional.binary_cross_entropy(picture, x) + 1e-3 * code.abs().mean()


def _classes(count: int) -> Any:
    return lambda rng, x: rng.integers(0, count, len(x))


TWINS = {
    "digits_cnn": Twin(
        "CNN on digits, AdamW", digits_cnn, lambda nn: nn.functional.cross_entropy, lambda o: o.AdamW,
        lambda rng: rng.random((ROWS, 1, 28, 28)), _classes(10),
    ),
    "tabular": Twin(
        "MLP on a table, Adam", tabular, lambda nn: nn.functional.mse_loss, lambda o: o.Adam,
        lambda rng: rng.normal(size=(ROWS, 10)), lambda rng, x: x[:, :1] + 0.1 * rng.normal(size=(len(x), 1)),
    ),
    "char_gpt": Twin(
        "char-GPT of two blocks, AdamW, clipping", char_gpt, lambda nn: nn.functional.cross_entropy,
        lambda o: o.AdamW, lambda rng: rng.integers(0, 70, (ROWS, 64)), lambda rng, x: np.roll(x, -1, axis=1),
        clip=1.0,
    ),
    "char_lstm": Twin(
        "char-LSTM of two layers, AdamW, clipping", char_lstm, lambda nn: nn.functional.cross_entropy,
        lambda o: o.AdamW, lambda rng: rng.integers(0, 70, (ROWS, 64)), lambda rng, x: np.roll(x, -1, axis=1),
        clip=1.0,
    ),
    "finetune": Twin(
        "head on a frozen body, Adam", finetune, lambda nn: nn.functional.cross_entropy, lambda o: o.Adam,
        lambda rng: rng.random((ROWS, 1, 8, 8)), _classes(5), frozen=("0.",),
    ),
    "autoencoder": Twin(
        "autoencoder, loss of two outputs, AdamW", autoencoder, reconstruction, lambda o: o.AdamW,
        lambda rng: rng.random((ROWS, 64)), lambda rng, x: x,
    ),
}  # fmt: skip


def _batches(twin: Twin) -> tuple[np.ndarray, np.ndarray]:
    """All steps' inputs and targets, one after the other."""
    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(STEPS):
        x = twin.inputs(rng)
        pairs.append((x, twin.targets(rng, x)))
    x, y = (np.concatenate(part) for part in zip(*pairs, strict=True))
    return tuple(a.astype("float32") if a.dtype.kind == "f" else a.astype("int64") for a in (x, y))  # type: ignore


class _Ours:
    def __init__(self, twin: Twin, state: dict[str, Any], x: np.ndarray) -> None:
        import pullback
        from pullback import nn, optim

        net = twin.model(nn)
        net.load_state_dict(state)
        for name, parameter in net.named_parameters():
            parameter.requires_grad = not name.startswith(twin.frozen or ("-",))
        optimizer = twin.optimizer(optim)(lr=1e-3)
        optimizer = optim.ClipByGlobalNorm(optimizer, twin.clip) if twin.clip else optimizer
        self.trainer = pullback.trainer(net, twin.loss(nn), optimizer, example=x, targets=_batches(twin)[1][:1])

    def step(self, x: np.ndarray, y: np.ndarray) -> float:
        return self.trainer.update(x, y).item()


class _Theirs:
    def __init__(self, twin: Twin, model: Any) -> None:
        import torch

        self.torch, self.twin, self.model = torch, twin, model
        for name, parameter in model.named_parameters():
            parameter.requires_grad = not name.startswith(twin.frozen or ("-",))
        self.loss = twin.loss(torch.nn)
        trained = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = twin.optimizer(torch.optim)(trained, lr=1e-3)

    def step(self, x: np.ndarray, y: np.ndarray) -> float:
        torch = self.torch
        outputs = self.model(torch.from_numpy(x))
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        loss = self.loss(*outputs, torch.from_numpy(y))
        self.optimizer.zero_grad()
        loss.backward()
        if self.twin.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.twin.clip)
        self.optimizer.step()
        return loss.item()


def compare(name: str, rounds: int = 5) -> tuple[float, float, float]:
    """The largest relative difference of the losses of all steps; then the median milliseconds of a step, ours and
    PyTorch's, in rounds that take turns."""
    import torch

    twin = TWINS[name]
    torch.manual_seed(0)
    x, y = _batches(twin)
    model = twin.model(torch.nn)
    ours, theirs = _Ours(twin, model.state_dict(), x[:ROWS]), _Theirs(twin, model)
    cuts = [slice(i, i + ROWS) for i in range(0, len(x), ROWS)]
    losses = [[side.step(x[cut], y[cut]) for cut in cuts] for side in (ours, theirs)]
    distance = float(np.max(np.abs(np.subtract(*losses)) / np.abs(losses[1])))
    seconds: list[list[float]] = [[], []]
    for _ in range(rounds):
        for side, found in zip((ours, theirs), seconds, strict=True):
            started = time.perf_counter()
            for cut in cuts:
                side.step(x[cut], y[cut])
            found.append((time.perf_counter() - started) / STEPS)
    mine, other = (1e3 * statistics.median(s) for s in seconds)
    return distance, mine, other


def run(names: list[str], rounds: int) -> bool:
    """Print the table of these programs; whether all losses agree."""
    rows, good = [], True
    for name in names:
        distance, mine, other = compare(name, rounds)
        good &= distance <= TOLERANCE
        times = [report.duration(1e-3 * milliseconds) for milliseconds in (mine, other)]
        equal = report.verdict(distance <= TOLERANCE)
        rows.append([TWINS[name].title, f"{distance:.1e}", *times, f"{mine / other:.2f}", equal])
    title = f"steps of {ROWS} rows; the largest relative difference of {STEPS} losses, at most {TOLERANCE}"
    report.TableText(title, ["program", "losses", "pullback", "PyTorch", "ratio", ""], rows).show()
    return good
