"""ONNX Runtime's side of an exported training step: artifacts for its C++ API, here driven by its Python binding."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.models import MODELS
from benchmarks.models.base import Model
from benchmarks.workers.protocol import Cases, draw_model, mapped_bytes, need, serve, versions_of

PACKAGES = (  # a newer onnx writes an IR that this runtime cannot read; its Python package imports torch
    "onnxruntime-training-cpu==1.19.2", "onnx==1.17.0", "torch",
)  # fmt: skip
FILES = ("training_model.onnx", "optimizer_model.onnx", "checkpoint")  # what a device needs
OPTIMIZERS = {"sgd": "sgd, no weight decay", "adam": "adam"}
ABOUT: dict[str, Any] = {}


def load() -> dict[str, str]:
    need(*PACKAGES)
    import onnxruntime.training.api  # noqa: F401

    return versions_of("onnxruntime-training-cpu", "onnx")


def prepare(name: str) -> Cases:
    import onnxruntime
    from onnxruntime.training import api

    model = MODELS[name]
    folder = Path(tempfile.mkdtemp(prefix="pullback-ort-"))
    _write_artifacts(model, folder)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = int(os.environ["OMP_NUM_THREADS"]), 1
    training, optimizer, checkpoint = (str(folder / file) for file in FILES)
    state = api.CheckpointState.load_checkpoint(checkpoint)
    module = api.Module(training, state, str(folder / "eval_model.onnx"), session_options=options)
    update = api.Optimizer(optimizer, module)
    update.set_learning_rate(model.optimizer.learning_rate)
    module.train()
    x, labels = model.data()

    def step() -> float:
        loss = module(x, labels)
        update.step()
        module.lazy_reset_grad()
        return float(loss)

    decays = model.optimizer.kind == "sgd" and model.optimizer.weight_decay  # which its SGD has not
    ABOUT["optimizer"], ABOUT["same optimizer"] = OPTIMIZERS[model.optimizer.kind], not decays
    ABOUT["library bytes"] = mapped_bytes("onnxruntime")
    ABOUT["model bytes"] = sum((folder / file).stat().st_size for file in FILES)
    return {"step": step}


def _write_artifacts(model: Model, folder: Path) -> None:
    from onnxruntime.training import artifacts, onnxblock

    optimizers = {
        "sgd": onnxblock.optim.SGD,
        "adam": lambda: onnxblock.optim.AdamW(eps=1e-8, weight_decay=model.optimizer.weight_decay),
    }
    artifacts.generate_artifacts(
        _graph(model),
        requires_grad=list(model.parameters()),
        loss=onnxblock.loss.CrossEntropyLoss(reduction=model.reduction),
        optimizer=optimizers[model.optimizer.kind](),
        artifact_directory=str(folder),
    )
    if model.optimizer.kind == "adam":
        _use_formula(folder / "optimizer_model.onnx")


def _use_formula(file: Path) -> None:
    """PyTorch's formula of Adam, in which epsilon is added to the corrected root: the artifacts have Hugging Face's."""
    import onnx

    optimizer = onnx.load(file)
    (mode,) = (a for node in optimizer.graph.node for a in node.attribute if a.name == "adam_mode")
    mode.i = 0
    onnx.save(optimizer, file)


def _graph(model: Model) -> Any:
    """The forward pass from `input` to `output`, with the initial values."""
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = []

    def add(kind: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, list(inputs), [f"t{len(nodes)}"], **attributes))
        return f"t{len(nodes) - 1}"

    FORWARD[model.name](model, add)
    nodes[-1].output[0] = "output"
    x, labels = model.data()
    parameters = [numpy_helper.from_array(array, name) for name, array in model.parameters().items()]
    classes = parameters[-1].dims[-1]
    graph = helper.make_graph(
        nodes,
        model.name,
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, list(x.shape))],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [len(labels), classes])],
        parameters,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)])
    made.ir_version = 8
    return made


def _linears(model: Model, add: Any, x: str) -> None:
    count = sum(name.startswith("fc") and name.endswith("_weight") for name in model.parameters())
    for layer in range(count):
        x = add("Relu", x) if layer else x
        x = add("Gemm", x, f"fc{layer}_weight", f"fc{layer}_bias")


def _mlp(model: Model, add: Any) -> None:
    _linears(model, add, "input")


def _lenet(model: Model, add: Any) -> None:
    x = "input"
    for layer, padding in enumerate((2, 0)):
        x = add("Conv", x, f"conv{layer}_weight", f"conv{layer}_bias", kernel_shape=[5, 5], pads=[padding] * 4)
        x = add("MaxPool", add("Relu", x), kernel_shape=[2, 2], strides=[2, 2])
    _linears(model, add, add("Flatten", x))


FORWARD = {"mlp": _mlp, "lenet": _lenet}

if __name__ == "__main__":
    serve(load, prepare, draw_model, lambda: ABOUT)
