"""The command line: `python -m benchmarks --help` lists the commands."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from benchmarks import compile_time, micro, page, training, web, worth
from benchmarks import contractions as contractions_benchmark
from benchmarks import data as data_benchmark
from benchmarks import export as export_benchmark
from benchmarks import finetune as finetune_benchmark
from benchmarks import gemm as gemm_benchmark
from benchmarks import imported as imported_benchmark
from benchmarks import loops as loops_benchmark
from benchmarks import losses as losses_benchmark
from benchmarks import ops as ops_benchmark
from benchmarks import relay as relay_benchmark
from benchmarks import scale as scale_benchmark
from benchmarks import twins as twins_benchmark
from benchmarks import ulp as ulp_benchmark
from benchmarks.imported_cases import CASES as IMPORTED
from benchmarks.kernels.ops import SIZES
from benchmarks.models import MODELS
from benchmarks.networks import GRAPHS, NETWORKS
from benchmarks.numerics import KERNELS
from benchmarks.scale_models import MODELS as SCALE_MODELS
from benchmarks.training import default_peers
from pullback.command import mpirun as launchers
from pullback.ir.errors import UserError
from pullback.schedule.choose import SCHEDULES

ALL_SCHEDULES = ",".join(kind.__name__ for kind in SCHEDULES)
app = typer.Typer(no_args_is_help=True, add_completion=False, help="Benchmarks: pullback against its peers in one run.")
Rounds = Annotated[int, typer.Option(min=1, help="Interleaved rounds; the median of them counts.")]
Seconds = Annotated[float, typer.Option(min=0.01, help="How long a round of one side takes.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads of every side.")]
JsonFile = Annotated[Path | None, typer.Option("--json", dir_okay=False, help="Write everything measured to FILE.")]


def _training_command(name: str) -> Callable[..., None]:
    """The command of a model."""

    def command(
        ours: Annotated[str, typer.Option(help=f"Our sides, of {','.join(training.OURS)}.")] = "pullback",
        peers: Annotated[str, typer.Option(help=f"Peers, of {','.join(training.PEERS)}.")] = default_peers(name),
        rounds: Rounds = 7,
        seconds: Seconds = 0.4,
        threads: Threads = 2,
        cached: Annotated[bool, typer.Option(help="Measure the first step over a filled compile cache too.")] = True,
        without: Annotated[str, typer.Option(help="Schedules to switch off, each by itself, to see its worth.")] = "",
        json: JsonFile = None,
        python_tvm: Annotated[str | None, typer.Option(help="A Python that has apache-tvm, for the peer tvm.")] = None,
        peer_python: Annotated[
            list[str] | None, typer.Option(metavar="PEER=PYTHON", help="A Python that has a peer's packages.")
        ] = None,
    ) -> None:
        sides = _names(ours), _names(peers)
        pythons = _pythons(peer_python or [], _names(peers)) | ({"tvm": python_tvm} if python_tvm else {})
        try:
            good = training.run(name, *sides, rounds, seconds, threads, cached, _names(without), json, pythons)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
        raise typer.Exit(0 if good else 1)

    return command


for name, model in MODELS.items():
    app.command(name, help=f"The training step of {model.title}.")(_training_command(name))

MICRO = {
    "conv": "Convolutions: forward and both gradients, beside PyTorch's.",
    "elementwise": "Elementwise kernels, norms and Adam in L2, L3 and DRAM, beside PyTorch's.",
    "random": "Contractions drawn at random, against the roofline of each.",
    "sensitivity": "Shapes of the benchmarks with one more or less in each dimension.",
}


@app.command()
def data(
    forms: Annotated[str, typer.Option(help="Which, comma-separated.")] = ",".join(data_benchmark.FORMS),
    rounds: Rounds = 9,
    seconds: Seconds = 1.0,
    threads: Threads = 2,
    json: JsonFile = None,
) -> None:
    """An epoch of fit over generators, casts and examples, beside arrays."""
    unknown = [name for name in _names(forms) if name not in data_benchmark.FORMS]
    if unknown:
        raise typer.BadParameter(f"no form {unknown[0]!r}; there are {', '.join(data_benchmark.FORMS)}")
    raise typer.Exit(0 if data_benchmark.run(_names(forms), rounds, seconds, threads, json) else 1)


@app.command()
def export(
    models: Annotated[str, typer.Option(help="Which, comma-separated.")] = ",".join(export_benchmark.MODELS),
    rounds: Rounds = 9,
    seconds: Seconds = 1.0,
    threads: Threads = 2,
    json: JsonFile = None,
    peers: Annotated[str, typer.Option(help=f"Peers, of {','.join(export_benchmark.PEERS)}.")] = "",
    peer_python: Annotated[
        list[str] | None, typer.Option(metavar="PEER=PYTHON", help="A Python that has a peer's packages.")
    ] = None,
) -> None:
    """A step of an exported library, beside the trainer's own and beside peers for devices."""
    for kind, names, known in (
        ("model", models, export_benchmark.MODELS),
        ("peer", peers, export_benchmark.PEERS),
    ):
        if unknown := [name for name in _names(names) if name not in known]:
            raise typer.BadParameter(f"no {kind} {unknown[0]!r}; there are {', '.join(known)}")
    pythons = _pythons(peer_python or [], _names(peers))
    good = export_benchmark.run(_names(models), rounds, seconds, threads, json, _names(peers), pythons)
    raise typer.Exit(0 if good else 1)


