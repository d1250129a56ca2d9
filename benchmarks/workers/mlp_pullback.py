"""Pullback's side of the MLP step.

Variants: `trainer` and `trainer-unlegalized` run `Trainer.update`; `functions` and `functions-legalized` call the
adjoint and the optimizer function one after the other, as in the tutorial's second method.
"""

from __future__ import annotations

from benchmarks.workers import mlp_step
from benchmarks.workers.protocol import Cases, Step, serve


def load() -> dict[str, str]:
    import pullback
    from pullback import relax  # noqa: F401

    return {"pullback": getattr(pullback, "__version__", "this tree")}


def prepare(variant: str) -> Cases:
    if variant.startswith("trainer"):
        return {"step": trainer_step(legalize=variant == "trainer")}
    return {"step": functions_step(legalize=variant == "functions-legalized")}


def trainer_step(legalize: bool) -> Step:
    """The first method: SetupTrainer, compile, VirtualMachine, Trainer."""
    import pullback
    from pullback import relax
    from pullback.demo.mlp import MLP

    optimizer = relax.training.optimizer.SGD(mlp_step.LEARNING_RATE, weight_decay=mlp_step.WEIGHT_DECAY)
    loss = relax.training.loss.CrossEntropyLoss(reduction="sum")
    module = relax.training.SetupTrainer(loss, optimizer, struct_infos(), legalize=legalize)(MLP)
    device = pullback.cpu(0)
    machine = relax.VirtualMachine(pullback.compile(module, "llvm"), device)
    trainer = relax.training.Trainer(module, machine, device)
    trainer.load_params(mlp_step.initial_parameters())
    x, y = (pullback.nd.array(array) for array in mlp_step.batch())
    return lambda: float(trainer.update(x, y).numpy())


def functions_step(legalize: bool) -> Step:
    """The second method: append_loss, Gradient and the optimizer's function by hand."""
    import pullback
    from pullback import relax
    from pullback.demo.mlp import MLP

    module = pullback.ir.IRModule(MLP.functions, attrs=MLP.attrs)
    loss = relax.training.loss.CrossEntropyLoss(reduction="sum")(*struct_infos())
    module["loss"] = relax.training.utils.append_loss(module["backbone"], loss)
    parameters = module["loss"].params[1:7]
    module = relax.transform.Gradient("loss", require_grads=parameters)(module)
    optimizer = relax.training.optimizer.SGD(mlp_step.LEARNING_RATE, weight_decay=mlp_step.WEIGHT_DECAY)
    optimizer.init(list(parameters))
    module["SGD"] = optimizer.get_function()
    if legalize:
        module = relax.transform.LegalizeOps()(module)
    machine = relax.VirtualMachine(pullback.compile(module, "llvm"), pullback.cpu(0))
    values = tuple(pullback.nd.array(array) for array in mlp_step.initial_parameters())
    states = optimizer.state
    x, y = (pullback.nd.array(array) for array in mlp_step.batch())

    def step() -> float:
        nonlocal values, states
        loss, gradients = machine["loss_adjoint"](x, *values, y)
        values, states = machine["SGD"](values, gradients, states)
        return float(loss.numpy())

    return step


def struct_infos() -> list:
    """Of the prediction and of the label."""
    from pullback import relax

    prediction = relax.TensorStructInfo((mlp_step.BATCH, mlp_step.SIZES[-1]), "float32")
    return [prediction, relax.TensorStructInfo((mlp_step.BATCH,), "int64")]


if __name__ == "__main__":
    serve(load, prepare)
