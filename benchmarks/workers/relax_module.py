"""A model in graph IR: the same text serves `pullback.relax` and the `tvm.relax` that it is compared with."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.models import Model


def module_of(model: Model, relax: Any) -> Any:
    """A module with the function `backbone(x, parameters…, states…)`, and the attributes that SetupTrainer wants."""
    parameters, states = model.parameters(), model.states()
    x = variable(relax, "x", model.data()[0])
    p = {name: variable(relax, name, array) for name, array in parameters.items()}
    s = {name: variable(relax, name, array) for name, array in states.items()}
    builder = relax.BlockBuilder()
    with builder.function("backbone", [x, *p.values(), *s.values()]):
        with builder.dataflow():
            logits, updated = model.relax(builder.emit, relax.op, p, s, x)
            results = [builder.emit_output(value) for value in (logits, *(updated[name] for name in s))]
        builder.emit_func_output(results[0] if len(results) == 1 else relax.Tuple(results))
    return builder.get().with_attrs({"param_num": len(p), "state_num": len(s)})


def setup(model: Model, relax: Any, **options: Any) -> Any:
    """SetupTrainer for the model's loss and optimizer."""
    training, settings = relax.training, model.optimizer
    kind = {"sgd": training.optimizer.SGD, "adam": training.optimizer.Adam}[settings.kind]
    optimizer = kind(settings.learning_rate, weight_decay=settings.weight_decay)
    loss = training.loss.CrossEntropyLoss(reduction=model.reduction)
    return training.SetupTrainer(loss, optimizer, struct_infos(model, relax), **options)


def struct_infos(model: Model, relax: Any) -> list[Any]:
    """Of the logits and of the labels."""
    labels = model.data()[1]
    classes = next(reversed(model.parameters().values())).shape[-1]  # the last bias is the logits'
    return [tensor_info(relax, (len(labels), classes), model.dtype), tensor_info(relax, labels.shape, "int64")]


def variable(relax: Any, name: str, array: np.ndarray) -> Any:
    return relax.Var(name, tensor_info(relax, array.shape, array.dtype.name))


def tensor_info(relax: Any, shape: tuple[int, ...], dtype: str) -> Any:
    kind = getattr(relax, "TensorStructInfo", None) or relax.TensorType  # renamed in TVM 0.2x
    return kind(shape, dtype)