@app.command()
def finetune(rounds: Rounds = 7, seconds: Seconds = 2.0, threads: Threads = 2, json: JsonFile = None) -> None:
    """A step that trains the last block of char-GPT alone, beside one that trains all of it."""
    raise typer.Exit(0 if finetune_benchmark.run(rounds, seconds, threads, json) else 1)


@app.command()
def relay(rounds: Rounds = 7, seconds: Seconds = 1.0, threads: Threads = 2, json: JsonFile = None) -> None:
    """A step of the perceptron written in relay, by its executors, beside the relax trainer's step."""
    raise typer.Exit(0 if relay_benchmark.run(rounds, seconds, threads, json) else 1)


@app.command()
def gemm(rounds: Rounds = 5, seconds: Seconds = 0.2, json: JsonFile = None) -> None:
    """Matrix products: one thread, two threads, all transposes."""
    raise typer.Exit(0 if gemm_benchmark.run(rounds, seconds, json) else 1)


@app.command()
def imported(
    only: Annotated[str, typer.Option(help="Which models, comma-separated.")] = ",".join(IMPORTED),
    peers: Annotated[
        str, typer.Option(help=f"Of {','.join(imported_benchmark.PEERS)}; channels-last of images alone by default.")
    ] = "",
    rounds: Rounds = 7,
    seconds: Seconds = 2.0,
    threads: Threads = 2,
    json: JsonFile = None,
) -> None:
    """Training steps of models of PyTorch, imported, beside PyTorch's own and torch.compile's."""
    for kind, names, known in (("model", only, IMPORTED), ("peer", peers, imported_benchmark.PEERS)):
        if unknown := [name for name in _names(names) if name not in known]:
            raise typer.BadParameter(f"no {kind} {unknown[0]!r}; there are {', '.join(known)}")
    wanted = _names(only), _names(peers) or None, rounds, seconds, threads, json
    raise typer.Exit(0 if imported_benchmark.run(*wanted) else 1)


