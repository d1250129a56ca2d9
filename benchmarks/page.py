"""The page `docs/performance.md`, written from the JSON files of the runs in `docs/performance/`, with its plots."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT
from benchmarks.models import MODELS
from benchmarks.report import FOREIGN_LOAD, console

FOLDER = ROOT / "docs" / "performance"
PAGE = ROOT / "docs" / "performance.md"
SECTIONS = {
    **{name: f"Training step: {model.title}" for name, model in MODELS.items()},
    "imported": "Training steps of imported models",
    "contractions": "Contractions of training steps, by FLOPs",
    "schedules": "What each schedule is worth",
    "gemm": "Matrix products",
    "conv": "Convolutions",
    "elementwise": "Elementwise kernels, norms and Adam",
    "random": "Contractions drawn at random",
    "sensitivity": "One more or less in one dimension",
    "ops": "Every operator",
    "loops": "Numeric kernels with loops, differentiated",
    "scale": "Training steps over ranks",
}
INTRODUCTION = """\
# Performance

Written by `python -m benchmarks page` from the files in `docs/performance/`; `python -m benchmarks all` measures them.
Every side runs in a process of its own, the rounds of all sides in turn, with the same data, initial values and number
of threads; times are medians. The limits of the machine are measured in the same run, by loops in C (`peak.c`). The
*floor* of a training step is the time of its matrix products and convolutions alone at the peak of multiply-adds. The
*roofline* of a kernel is max(FLOPs / peak, bytes / bandwidth of the nearest memory that holds them). On a shared
machine the best rates of a run are not always available, so elementwise kernels and those drawn at random are also
compared with C loops of the same rounds, and the fastest steps of the latter with the best rates. A norm's backward
kernel reads the statistics that the forward pass keeps, as in a training step; PyTorch's does so too.
"""


def write(folder: Path = FOLDER, page: Path = PAGE) -> None:
    """Write the page from whatever files there are."""
    runs = {name: json.loads(path.read_text()) for name in SECTIONS if (path := folder / f"{name}.json").exists()}
    if not runs:
        raise FileNotFoundError(f"{folder} holds no file of a run: `python -m benchmarks all` writes them")
    plots = draw(runs, folder)
    parts = [INTRODUCTION]
    for name, run in runs.items():
        parts.append(f"## {SECTIONS[name]}\n\n{_circumstances(run)}")
        parts += [markdown(**table) for table in run["tables"]]
        if name in plots:
            parts.append(f"![{SECTIONS[name]}](performance/{plots[name].name})\n")
    page.write_text("\n".join(parts))
    console.print(f"written: {page}")


def markdown(title: str, columns: list[str], rows: list[list[str]]) -> str:
    """A table of a run."""
    lines = ["| " + " | ".join(map(_plain, cells)) + " |" for cells in (columns, *rows)]
    lines.insert(1, "|---|" + "---:|" * (len(columns) - 1))
    return "\n".join([f"{title[0].upper()}{title[1:]}:", "", *lines, ""])


def _plain(cell: str) -> str:
    return re.sub(r"\[/?(green|red)\]", "", cell).replace("|", "\\|").replace("\n", " ")


def _circumstances(run: dict[str, Any]) -> str:
    machine, limits = run["machine"], []
    for threads, peak in run["peak"].items():
        triads = ", ".join(f"{level} {rates['triad']:.0f}" for level, rates in peak["bandwidth"].items())
        limits.append(f"{threads} thread{'s' * (threads != '1')}: {peak['gflops']:.0f} GFLOP/s; GB/s: {triads}")
    versions = {k: v for side in run["sides"] for k, v in side["versions"].items() if k != "pullback"}
    beside = "".join(f", {name} {version}" for name, version in versions.items())
    told = f"{run['date']}, {machine['processor']}, {machine['cores']} cores{beside}. {'. '.join(limits)}.\n"
    if run["foreign_load"] > FOREIGN_LOAD:
        told += (
            f"\n**Others used {run['foreign_load']:.1f} processors meanwhile: these numbers are not fit to quote.**\n"
        )
    return told


# ---- plots -----------------------------------------------------------------------------------------------------------


def draw(runs: dict[str, Any], folder: Path) -> dict[str, Path]:
    """A plot under the first training step for all of them, and one each for kernels; by section."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "pullback"  # the same picture is the same file
    plots = {}
    trained = {name: run for name, run in runs.items() if name in MODELS}
    if trained:
        plots[next(iter(trained))] = _plot(folder / "training.svg", _training, trained)
    for name in ("conv", "elementwise"):
        if name in runs:
            plots[name] = _plot(folder / f"{name}.svg", _against_torch, runs[name])
    if "random" in runs:
        plots["random"] = _plot(folder / "random.svg", _shares, runs["random"])
    return plots


def _plot(path: Path, draw_on: Any, content: Any) -> Path:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
    draw_on(axes, content)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path


def _step_seconds(run: dict[str, Any]) -> dict[str, float]:
    return {side["name"]: side["step_seconds"]["step"] for side in run["sides"] if side["step_seconds"].get("step")}


def _training(axes: Any, runs: dict[str, Any]) -> None:
    """Bars: each side's step over ours."""
    names = list(dict.fromkeys(name for run in runs.values() for name in _step_seconds(run)))
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        places, heights = [], []
        for place, run in enumerate(runs.values()):
            seconds = _step_seconds(run)
            if name in seconds and "pullback" in seconds:
                places.append(place + (number - len(names) / 2) * width)
                heights.append(seconds[name] / seconds["pullback"])
        axes.bar(places, heights, width, align="edge", label=name)
    axes.set_yscale("log")
    axes.set_xticks(range(len(runs)), runs)
    axes.set_ylabel("step time / pullback's")
    axes.legend(frameon=False, fontsize="small")


def _against_torch(axes: Any, run: dict[str, Any]) -> None:
    """Points: each kernel's share of its roofline, ours against PyTorch's."""
    sides = {side["name"]: side["step_seconds"] for side in run["sides"]}
    ours, theirs = sides["pullback"], sides.get("torch", {})
    kinds: dict[str, list[tuple[float, float]]] = {}
    for label, case in run["cases"].items():
        if ours.get(label) and theirs.get(label):
            (floor,) = case["floor_seconds"].values()
            kinds.setdefault(case["kind"], []).append((floor / theirs[label], floor / ours[label]))
    for kind, points in kinds.items():
        axes.scatter(*zip(*points, strict=True), label=kind, s=18)
    axes.axline((0.1, 0.1), slope=1, color="grey", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="PyTorch's share of the roofline", ylabel="pullback's share")
    axes.legend(frameon=False, fontsize="small")


def _shares(axes: Any, run: dict[str, Any]) -> None:
    """A line: the shares of the roofline in order."""
    seconds = run["sides"][0]["step_seconds"]
    floors = {label: next(iter(case["floor_seconds"].values())) for label, case in run["cases"].items()}
    shares = sorted(floors[label] / seconds[label] for label in floors if seconds.get(label))
    axes.plot([100 * (k + 0.5) / len(shares) for k in range(len(shares))], shares)
    axes.set(xlabel="percentile of kernels", ylabel="share of the roofline", ylim=(0, None))
