"""``pullback.trainer``: a trainer from a model, a loss and an optimizer in one call."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np

from pullback import optim
from pullback.ir.errors import ArgumentError, suggestion
from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.ir.words import explained
from pullback.nn import functional
from pullback.nn import loss as losses
from pullback.nn.export import export_layers
from pullback.nn.module import Module
from pullback.relax.convention import BACKBONE, OUTPUT, Convention
from pullback.relax.expr import Call, Tuple, Var
from pullback.relax.struct_info import StructInfo, TensorStructInfo
from pullback.relax.training.loss import FunctionLoss, Loss
from pullback.relax.training.make import make_trainer
from pullback.relax.training.optimizer import Optimizer
from pullback.relax.training.trainer import Trainer
from pullback.runtime.device import Device

LOSSES = {
    "cross_entropy": losses.CrossEntropyLoss, "nll": losses.NLLLoss, "mse": losses.MSELoss, "l1": losses.L1Loss,
    "mae": losses.L1Loss, "huber": losses.HuberLoss, "smooth_l1": losses.SmoothL1Loss, "bce": losses.BCELoss,
    "bce_with_logits": losses.BCEWithLogitsLoss, "kl_div": losses.KLDivLoss, "poisson_nll": losses.PoissonNLLLoss,
    "gaussian_nll": losses.GaussianNLLLoss, "hinge": losses.HingeLoss, "hinge_embedding": losses.HingeEmbeddingLoss,
    "soft_margin": losses.SoftMarginLoss, "margin_ranking": losses.MarginRankingLoss,
    "cosine_embedding": losses.CosineEmbeddingLoss, "triplet_margin": losses.TripletMarginLoss,
    "multi_margin": losses.MultiMarginLoss, "multilabel_margin": losses.MultiLabelMarginLoss,
    "multilabel_soft_margin": losses.MultiLabelSoftMarginLoss, "ctc": losses.CTCLoss,
}  # fmt: skip

_WORDS = {  # Keras's names, and PyTorch's of which ours are no part
    "sparse_categorical_crossentropy": '"cross_entropy" on logits, without a softmax in the model',
    "categorical_crossentropy": '"cross_entropy" with targets="one-hot", on logits, without a softmax in the model',
    "binary_crossentropy": '"bce_with_logits", or "bce" where the model ends in a sigmoid',
    "mean_squared_error": '"mse"', "mean_absolute_error": '"mae"', "kl_divergence": '"kl_div"',
    "poisson": '"poisson_nll"', "logloss": '"cross_entropy"', "log_loss": '"cross_entropy"',
}  # fmt: skip

# Functions whose targets are class indices.
_CLASSIFYING = {
    functional.cross_entropy: losses.CrossEntropyLoss,
    functional.nll_loss: losses.NLLLoss,
    functional.multi_margin_loss: losses.MultiMarginLoss,
}


@partial(explained, name="pullback.trainer")
def trainer(
    model: Module | IRModule,
    loss: Loss | str | Any,
    optimizer: Optimizer | str,
    *,
    example: Any = None,
    targets: Any = None,
    init: Any = None,
    seed: int = 0,
    precision: str | None = None,
    target: Any = "llvm",
    device: Device | None = None,
    profile: bool = False,
    flush_subnormals: bool = True,
    trainable: Any = None,
    adapt: Any = None,
    distributed: Any = None,
) -> Trainer:
    """A trainer for a model: compiled, with initial values.

    From then on the module's values are the trainer's: ``net.state_dict()`` returns what was trained,
    ``net.load_state_dict(…)`` is what it goes on from, and another trainer of the same module, or of parts of it,
    begins there, and has them from then on. Parameters with ``requires_grad=False`` stay as they are; what is set later
    counts for the next trainer.

    Args:
        model: an ``nn.Module``, an IRModule or a script class with the function ``backbone``.
        loss: a loss, its name ("cross_entropy", "mse", …), or a function of the model's outputs and the targets.
        optimizer: one of ``pullback.optim``, or its name ("adam", "sgd", …) for its default arguments.
        example: of a module, an array for each input (several: a tuple), of which only shape and dtype count, or its
            type; the first axis is the batch, of any size.
        targets: the types of the loss's targets, or arrays like them; by default class indices (int64, one for each
            row) for a cross entropy, else the type of the prediction; "one-hot" stands for the prediction's type.
        init: patterns of parameter names and initializers of ``nn.init``, ``{"*.weight": "kaiming_normal"}``, or one
            initializer for all; by default a module's layers begin as PyTorch's do, an IRModule's parameters by
            "xavier". (Weights of script modules are (inputs, outputs) for matmul: ``mode="fan_out"`` counts their
            inputs.) A module's values stay where they were given, loaded or trained.
        seed: of the initial values, of the order in which ``fit`` takes the rows, and of what the model draws itself,
            as dropout does.
        precision: "bfloat16" or "float16" trains in mixed precision.
        target: what is compiled for: "llvm" (this machine), a Target or its text, or "debug" (the interpreter).
        device: where values live; ``pullback.cpu()`` by default.
        profile: accepted as in other packages, without effect.
        flush_subnormals: whether numbers below 1.2e-38 are taken for 0.
        trainable: patterns of parameter names, ``["head.*"]``, as of a shell: of the others, only these are trained.
            What is not trained costs neither a gradient nor a state of the optimizer, and what only its gradient would
            read is not kept; ``trainer.freeze`` and ``trainer.unfreeze`` choose others later.
        adapt: what is trained in the place of the model's weights, ``nn.LoRA(…)`` or ``nn.Adapter(…)``, or a list of
            them.
        distributed: "data", "zero1", "zero2", "zero3", or a ``pullback.distributed.Distribution`` with more options:
            the processes that mpirun started, the *ranks*, train this model together (``mpirun -n 4 python train.py``).
            All run the same program on the same data: batch sizes, losses and metrics are those of all together, each
            rank computes its rows of every batch, and the first one's values are what all begin with. "data" keeps all
            values on each rank; the stages of ZeRO divide optimizer states, then gradients, then parameters among them.
            All ranks call each method, in the same order; the first one shows progress and writes files. Without mpirun
            there is one rank.

    Returns:
        a trainer: :class:`pullback.relax.training.Trainer`.

    Raises:
        ArgumentError: or another UserError with the layer and the line, for what does not fit together.

    Examples:
        >>> trainer = pullback.trainer(net, "cross_entropy", optim.Adam(lr=1e-3), example=x)
        >>> history = trainer.fit(x, y, epochs=5, validation=(x, y), verbose=0)
        >>> len(history["val_accuracy"])
        5
    """
    options: dict[str, Any] = {
        "seed": seed, "precision": precision, "target": target, "device": device, "profile": profile,
        "flush_subnormals": flush_subnormals, "trainable": trainable, "distributed": distributed,
    }  # fmt: skip
    chosen = _optimizer(optimizer)
    _check_model(model)
    if example is None and isinstance(model, Module):
        example = model._own_example()
    model = _adapted(model, example, adapt)
    if not isinstance(model, Module):
        if example is not None:
            raise ArgumentError(
                "example= is for an nn.Module: an IRModule says the types of its inputs itself",
                hint="leave it out; a symbolic batch is declared as R.Tensor(('n', 784), 'float32')",
            )
        module, given = model, targets
        made = make_trainer(
            module, _loss(loss, module), chosen, targets=given, init="xavier" if init is None else init, **options
        )
        return made
    if example is None:
        raise ArgumentError(
            "a trainer of an nn.Module needs an example of its input",
            hint="pullback.trainer(net, loss, optimizer, example=x_train): only shape and dtype count",
        )
    module, layers = export_layers(model, (example,))
    loss = _loss(loss, module)
    _warn_of_last_op(loss, module)
    loss = model._own_loss(loss)
    made = make_trainer(module, loss, chosen, targets=_target_types(targets, module), init="zeros", **options)
    model.init_parameters(seed, init, keep=True)
    made.load_state_dict({name: variable.data for name, variable in model._variables()})
    model.held_by(made)
    made.model, made._layers = model, tuple(layers)
    return made


def _adapted(model: Any, example: Any, adapt: Any) -> Any:
    """The model with what is asked for fine-tuning."""
    asked = [] if adapt is None else list(adapt) if isinstance(adapt, (list, tuple)) else [adapt]
    for one in asked:
        if isinstance(one, type) or not hasattr(one, "apply"):
            given = one.__name__ if isinstance(one, type) else type(one).__name__
            raise ArgumentError(
                f"adapt must be nn.LoRA(…) or nn.Adapter(…), got {given}", hint="nn.LoRA(rank=8, targets=['query'])"
            )
    for one in asked:
        model = one.apply(model, example)
    return model


def _check_model(model: Any) -> None:
    """Say what to write in the place of what people bring."""
    if isinstance(model, type) and issubclass(model, Module):
        raise ArgumentError(f"the model is the class {model.__name__}", hint=f"make one: {model.__name__}(…)")
    packages = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    foreign = next((name for name in _LIBRARIES if name in packages), None)
    if foreign is not None:
        raise ArgumentError(f"the model is a {type(model).__name__} of {foreign}", hint=_LIBRARIES[foreign])


_LIBRARIES = {
    "keras": "net = pullback.from_keras(model) makes one of it that a trainer takes",
    "torch": "net = pullback.from_torch(model, x[:2]) makes one of it that a trainer takes",
    "onnx": "net = pullback.from_onnx(model) makes one of it that a trainer takes",
    "flax": "write it with pullback.nn, and load its weights: trainer.load_state_dict({…})",
    "tensorflow": "write it with pullback.nn, and load its weights: trainer.load_state_dict({…})",
}


def _loss(loss: Any, module: IRModule) -> Any:
    """The loss that is meant by a loss, its name, or a function."""
    if isinstance(loss, str):
        if loss not in LOSSES:
            raise ArgumentError(f"there is no loss {loss!r}{_meant(loss)}", hint=f"the names are {', '.join(LOSSES)}")
        return LOSSES[loss]()
    if getattr(loss, "__module__", type(loss).__module__).partition(".")[0] in ("torch", "keras"):
        name = getattr(loss, "__name__", type(loss).__name__)
        hint = "pullback.nn has PyTorch's losses under the same names, nn.functional its functions" + _of_keras(loss)
        raise ArgumentError(f"the loss {name} is one of another library", hint=hint)
    kind = next((kind for function, kind in _CLASSIFYING.items() if function is loss), None)
    if kind is not None:
        return kind()
    is_function = callable(loss) and not isinstance(loss, (Loss, type)) and isinstance(module, IRModule)
    if not is_function or BACKBONE not in module:
        return loss
    return FunctionLoss(loss, len(Convention.of(module)[BACKBONE].returned(OUTPUT)))


# How the last op of a model does not suit its loss, and what to do: networks for other libraries end so.
_PRODUCTS = ("add", "linear", "matmul", "conv1d", "conv2d", "conv3d")
_UNSUITED = {
    losses.CrossEntropyLoss: (
        ("softmax",),
        "takes logits, of which it computes the softmax itself: leave the softmax out;"
        ' "nll" takes the results of a log_softmax',
    ),
    losses.BCEWithLogitsLoss: (
        ("sigmoid",),
        "takes logits, of which it computes the sigmoid itself: leave the sigmoid out;"
        ' "bce" takes the results of a sigmoid',
    ),
    losses.BCELoss: (
        _PRODUCTS,
        'takes probabilities: end the model in a sigmoid; "bce_with_logits" takes it as it is, and is more exact',
    ),
    losses.NLLLoss: (
        _PRODUCTS,
        'takes the logarithms of probabilities: end the model in a log_softmax; "cross_entropy" takes it as it is',
    ),
}


def _warn_of_last_op(loss: Any, module: IRModule) -> None:
    """Warn of a loss of logits that is given probabilities, and of one of probabilities that is given logits."""
    unsuited, advice = _UNSUITED.get(type(loss), ((), ""))
    if not unsuited or BACKBONE not in module:
        return
    function = module[BACKBONE]
    value: Any = function.body.body
    values = {binding.var: binding.value for binding in function.body.bindings}
    while isinstance(value, (Var, Tuple)):
        value = value.fields[0] if isinstance(value, Tuple) else values.get(value)
    last = value.op.name.rpartition(".")[2] if isinstance(value, Call) and isinstance(value.op, Op) else ""
    if last in unsuited:
        article = "an" if last[0] in "aeiou" else "a"
        warnings.warn(
            f"the model ends in {article} {last}, and {type(loss).__name__} {advice}", UserWarning, stacklevel=4
        )


def _of_keras(value: Any) -> str:
    """What to do with a loss or an optimizer of Keras."""
    if getattr(value, "__module__", type(value).__module__).partition(".")[0] != "keras":
        return ""
    return "; net.loss and net.optimizer of net = pullback.from_keras(model) are those that the model is compiled with"


def _meant(name: str) -> str:
    """``: did you mean …?``, or nothing."""
    word = _WORDS.get(name.lower()) or next(
        (f'"{known}"' for known, kind in LOSSES.items() if name.lower() in (kind.__name__.lower(), f"{known}_loss")),
        None,
    )
    return f": write {word}" if word else suggestion(name, LOSSES)


def _optimizer(optimizer: Any) -> Optimizer:
    if not isinstance(optimizer, str):
        if type(optimizer).__module__.partition(".")[0] in ("torch", "keras"):
            raise ArgumentError(
                f"the optimizer {type(optimizer).__name__} is one of another library",
                hint=f"pullback.optim has PyTorch's under the same names: optim.{type(optimizer).__name__}(lr=1e-3)"
                + _of_keras(optimizer),
            )
        return optimizer
    if optimizer not in optim.BY_NAME:
        known = ", ".join(optim.BY_NAME)
        raise ArgumentError(
            f"there is no optimizer {optimizer!r}{suggestion(optimizer, optim.BY_NAME)}", hint=f"the names are {known}"
        )
    return optim.BY_NAME[optimizer]()


def _target_types(targets: Any, module: IRModule) -> Any:
    """Types from arrays: their first axis is the batch of the model."""
    if targets is None or isinstance(targets, (str, StructInfo)):
        return targets
    given = targets if isinstance(targets, (list, tuple)) else [targets]
    batch = module[BACKBONE].params[0].struct_info.shape[0]
    types = []
    for value in given:
        if isinstance(value, StructInfo):
            types.append(value)
            continue
        array = np.asarray(value)
        dtype = "float32" if array.dtype == np.float64 else array.dtype.name
        types.append(TensorStructInfo((batch, *array.shape[1:]), dtype))
    return types