@app.command()
def loops(
    kernels: Annotated[str, typer.Option(help="Which, comma-separated.")] = ",".join(KERNELS),
    sizes: Annotated[str, typer.Option(help=f"Of {','.join(loops_benchmark.PRESETS)}, as NPBench calls them.")] = "M",
    peers: Annotated[str, typer.Option(help=f"Peers, of {','.join(loops_benchmark.PEERS)}.")] = "jax",
    rounds: Rounds = 5,
    seconds: Seconds = 0.4,
    threads: Threads = 2,
    json: JsonFile = None,
    peer_python: Annotated[
        list[str] | None, typer.Option(metavar="PEER=PYTHON", help="A Python that has a peer's packages.")
    ] = None,
) -> None:
    """Numeric kernels with loops, differentiated, beside JAX."""
    for kind, names, known in (
        ("kernel", kernels, KERNELS),
        ("peer", peers, loops_benchmark.PEERS),
    ):
        if unknown := [name for name in _names(names) if name not in known]:
            raise typer.BadParameter(f"no {kind} {unknown[0]!r}; there are {', '.join(known)}")
    if sizes not in loops_benchmark.PRESETS:
        raise typer.BadParameter(f"--sizes is one of {', '.join(loops_benchmark.PRESETS)}")
    pythons = _pythons(peer_python or [], _names(peers))
    wanted = _names(kernels), sizes, _names(peers), rounds, seconds, threads, json, pythons
    raise typer.Exit(0 if loops_benchmark.run(*wanted) else 1)


@app.command()
def scale(
    models: Annotated[
        str, typer.Option(help=f"Of {','.join(SCALE_MODELS)}; the first two by default, the last two with --memory.")
    ] = "",
    stages: Annotated[str, typer.Option(help="Ours, comma-separated.")] = ",".join(scale_benchmark.STAGES),
    peers: Annotated[
        str, typer.Option(help=f"Peers, of {','.join(scale_benchmark.PEERS)}; '' for none.")
    ] = "torch-ddp,torch-fsdp",
    ranks: Annotated[int, typer.Option(min=2, help="Processes of every side.")] = 2,
    memory: Annotated[
        bool, typer.Option("--memory", help="What a rank holds, instead of how long steps take.")
    ] = False,
    rounds: Rounds = 5,
    seconds: Seconds = 2.0,
    threads: Annotated[int, typer.Option(min=1, help="Threads of every rank.")] = 1,
    mpirun: Annotated[
        Path | None, typer.Option(help="The mpiexec or mpirun that starts ours; found by default.")
    ] = None,
    json: JsonFile = None,
    peer_python: Annotated[
        list[str] | None, typer.Option(metavar="PEER=PYTHON", help="A Python that has a peer's packages.")
    ] = None,
) -> None:
    """Training steps over several ranks: data parallel and ZeRO, beside PyTorch's DDP and FSDP2."""
    chosen = _names(models) or list(scale_benchmark.MEMORY_MODELS if memory else scale_benchmark.TIME_MODELS)
    for kind, names, known in (
        ("model", chosen, SCALE_MODELS),
        ("stage", _names(stages), scale_benchmark.STAGES),
        ("peer", _names(peers), scale_benchmark.PEERS),
    ):
        if unknown := [name for name in names if name not in known]:
            raise typer.BadParameter(f"no {kind} {unknown[0]!r}; there are {', '.join(known)}")
    pythons = _pythons(peer_python or [], _names(peers))
    try:
        launcher = launchers.find(mpirun)
    except UserError as error:
        raise typer.BadParameter(str(error)) from error
    if memory:
        good = scale_benchmark.run_memory(chosen, _names(stages), ranks, launcher, threads, json)
    else:
        wanted = chosen, _names(stages), _names(peers), ranks, launcher, rounds, seconds, threads, json, pythons
        good = scale_benchmark.run(*wanted)
    raise typer.Exit(0 if good else 1)


