"""The command line: `python -m pullback COMMAND`. Each command is a few lines over a function of the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False, help="pullback: a training compiler.")


@app.callback()
def pullback_command() -> None:
    """pullback: a training compiler."""


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
    from pullback.ir.errors import UserError

    try:
        demonstration.main(epochs=epochs, picture=picture, threads=threads)
    except (UserError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error


def main() -> None:
    """The entry point of `python -m pullback` and of the installed command."""
    app(prog_name="pullback")
