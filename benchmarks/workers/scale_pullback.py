"""Pullback's side of a step over ranks, which talk by MPI.

Arguments: a model; ``data``, ``zero1``, ``zero2`` or ``zero3``; what is told of the side besides: ``profile``, where a
rank's time goes in a step, or ``memory``, what a rank holds.
"""

from __future__ import annotations

import contextlib
import gc
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchmarks.scale_models import LEARNING_RATE, MODELS, initial
from benchmarks.workers.protocol import Cases, serve, start_watching_memory

if TYPE_CHECKING:
    from pullback.relax.training import Trainer

TOLD: dict[str, Callable[[], dict[str, Any]]] = {}


def load() -> dict[str, str]:
    import pullback
    from pullback.runtime import ranks

    ranks.start()
    return {"pullback": pullback.__version__}


def prepare(name: str, stage: str, told: str) -> Cases:
    import pullback
    from pullback.runtime import allocated_bytes

    x, y = (pullback.nd.array(array) for array in MODELS[name].data())
    batch = allocated_bytes()
    trainer = trainer_of(name, stage)
    if told == "profile":
        TOLD[told] = lambda: profile(trainer, x, y)
    else:
        TOLD[told] = lambda: memory(trainer, MODELS[name].batch, batch)
    trainer.update(x, y)
    gc.collect()
    start_watching_memory()
    return {"step": lambda: trainer.update(x, y).item()}


def tell() -> dict[str, Any]:
    from pullback import distributed

    return {"rank": distributed.rank()} | {told: asked() for told, asked in TOLD.items()}


def trainer_of(name: str, stage: str) -> Trainer:
    """A trainer over these ranks, with the values that all sides begin with."""
    import pullback
    from pullback import nn, optim

    model = MODELS[name]
    x, y = model.data()
    net = model.net(nn)
    net.load_state_dict(initial(net))
    optimizer = optim.Adam(lr=LEARNING_RATE)
    return pullback.trainer(net, "cross_entropy", optimizer, example=x, targets=y, distributed=stage)


def profile(trainer: Trainer, x: Any, y: Any) -> dict[str, float]:
    """Seconds of this rank's step, those in which a collective was in flight, and those in which the rank waited for
    one; how many collectives there are, and the bytes that the rank sent to others."""
    from pullback import distributed
    from pullback.runtime.collective_times import time_in_flight

    with contextlib.redirect_stdout(io.StringIO()):
        report = trainer.profile_step(x, y).all_ranks[distributed.rank()]
    return {
        "seconds": report.wall / 1e6,
        "in flight": time_in_flight(report.collectives) / 1e6,
        "waited": report.waited / 1e6,
        "collectives": len(report.collectives),
        "sent": sum(c.sent for c in report.collectives),
    }


def memory(trainer: Trainer, batch: int, batch_bytes: int) -> dict[str, Any]:
    """Bytes of this rank in a step: ``planned``, by category; ``held`` by the runtime after some steps, without the
    batch: values, the arena, what the engine of collectives keeps. ``whole``: bytes of what all ranks hold together, of
    each kind once."""
    from pullback import distributed
    from pullback.runtime import allocated_bytes

    gc.collect()
    held = allocated_bytes() - batch_bytes
    with contextlib.redirect_stdout(io.StringIO()):
        summary = trainer.summary(batch // distributed.size())
    whole = {name: nbytes for name, (_, nbytes) in summary.sizes.items()}
    return {"planned": summary.memory.categories, "whole": whole, "held": held}


if __name__ == "__main__":
    serve(load, prepare, tell=tell)
