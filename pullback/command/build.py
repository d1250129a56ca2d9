"""`python -m pullback build` and `targets`: libraries of a trainer, and the platforms that they are for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pullback.command.configuration import Job
from pullback.deploy.export import Exported
from pullback.deploy.targets import PLATFORMS
from pullback.deploy.toolchain import Toolchain
from pullback.ir.errors import UserError
from pullback.runtime.tables import Table
from pullback.show import parse_sizes


def build(
    job: Job, folder: Path, target: str, name: str | None, checkpoint: Path | None, batch_size: int | None,
    sizes: Sequence[str], embed: bool, fold_frozen: bool = False,
) -> Exported:  # fmt: skip
    """Export the trainer of a job, with the values of a checkpoint if there is one."""
    if checkpoint is not None:
        job.trainer.load(checkpoint)
    return job.trainer.export(
        folder, target, name, batch_size=batch_size, sizes=parse_sizes(sizes), embed=embed, fold_frozen=fold_frozen
    )


def platforms() -> Table:
    """The platforms, with the C compiler that each would be built with here."""
    rows = []
    for platform in PLATFORMS.values():
        try:
            compiler = Toolchain.of(platform).name
        except UserError as error:
            compiler = f"none: {error.hint}"
        rows.append([platform.name, platform.about, compiler])
    return Table(["platform", "", "C compiler"], rows, left=3)
