"""Pullback's side of a training step.

Variants: `trainer` runs `Trainer.update`, `trainer-legalized` after `LegalizeOps`, `trainer-bfloat16` and
`trainer-float16` in mixed precision; `functions` and `functions-legalized` call the adjoint and the optimizer function
one after the other, as in the tutorial's second method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.models import MODELS, Model
from benchmarks.workers.protocol import Cases, Step, draw_model, serve
from benchmarks.workers.relax_module import module_of, setup, struct_infos

if TYPE_CHECKING:
    from pullback.relax.training import Trainer


def load() -> dict[str, str]:
    import pullback
    from pullback import relax  # noqa: F401

    return {"pullback": getattr(pullback, "__version__", "this tree")}


def prepare(name: str, variant: str) -> Cases:
    kind, _, option = variant.partition("-")
    legalize, precision = option == "legalized", option if option in ("bfloat16", "float16") else None
    if kind == "functions":
        return {"step": functions_step(MODELS[name], legalize)}
    return {"step": trainer_step(MODELS[name], legalize, precision)}


def trainer_step(model: Model, legalize: bool, precision: str | None = None) -> Step:
    """A step of :func:`trainer_of`."""
    import pullback

    trainer = trainer_of(model, legalize, precision)
    x, y = (pullback.nd.array(array) for array in model.data())
    return lambda: float(trainer.update(x, y).numpy())


def trainer_of(model: Model, legalize: bool, precision: str | None = None, profile: bool = False) -> Trainer:
    """The first method: SetupTrainer, compile, VirtualMachine, Trainer."""
    import pullback
    from pullback import relax

    module = setup(model, relax, legalize=legalize, precision=precision)(module_of(model, relax))
    device = pullback.cpu(0)
    machine = relax.VirtualMachine(pullback.compile(module, "llvm"), device, profile=profile)
    trainer = relax.training.Trainer(module, machine, device)
    trainer.load_params(model.parameters())
    trainer.load_states(model.states())
    return trainer


def functions_step(model: Model, legalize: bool) -> Step:
    """The second method: append_loss, Gradient and the optimizer's function by hand. For models without states."""
    import pullback
    from pullback import relax

    if model.states():
        raise NotImplementedError(f"{model.name} has states: the variants `functions` are for models without")
    pass_ = setup(model, relax)
    module = module_of(model, relax)
    loss = pass_.loss(*struct_infos(model, relax))
    module["loss"] = relax.training.utils.append_loss(module["backbone"], loss)
    parameters = module["loss"].params[1:-1]
    module = relax.transform.Gradient("loss", require_grads=parameters)(module)
    optimizer = pass_.optimizer
    optimizer.init(list(parameters))
    module["optimizer"] = optimizer.get_function()
    if legalize:
        module = relax.transform.LegalizeOps()(module)
    machine = relax.VirtualMachine(pullback.compile(module, "llvm"), pullback.cpu(0))
    values = tuple(pullback.nd.array(array) for array in model.parameters().values())
    states = optimizer.state
    x, y = (pullback.nd.array(array) for array in model.data())

    def step() -> float:
        nonlocal values, states
        loss, gradients = machine["loss_adjoint"](x, *values, y)
        values, states = machine["optimizer"](values, gradients, states)
        return float(loss.numpy())

    return step


if __name__ == "__main__":
    serve(load, prepare, draw_model)
