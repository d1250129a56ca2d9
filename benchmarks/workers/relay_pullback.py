"""A training step of the perceptron, in relay and by the relax trainer's own step function.

Variants: `relax`, the trainer's joined step, whose results are new tensors (nothing is donated); `vm` and `aot`, the
same step written in relay, with relay's gradient, run by these executors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.models import MODELS, Model
from benchmarks.workers.model_pullback import load
from benchmarks.workers.protocol import Cases, Step, serve
from benchmarks.workers.relax_module import module_of, setup


def prepare(variant: str) -> Cases:
    model = MODELS["mlp"]
    step = relax_step(model) if variant == "relax" else relay_step(model, variant)
    return {"step": step}


def relax_step(model: Model) -> Step:
    """The step of a trainer of the model, as a function that keeps its arguments."""
    import pullback
    from pullback import relax
    from pullback.relax.struct_info import flat_infos
    from pullback.relax.transform.join_step import JoinStep

    joined = JoinStep()(setup(model, relax, legalize=False)(module_of(model, relax)))
    whole = joined["__step"]
    function = relax.Function(whole.params, whole.body, None, {})  # without the attribute that donates
    module = pullback.IRModule({**joined.functions, "step": function})
    del module["__step"]
    run = pullback.compile(module, "llvm").function("step")
    x, y = (pullback.nd.array(array) for array in model.data())
    values = [pullback.nd.array(array) for array in model.parameters().values()]
    infos = [info for param in function.params for info in flat_infos(param.struct_info)]
    states = [pullback.nd.array(np.zeros(info.shape, info.dtype)) for info in infos[len(values) + 2 :]]

    def step() -> float:
        nonlocal values, states
        loss, *new = run(x, *values, y, *states)
        values, states = new[: len(values)], new[len(values) :]
        return float(loss.numpy())

    return step


def relay_step(model: Model, kind: str) -> Step:
    """The same step in relay."""
    import pullback
    from pullback import relay

    function = relay_function(model)
    run = relay.create_executor(kind).evaluate(function)
    x, y = (pullback.nd.array(array) for array in one_hot(model))
    values = [pullback.nd.array(array) for array in relay_parameters(model)]

    def step() -> float:
        nonlocal values
        loss, *values = run(x, y, *values)
        return float(loss.numpy())

    return step


def one_hot(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Data, and labels as rows."""
    x, labels = model.data()
    return x, np.eye(model.sizes[-1], dtype="float32")[labels]  # type: ignore[attr-defined]


def relay_parameters(model: Model) -> list[np.ndarray]:
    """Weights are (units, inputs), as ``nn.dense`` has them."""
    return [np.ascontiguousarray(array.T) if array.ndim == 2 else array for array in model.parameters().values()]


def relay_function(model: Model) -> Any:
    """``fn (x, y, weights…) -> (loss, new weights…)``."""
    from pullback import relay

    batch, sizes = model.batch, model.sizes  # type: ignore[attr-defined]
    x, y = relay.var("x", shape=(batch, sizes[0])), relay.var("y", shape=(batch, sizes[-1]))
    weights = [relay.var(f"w{k}", shape=array.shape) for k, array in enumerate(relay_parameters(model))]
    h: Any = x
    for layer in range(len(sizes) - 1):
        h = relay.nn.relu(h) if layer else h
        h = relay.nn.bias_add(relay.nn.dense(h, weights[2 * layer]), weights[2 * layer + 1])
    loss = relay.negative(relay.sum(relay.nn.log_softmax(h) * y))
    gradient = relay.transform.gradient(relay.Function([x, y, *weights], loss))

    params = [relay.var(p.name_hint, p.type_annotation) for p in (x, y, *weights)]
    found = relay.Call(gradient, params)
    rate, decay = relay.const(model.optimizer.learning_rate), relay.const(model.optimizer.weight_decay)
    new = []
    for k, param in enumerate(params[2:], 2):
        adjoint = relay.TupleGetItem(relay.TupleGetItem(found, 1), k)
        new.append(param - rate * (adjoint + decay * param))
    return relay.Function(params, relay.Tuple([relay.TupleGetItem(found, 0), *new]))


if __name__ == "__main__":
    serve(load, prepare)
