"""Steps of char-GPT that train all parameters, or those of its last block alone; and what their memory plans hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.models import MODELS, Model
from benchmarks.workers.model_pullback import load
from benchmarks.workers.protocol import Cases, serve
from benchmarks.workers.relax_module import module_of, setup

ABOUT: dict[str, Any] = {}


def subsets(model: Model) -> dict[str, list[str] | None]:
    """Patterns of what is trained, by the names that the benchmark gives them."""
    last = f"block{model.layers - 1}_*"  # type: ignore[attr-defined]
    return {"all": None, "last block": [last], "last block and head": [last, "norm_*", "head_*"]}


def prepare(subset: str) -> Cases:
    import pullback

    model = MODELS["chargpt"]
    trainer = trainer_of(model, subset)
    x, y = (pullback.nd.array(array) for array in model.data())
    trainer.update(x, y)
    memory = trainer.vm.executable.function("__step").memory()
    ABOUT["arena bytes"], ABOUT["optimizer bytes"] = memory.arena_bytes, memory.categories["optimizer states"]
    ABOUT["saved bytes"] = memory.arena.get("saved for backward", 0)
    return {"step": lambda: float(trainer.update(x, y).numpy())}


def trainer_of(model: Model, subset: str) -> Any:
    """A trainer of some of the model's parameters."""
    import pullback
    from pullback import relax

    chosen = replace(setup(model, relax, legalize=False), trainable=subsets(model)[subset])
    module = chosen(module_of(model, relax))
    machine = relax.VirtualMachine(pullback.compile(module, "llvm"), pullback.cpu(0))
    trainer = relax.training.Trainer(module, machine, pullback.cpu(0))
    trainer.load_params(model.parameters())
    return trainer


if __name__ == "__main__":
    serve(load, prepare, about=lambda: ABOUT)