@app.command()
def losses(
    models: Annotated[str, typer.Option(help="Which, comma-separated.")] = ",".join(MODELS),
    precision: Annotated[str | None, typer.Option(help="bfloat16 or float16: 100 losses beside float32.")] = None,
) -> None:
    """How exact: ten losses of each model in float64 and float32, beside PyTorch's; or 100 in mixed precision."""
    wanted = _models(models)
    if precision not in (None, *training.MIXED):
        raise typer.BadParameter(f"no precision {precision!r}; there are {', '.join(training.MIXED)}")
    good = losses_benchmark.run_mixed(wanted, precision) if precision else losses_benchmark.run(wanted)
    raise typer.Exit(0 if good else 1)


@app.command()
def ulp(
    functions: Annotated[str, typer.Option(help="Which, comma-separated.")] = ",".join(ulp_benchmark.REFERENCES),
    stride: Annotated[int, typer.Option(min=1, help="Try every so many of the 2^32 inputs.")] = 1,
) -> None:
    """How exact elementary functions are in float32, on every input."""
    unknown = [name for name in _names(functions) if name not in ulp_benchmark.REFERENCES]
    if unknown:
        raise typer.BadParameter(f"no function {unknown[0]!r}; there are {', '.join(ulp_benchmark.REFERENCES)}")
    raise typer.Exit(0 if ulp_benchmark.run(_names(functions), stride) else 1)


@app.command()
def ops(
    ops: Annotated[str, typer.Option(help="Which, comma-separated; all of the catalogue by default.")] = "",
    sizes: Annotated[str, typer.Option(help="Numbers of elements, comma-separated.")] = ",".join(SIZES),
    rounds: Rounds = 3,
    seconds: Seconds = 0.02,
    threads: Threads = 2,
    json: JsonFile = None,
) -> None:
    """Every op, its value and its gradients, beside PyTorch's."""
    unknown = [name for name in _names(sizes) if name not in SIZES]
    if unknown:
        raise typer.BadParameter(f"no size {unknown[0]!r}; there are {', '.join(SIZES)}")
    try:
        good = ops_benchmark.run(_names(ops), _names(sizes), rounds, seconds, threads, json)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    raise typer.Exit(0 if good else 1)


def _micro_command(name: str, usual: int) -> Callable[..., None]:
    def command(rounds: Rounds = usual, seconds: Seconds = 0.05, threads: Threads = 2, json: JsonFile = None) -> None:
        raise typer.Exit(0 if micro.run(name, rounds, seconds, threads, json) else 1)

    return command


for name, text in MICRO.items():
    app.command(name, help=text)(_micro_command(name, micro.ROUNDS.get(name, 3)))


@app.command()
def contractions(
    models: Annotated[str, typer.Option(help="The models to train.")] = "resnet20,chargpt",
    rounds: Rounds = 9,
    json: JsonFile = None,
) -> None:
    """The contractions of training steps against the roofline of each, weighted by FLOPs."""
    raise typer.Exit(0 if contractions_benchmark.run(_models(models), rounds, json) else 1)


@app.command()
def schedules(
    models: Annotated[str, typer.Option(help="The models to train.")] = ",".join(MODELS),
    without: Annotated[str, typer.Option(help="Schedules to switch off, each by itself.")] = ALL_SCHEDULES,
    rounds: Rounds = 3,
    seconds: Seconds = 0.4,
    threads: Threads = 2,
    json: JsonFile = None,
) -> None:
    """What each schedule is worth: training steps with it switched off."""
    raise typer.Exit(0 if worth.run(_models(models), _names(without), rounds, seconds, threads, json) else 1)


@app.command("compile")
def compile_(
    networks: Annotated[str, typer.Option(help="Which networks, comma-separated.")] = ",".join(NETWORKS),
    graphs: Annotated[str, typer.Option(help="Which families of graphs that grow.")] = ",".join(GRAPHS),
    sizes: Annotated[str, typer.Option(help="How large each graph of a family is.")] = "25,50,100,200",
    rounds: Rounds = 2,
    threads: Threads = 2,
    against: Annotated[Path | None, typer.Option(exists=True, help="Another checkout, with its .venv.")] = None,
    json: JsonFile = None,
) -> None:
    """Processor time of cold compiles: networks, and graphs as they grow deeper and wider."""
    unknown = [n for n in _names(networks) if n not in NETWORKS] + [n for n in _names(graphs) if n not in GRAPHS]
    if unknown:
        raise typer.BadParameter(f"no network or graph {unknown[0]!r}; there are {', '.join([*NETWORKS, *GRAPHS])}")
    numbers = [int(size) for size in _names(sizes)]
    good = compile_time.run(_names(networks), _names(graphs), numbers, rounds, threads, against, json)
    raise typer.Exit(0 if good else 1)


