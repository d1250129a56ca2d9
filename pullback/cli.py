"""The command line: `python -m pullback COMMAND`. Each command is a few lines over a function of the package."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pullback.command.opt import State
    from pullback.ir.module import IRModule
    from pullback.runtime.tables import Table

INTERRUPTED = 130  # 128 + SIGINT

app = typer.Typer(no_args_is_help=True, add_completion=False, help="pullback: a training compiler.")
cache_app = typer.Typer(help="Show where compiled code is kept, and how much there is.", invoke_without_command=True)
app.add_typer(cache_app, name="cache")

ScriptFile = Annotated[
    Path,
    typer.Argument(exists=True, dir_okay=False, help="A Python file or a saved script. It is run; it does not train."),
]
ModuleName = Annotated[
    str | None, typer.Option(help="The module's or trainer's name in the file, when there are several.")
]
FunctionName = Annotated[
    str | None, typer.Option(help="The function; __step of a trainer, or the first one, if not given.")
]
Sizes = Annotated[list[str] | None, typer.Option(help="A symbolic size of the function, such as n=64; once for each.")]


@contextlib.contextmanager
def errors_in_one_line() -> Iterator[None]:
    """The user's mistakes end the command with a line, not with a traceback; Ctrl-C with the code of shells for it."""
    from pullback.ir.errors import UserError

    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:  # of what reads the output: nobody is there to be told
        raise
    except (UserError, OSError, MemoryError, ImportError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error


def _one_of(*options: tuple[str, object]) -> None:
    """Refuse options that are given together, None those that are not."""
    if all(value is not None for _, value in options):
        raise typer.BadParameter(f"{' and '.join(name for name, _ in options)}: one of them")


def note(text: str) -> None:
    """A line beside the output."""
    typer.echo(f"note: {text}", err=True)


def print_table(table: Table) -> None:
    """Drawn as wide as the terminal; elsewhere as text that nothing is cut off from."""
    from rich.console import Console

    console = Console()
    if console.is_terminal:
        console.print(table)
    else:
        typer.echo(str(table))


def print_code(text: str, lexer: str) -> None:
    """Text of a program, or a diff: in colours in a terminal, elsewhere as it is."""
    from rich.console import Console
    from rich.syntax import Syntax

    console = Console(soft_wrap=True)
    if console.is_terminal:
        console.print(Syntax("", lexer, theme="ansi_dark").highlight(text), end="")
    else:
        typer.echo(text, nl=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        from pullback import __version__

        typer.echo(f"pullback {__version__}")
        raise typer.Exit


@app.callback()
def pullback_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """pullback: a training compiler."""
    from pullback.ir.environment import check_environment

    with errors_in_one_line():
        check_environment()


@app.command()
def demo(
    epochs: Annotated[int, typer.Option(min=1, help="How many times to go through the training images.")] = 5,
    picture: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Where to write the picture (PNG): fashion_mnist.png.")
    ] = None,
    no_picture: Annotated[bool, typer.Option("--no-picture", help="Draw none.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Number of threads; all cores if not given.")] = None,
) -> None:
    """Train the tutorial's MLP on Fashion-MNIST, print its accuracy, and draw what it learned."""
    from pullback import demo as demonstration

    if no_picture and picture is not None:
        raise typer.BadParameter("--picture and --no-picture: one of them")
    if picture is None and not no_picture:
        if demonstration.plots.can_draw():
            picture = Path("fashion_mnist.png")
        else:
            note("there will be no picture, which needs matplotlib: pip install 'pullback[demo]'")
    with errors_in_one_line():
        demonstration.main(epochs=epochs, picture=picture, threads=threads)


@app.command()
def info() -> None:
    """Print the versions, the CPU, the cache, and which extras are installed."""
    from pullback.command import info as information
    from pullback.runtime.tables import Table

    with errors_in_one_line():
        heading, *rows = information.rows()
        print_table(Table(heading, rows, left=2))


@cache_app.callback()
def cache(context: typer.Context) -> None:
    """Show where compiled code is kept, and how much there is."""
    if context.invoked_subcommand is not None:
        return
    from pullback.command.info import size_of_cache
    from pullback.driver.cache import is_on, object_cache

    with errors_in_one_line():
        kept = object_cache()
        typer.echo(f"{kept.directory}: {size_of_cache()}, of {kept.limit_bytes / 1e6:,.0f} MB at the most")
        if not is_on():
            typer.echo("it is off: PULLBACK_CACHE")


@cache_app.command()
def clear(yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False) -> None:
    """Remove the compiled code that is kept, and nothing else. Programs compile theirs again."""
    from pullback.command.info import size_of_cache
    from pullback.driver.cache import object_cache

    with errors_in_one_line():
        kept = object_cache()
        found = size_of_cache()
        if not yes and not typer.confirm(f"{kept.directory}: remove {found}?"):
            raise typer.Exit(1)
        kept.clear()
        typer.echo(f"removed {found}")
        if left := kept.size()[0]:
            typer.echo(f"error: {left} entries cannot be removed", err=True)
            raise typer.Exit(1)


@app.command()
def ops(
    summary: Annotated[bool, typer.Option("--summary", help="Only how many there are.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="As the page docs/ops.md.")] = False,
) -> None:
    """List the ops: how each is differentiated, its dtypes, what it does. Not in a terminal: a line for each."""
    from rich.console import Console

    from pullback.relax.op import catalogue

    if markdown:
        typer.echo(catalogue.markdown(), nl=False)
        return
    if not summary and Console().is_terminal:
        print_table(catalogue.table())
    elif not summary:
        for line in catalogue.lines():
            typer.echo(line)
    typer.echo(catalogue.summary())


@app.command()
def converters(
    source: Annotated[str, typer.Argument(help="torch, onnx or keras.")],
    markdown: Annotated[bool, typer.Option("--markdown", help="As a page.")] = False,
) -> None:
    """List the operators of another framework whose models can be imported, and those that cannot, with the reason."""
    from pullback.relax.frontend import converters as tables

    with errors_in_one_line():
        table = tables.table_of(source)
        if markdown:
            typer.echo(tables.page(table), nl=False)
            return
        for line in tables.lines(table):
            typer.echo(line)
        typer.echo(tables.summary(table))


@app.command()
def show(
    file: ScriptFile,
    name: ModuleName = None,
    function: FunctionName = None,
    memory: Annotated[bool, typer.Option("--memory", help="Show the memory that a call takes.")] = False,
    picture: Annotated[Path | None, typer.Option(dir_okay=False, help="Draw the arena over time (PNG).")] = None,
    size: Sizes = None,
) -> None:
    """Print the module that a file defines, or what memory one of its functions takes.

    The file is run as Python to find that out, up to the first call of a compiled function: nothing is trained. Show
    only files that you would run.
    """
    from pullback import show as shown

    with errors_in_one_line():
        module = shown.load_module(file, name, note)
        if not memory and picture is None:
            typer.echo(module.script())
            return
        report = shown.memory_report(module, function, shown.parse_sizes(size or []))
        print_table(report.table())
        if report.steps:
            typer.echo(f"the arena is fullest at step {report.peak_step}, {report.steps[report.peak_step]}")
        if picture is not None:
            from pullback.demo.memory_picture import save_memory_picture

            save_memory_picture(picture, report)
            typer.echo(f"picture: {picture}")


@app.command()
def opt(
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="A Python file, which is run; a text of a module; or -.")
    ] = None,
    passes: Annotated[
        str, typer.Option("--passes", "-p", metavar="A,B(option=2)", help="What to run, one after another.")
    ] = "",
    before: Annotated[str | None, typer.Option(metavar="STAGE", help="Begin before this stage of compiling.")] = None,
    after: Annotated[str | None, typer.Option(metavar="STAGE", help="Begin after this stage of compiling.")] = None,
    diff: Annotated[bool, typer.Option("--diff", help="Print what each pass changed, as a diff.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", dir_okay=False, help="Write the module here.")
    ] = None,
    name: ModuleName = None,
    function: FunctionName = None,
    size: Sizes = None,
    target: Annotated[str, typer.Option(help="The machine that schedules are for.")] = "llvm",
    verify: Annotated[bool, typer.Option(help="Check the module after each pass.")] = True,
    listed: Annotated[bool, typer.Option("--list", help="List the passes and the stages.")] = False,
    explain: Annotated[
        str | None, typer.Option(metavar="PASS", help="Print what a pass does, and its options.")
    ] = None,
) -> None:
    """Print a module after passes, or as it is at a stage of compiling.

    Without passes and stages it is the module as it was read. What is printed can be read again. --before and --after
    take a stage, or a pass of the pipeline, and compile one function up to there; --passes follow. --diff shows the
    passes of --passes, or where there are none those of the pipeline. A .py file is run, as by show.
    """
    from pullback.command import opt as optimizer
    from pullback.command import passes as known
    from pullback.runtime.files import write_atomically
    from pullback.runtime.tables import Table
    from pullback.show import parse_sizes
    from pullback.target import Target

    _one_of(("--before", before), ("--after", after))
    with errors_in_one_line():
        if listed:
            for language in (known.GRAPH, known.RELAY):
                print_table(Table([f"passes over {language}", ""], optimizer.passes_of(language), left=2))
            print_table(Table(["stage", "its passes"], optimizer.stages_of(), left=2))
            return
        if explain is not None:
            typer.echo(known.documentation(explain))
            return
        if file is None:
            raise typer.BadParameter("name a file, or - for the standard input", param_hint="FILE")
        module = optimizer.read(file, name, note)
        if verify:
            optimizer.check(module)
        machine = Target(target)
        chosen = known.parsed(passes, optimizer.language(module), machine)
        if before is not None or after is not None:
            sizes = parse_sizes(size or [])
            stage = (before or after or "", after is not None)
            steps = optimizer.at_stage(module, *stage, function, sizes, machine, verify)
            module = _followed(steps, module, diff and not chosen)
        elif function is not None or size:
            raise typer.BadParameter("--function and --size are for --before and --after")
        module = _followed(optimizer.after_passes(module, chosen, verify), module, diff)
        if output is not None:
            write_atomically(output, optimizer.text_of(module).encode())
        elif not diff:
            print_code(optimizer.text_of(module), "python")


def _followed(states: Iterable[State], module: IRModule, is_shown: bool) -> IRModule:
    """The module after the last of these states; what each changed is printed if it ``is_shown``."""
    for state in states:
        module = state.module
        if is_shown:
            print_code(state.diff, "diff")
    return module


@app.command()
def train(
    source: Annotated[str, typer.Argument(metavar="CONFIG.toml|FILE.py:make", help="What to train. It is run.")],
    resume: Annotated[
        Path | None, typer.Option(help="Go on from this checkpoint, or from the last one of this folder.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Such as optimizer.lr=1e-4; several times.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="In all, those before --resume among them.")] = None,
    out: Annotated[Path | None, typer.Option(file_okay=False, help="The folder of the run: runs/NAME.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier training in that folder.")] = False,
    go_on: Annotated[
        bool, typer.Option("--continue", help="Go on from the folder's last checkpoint if it has one, else begin.")
    ] = False,
    ranks: Annotated[int | None, typer.Option(min=1, help="Start so many ranks, by mpiexec.")] = None,
    restarts: Annotated[
        int | None, typer.Option(min=0, help="Start ranks that died again, so many times, from the last checkpoint.")
    ] = None,
    min_ranks: Annotated[
        int | None, typer.Option(min=1, help="After a restart go on with no fewer; by default with as many as before.")
    ] = None,
    hosts: Annotated[str | None, typer.Option(metavar="a:4,b:4", help="Machines, and how many ranks on each.")] = None,
    mpirun: Annotated[Path | None, typer.Option(help="The launcher: mpiexec or mpirun of an MPI.")] = None,
) -> None:
    """Train what a configuration, or a function, describes.

    The folder of the run gets last.safetensors after each epoch, best.safetensors, and history.csv. Ctrl-C saves the
    last step.

    --ranks starts several processes that train together, on this machine or on --hosts, and --restarts starts them
    again when they die: docs/distributed.md.

    FILE.py:make is a function that returns (trainer, x, y), or (trainer, arguments) with a dict of arguments of fit;
    --set gives its arguments, and those of fit: --set fit.batch_size=64.

    CONFIG.toml has the sections model, loss, optimizer, data, and, where wanted, trainer, fit, callbacks and output.
    Paths are relative to it. docs/commands.md shows one.
    """
    from pullback.command import rank_reports
    from pullback.command import train as training
    from pullback.command.train_ranks import TrainingOfRanks
    from pullback.runtime.ranks import RankError, current

    texts = settings or []
    if resume is not None and go_on:
        raise typer.BadParameter("--resume and --continue: one of them")
    if ranks is not None or restarts is not None:
        with errors_in_one_line():
            started = TrainingOfRanks(source, texts, resume, epochs, out, overwrite, go_on)
            raise typer.Exit(started.train(ranks or 1, restarts or 0, min_ranks, hosts, mpirun, note))
    for name, value in (("--min-ranks", min_ranks), ("--hosts", hosts), ("--mpirun", mpirun)):
        if value is not None:
            raise typer.BadParameter(f"{name} needs --ranks")
    begun = None
    with errors_in_one_line():
        try:
            with training.as_rank():
                checkpoint = None if resume is None else training.checkpoint_of(resume)
                job = training.job_of(source, texts)
                run = training.Run(job, training.folder_of(job.output, source, out, checkpoint))
                run.prepare(checkpoint, overwrite, go_on)
                begun = run
                is_done = run.train(epochs) == 0
        except RankError:
            if rank_reports.is_launched():  # who started us says so, once
                raise typer.Exit(1) from None
            raise
        except KeyboardInterrupt:
            if begun is not None and current().is_first and not rank_reports.is_launched():  # who started us says so
                typer.echo(f"interrupted: --resume {begun.folder} goes on", err=True)
            raise typer.Exit(INTERRUPTED) from None
    if current().is_first:
        if is_done:
            note(f"{run.done} epochs are done already: --epochs says how many there are in all")
        typer.echo(f"saved in {run.folder}")


@app.command()
def simulate(
    source: Annotated[
        str, typer.Argument(metavar="CONFIG.toml|FILE.py:make|STEP.json", help="What is trained, or a step of --save.")
    ],
    ranks: Annotated[str, typer.Option(help="Numbers of ranks: 1024, or 2,4,8, or 2-4096 (2 and its doubles).")],
    network: Annotated[
        str,
        typer.Option(
            metavar="BANDWIDTH/LATENCY", help="Between nodes, as 100Gb/10us; here: between threads of this machine."
        ),
    ],
    stages: Annotated[str, typer.Option(help="Of data, zero1, zero2, zero3; all of them.")] = "all",
    rows: Annotated[int | None, typer.Option(min=1, help="Rows of the batch on each rank.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Rows of all ranks together, as batch_size of fit.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of each rank.")] = None,
    ranks_per_node: Annotated[int, typer.Option(min=1, help="Ranks that share a node and its network.")] = 1,
    local: Annotated[
        str | None, typer.Option(metavar="BANDWIDTH/LATENCY", help="Between ranks of a node: 80Gb/0.5us.")
    ] = None,
    cores: Annotated[
        int | None, typer.Option(min=1, help="Cores of a node; enough for all threads and messages if not given.")
    ] = None,
    speed: Annotated[float, typer.Option(min=1e-6, help="How many times as fast as here a rank computes.")] = 1.0,
    jitter: Annotated[str, typer.Option(help="How much ranks' speeds differ from step to step.")] = "0%",
    slowest: Annotated[float, typer.Option(min=1.0, help="How many times as long one rank takes.")] = 1.0,
    runs: Annotated[int, typer.Option(min=1, help="Runs of a step, of which a kernel's time is the median.")] = 7,
    bucket: Annotated[str | None, typer.Option(metavar="SIZE", help="Gradients that are sent together: 4MB.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Run so many ranks too, those of mpirun or threads, and compare.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON in place of a table.")] = False,
    picture: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Draw the efficiency over the number of ranks (SVG).")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Keep the measured step (JSON), to ask more of it later.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="As for train; several times.")
    ] = None,
) -> None:
    """Predict the time and memory of a training step on many ranks, which need not be there: docs/scaling.md.

    The step of a rank is compiled and timed on this machine, its collectives are simulated. Nothing is trained.
    """
    from pullback.command import simulate as simulation
    from pullback.runtime.ranks import current
    from pullback.scale import predict as asked
    from pullback.scale.network import parse_bytes

    _one_of(("--rows", rows), ("--batch", batch))
    _one_of(("--json", as_json or None), ("--picture", picture))
    _one_of(("--json", as_json or None), ("--check", check or None))
    if source.endswith(simulation.SAVED) and (settings or check):
        raise typer.BadParameter("--set and --check are for what is trained, not for a step that was measured")
    with errors_in_one_line():
        question = simulation.Question(
            asked.parse_ranks(ranks),
            simulation.network_of(network, local, ranks_per_node, cores),
            asked.parse_stages(stages),
            rows, batch, simulation.BUCKET_BYTES if bucket is None else parse_bytes(bucket), threads,
            speed, asked.parse_share(jitter), slowest, runs,
        )  # fmt: skip
        seconds = simulation.measured(source, settings or [], question) if check else {}
        if not current().is_first:  # it has done its part
            return
        found = simulation.answer(source, settings or [], question)
        if save is not None:
            found.save(save)
        if as_json:
            typer.echo(found.json())
            return
        print_table(found.table())
        if seconds:
            print_table(simulation.compared(found, seconds))
        if picture is not None:
            picture.write_text(found.picture(), encoding="utf-8")
            typer.echo(f"picture: {picture}")


@app.command()
def build(
    source: Annotated[str, typer.Argument(metavar="CONFIG.toml|FILE.py:make", help="What to build, as for train.")],
    target: Annotated[str, typer.Option(help="The platform: see targets.")] = "host",
    name: Annotated[str | None, typer.Option(help="With it the names of the library's functions begin.")] = None,
    out: Annotated[Path, typer.Option(file_okay=False, help="The folder of the library.")] = Path("dist"),
    checkpoint: Annotated[
        Path | None, typer.Option(help="The values it begins with: a checkpoint, or the last one of a folder.")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Rows of a step.")] = None,
    size: Sizes = None,
    no_embed: Annotated[bool, typer.Option("--no-embed", help="Leave weights in a file of their own.")] = False,
    fold_frozen: Annotated[
        bool, typer.Option("--fold-frozen", help="Make frozen parameters and states constants of the code.")
    ] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="As for train; several times.")
    ] = None,
) -> None:
    """Make a library that trains, predicts, saves and loads without Python: docs/deploy.md."""
    from pullback.command import train as training
    from pullback.command.build import build as build_library

    with errors_in_one_line():
        found = None if checkpoint is None else training.checkpoint_of(checkpoint)
        job = training.job_of(source, settings or [])
        made = build_library(job, out, target, name, found, batch_size, size or [], not no_embed, fold_frozen)
        print_table(made.table())
    typer.echo(f"written to {out}")


@app.command()
def targets() -> None:
    """List the platforms that libraries are made for, and the C compiler for each."""
    from pullback.command.build import platforms

    with errors_in_one_line():
        print_table(platforms())


@app.command()
def tune(
    file: Annotated[
        Path | None,
        typer.Argument(
            exists=True, dir_okay=False, help="A Python file or a saved script. It is run; it does not train."
        ),
    ] = None,
    name: ModuleName = None,
    function: FunctionName = None,
    size: Sizes = None,
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved rounds; with fewer than 7 nothing is kept.")] = 15,
    reset: Annotated[bool, typer.Option("--reset", help="Forget what was tuned on this machine.")] = False,
) -> None:
    """Measure the products and convolutions of a function with other tiles; the compiler takes the best from then on.

    The file is run, but does not train. Results stay the same, bit for bit. Only what wins beyond chance is kept.
    --reset goes back to the default tiles for good, PULLBACK_TUNED=0 for one run.
    """
    from rich.console import Console

    from pullback import show as shown
    from pullback.driver.tuned import forget_choices
    from pullback.runtime.tables import Table
    from pullback.target import Target

    if file is None and not reset:
        raise typer.BadParameter("name a file, or give --reset", param_hint="FILE")
    with errors_in_one_line():
        if reset:
            typer.echo(f"forgot the tiles of {forget_choices(Target('llvm'))} kernels")
        if file is None:
            return
        module = shown.load_module(file, name, note)
        with Console(stderr=True).status("measuring") as status:
            sizes = shown.parse_sizes(size or [])
            found, path = shown.tune_function(module, function, sizes, rounds, lambda k: status.update(f"{k} is done"))
    heading = ["kernel", "default GFLOP/s", "best GFLOP/s", "gain", "at least"]
    rows = [[t.name, f"{1e-9 * t.flops / t.default:.1f}"] for t in found]
    for row, t in zip(rows, found, strict=True):
        gains = [f"{1e-9 * t.flops / t.best:.1f}", f"{t.gain:.2f}×", f"{t.least:.2f}×"]
        row += gains if t.is_kept else ["", "", ""]
    print_table(Table(heading, rows))
    kept = sum(t.is_kept for t in found)
    if path is None:
        typer.echo(f"nothing is kept: {rounds} rounds cannot tell a gain from noise, {shown.FEWEST_ROUNDS} can")
    else:
        typer.echo(f"{kept} of {len(found)} kernels are faster with other tiles, beyond noise: kept in {path}")


def main() -> None:
    """The entry point of `python -m pullback` and of the installed command."""
    app(prog_name="pullback")
