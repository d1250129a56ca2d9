"""The command line: `python -m pullback COMMAND`. Each command is a few lines over a function of the package."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False, help="pullback: a training compiler.")

ScriptFile = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="A Python file or a saved script. It is run.")
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
    """The user's mistakes end the command with a line, not with a traceback."""
    from pullback.ir.errors import UserError

    try:
        yield
    except (UserError, OSError, MemoryError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error


@app.callback()
def pullback_command() -> None:
    """pullback: a training compiler."""
    from pullback.ir.environment import check_environment

    with errors_in_one_line():
        check_environment()


@app.command()
def demo(
    epochs: Annotated[int, typer.Option(min=1, help="How many times to go through the training images.")] = 5,
    picture: Annotated[Path, typer.Option(dir_okay=False, help="Where to write the picture (PNG).")] = Path(
        "fashion_mnist.png"
    ),
    threads: Annotated[int | None, typer.Option(min=1, help="Number of threads; all cores if not given.")] = None,
) -> None:
    """Train the tutorial's MLP on Fashion-MNIST, print its accuracy, and draw what it learned."""
    from pullback import demo as demonstration

    with errors_in_one_line():
        demonstration.main(epochs=epochs, picture=picture, threads=threads)


@app.command()
def ops(
    summary: Annotated[bool, typer.Option("--summary", help="Only how many there are.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="As the page docs/ops.md.")] = False,
) -> None:
    """List the ops: how each is differentiated, its dtypes, what it does."""
    from pullback.relax.op import catalogue

    if markdown:
        typer.echo(catalogue.markdown(), nl=False)
        return
    if not summary:
        for line in catalogue.lines():
            typer.echo(line)
    typer.echo(catalogue.summary())


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

    The file is run as Python to find that out: show only files that you would run.
    """
    from pullback import show as shown

    with errors_in_one_line():
        module = shown.load_module(file, name)
        if not memory and picture is None:
            typer.echo(module.script())
            return
        report = shown.memory_report(module, function, shown.parse_sizes(size or []))
        typer.echo(str(report))
        if picture is not None:
            from pullback.demo.memory_picture import save_memory_picture

            save_memory_picture(picture, report)
            typer.echo(f"picture: {picture}")


@app.command()
def tune(
    file: ScriptFile,
    name: ModuleName = None,
    function: FunctionName = None,
    size: Sizes = None,
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved rounds; the median of them counts.")] = 7,
) -> None:
    """Measure the products and convolutions of a function with other tiles; the compiler takes the best from then on.

    The file is run. Results stay the same, bit for bit. PULLBACK_TUNED=0 goes back to the default tiles.
    """
    from rich.console import Console
    from rich.table import Table

    from pullback import show as shown

    console = Console()
    with errors_in_one_line():
        module = shown.load_module(file, name)
        with console.status("measuring") as status:
            sizes = shown.parse_sizes(size or [])
            found, path = shown.tune_function(module, function, sizes, rounds, lambda k: status.update(f"{k} is done"))
    table = Table("kernel")
    for heading in ("default GFLOP/s", "best GFLOP/s", "gain"):
        table.add_column(heading, justify="right")
    for t in found:
        rates = (f"{1e-9 * t.flops / seconds:.1f}" for seconds in (t.default, t.best))
        table.add_row(t.name, *rates, f"{t.gain:.2f}×" if any(t.choices.values()) else "")
    console.print(table)
    typer.echo(f"kept in {path}")


def main() -> None:
    """The entry point of `python -m pullback` and of the installed command."""
    app(prog_name="pullback")