@app.command()
def twins(
    programs: Annotated[str, typer.Option(help="Which, comma-separated.")] = ",".join(twins_benchmark.TWINS),
    rounds: Rounds = 5,
) -> None:
    """The programs of examples/ beside PyTorch: equal losses from equal weights, and the time of a step."""
    unknown = [name for name in _names(programs) if name not in twins_benchmark.TWINS]
    if unknown:
        raise typer.BadParameter(f"no program {unknown[0]!r}; there are {', '.join(twins_benchmark.TWINS)}")
    raise typer.Exit(0 if twins_benchmark.run(_names(programs), rounds) else 1)


@app.command("web")
def web_(
    models: Annotated[str, typer.Option(help="Which, comma-separated.")] = ",".join(web.MODELS),
    sides: Annotated[str, typer.Option(help="Which; peers come from npm.")] = ",".join(web.SIDES),
    rounds: Rounds = 5,
    seconds: Seconds = 1.0,
    chromium: Annotated[str, typer.Option(help="The browser.")] = "chromium",
    json: JsonFile = None,
) -> None:
    """Training steps in Chromium: WebAssembly beside TensorFlow.js and jax-js."""
    unknown = [n for n in _names(models) if n not in web.MODELS] + [n for n in _names(sides) if n not in web.SIDES]
    if unknown:
        raise typer.BadParameter(f"no {unknown[0]!r}; there are {', '.join([*web.MODELS, *web.SIDES])}")
    raise typer.Exit(0 if web.run(_names(models), _names(sides), rounds, seconds, chromium, json) else 1)


@app.command("page")
def write_page() -> None:
    """Write docs/performance.md from the files in docs/performance."""
    page.write()


@app.command("all")
def run_all(
    python_tvm: Annotated[str | None, typer.Option(help="A Python that has apache-tvm, for the peer tvm.")] = None,
) -> None:
    """Run every benchmark in turn, each in a process of its own, and write docs/performance.md."""
    page.FOLDER.mkdir(exist_ok=True)
    failed = []
    for name in page.SECTIONS:
        options = ["--json", str(page.FOLDER / f"{name}.json")]
        if name in MODELS and python_tvm:
            options += ["--peers", f"{default_peers(name)},tvm", "--python-tvm", python_tvm]
        if subprocess.run([sys.executable, "-m", "benchmarks", name, *options], check=False).returncode:
            failed.append(name)
    page.write()
    if failed:
        typer.echo(f"failed, or missed a bar: {', '.join(failed)}", err=True)
        raise typer.Exit(1)


def _models(text: str) -> list[str]:
    """Names of models, with commas between."""
    unknown = [name for name in _names(text) if name not in MODELS]
    if unknown:
        raise typer.BadParameter(f"no model {unknown[0]!r}; there are {', '.join(MODELS)}")
    return _names(text)


def _pythons(given: list[str], peers: list[str]) -> dict[str, str]:
    """The programs of ``PEER=PYTHON``, by peer."""
    found = dict(text.partition("=")[::2] for text in given)
    for peer, python in found.items():
        if peer not in peers:
            raise typer.BadParameter(f"--peer-python is for {peer!r}, which is none of --peers {','.join(peers)!r}")
        if shutil.which(python) is None:
            raise typer.BadParameter(f"--peer-python {peer}={python}: there is no such program")
    return found


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
