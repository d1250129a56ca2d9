"""SetupTrainer: from a model to a module that can be trained.

backbone(inputs…, params…, states…) -> (outputs…, new states…)              given
    →
backbone_loss(inputs…, params…, states…, targets…, random state?) -> loss, or (loss, new states…)
backbone_loss_adjoint(the same, loss scale?) -> (what backbone_loss returns, (gradients of trained params…))
optimizer((params…), (gradients…), (optim_states…)) -> ((new params…), (new optim_states…))

The functions hold the ops that the user wrote, so batches of other sizes can be derived from them (``rebatch.py``). The
backbone is compiled in its form for inference: batch norm takes its moving statistics there, and returns them
unchanged, and dropout does nothing. With a ``precision``, both it and the loss function are rewritten by
``MixedPrecision`` first.
Where the loss draws random numbers, it takes a random state, which is no state of the model: ``AddRandomState`` says
what it is. Where the optimizer keeps a loss scale, the adjoint takes it. The attribute ``convention`` says what each
function takes and returns: see ``relax/convention.py``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pullback.driver.collector import rare_collections
from pullback.ir.digest import structural_digest
from pullback.ir.errors import ArgumentError, DTypeError, NameNotFound, ShapeError, UserError
from pullback.ir.module import GLOBAL_SYMBOL, IRModule
from pullback.ir.node import structural_equal
from pullback.ir.op import Op
from pullback.ir.passes import Pass
from pullback.ir.words import guided
from pullback.relax.analysis import check_well_formed
from pullback.relax.convention import (
    ADJOINT,
    ATTRIBUTE,
    BACKBONE,
    INPUT,
    LOSS,
    LOSS_SCALE,
    OPTIMIZER,
    PARAMETER,
    STATE,
    Convention,
    Roles,
    declarations,
)
from pullback.relax.declared import Declared
from pullback.relax.expr import Call, Expr, Function, Var
from pullback.relax.mutator import ExprMutator
from pullback.relax.op_calls import is_op
from pullback.relax.struct_info import (
    Dim,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    as_tensor,
    flat_infos,
    format_info,
    same_info,
)
from pullback.relax.training.adjoint import with_adjoint, with_gradients_of
from pullback.relax.training.loss import Loss
from pullback.relax.training.optimizer import DynamicLossScale, Optimizer
from pullback.relax.training.optimizer.wrapper import layers
from pullback.relax.training.subset import not_trained, patterns
from pullback.relax.training.utils import AppendLoss
from pullback.relax.transform import (
    AddRandomState,
    LegalizeOps,
    MixedPrecision,
    RaiseOps,
    RebatchInputs,
)
from pullback.relax.transform.distributed import DISTRIBUTED, Distributed
from pullback.relax.transform.inline_functions import inline_calls
from pullback.relax.transform.join_step import JoinStep
from pullback.relax.transform.low_rank import updates_of
from pullback.relax.transform.mixed_precision import HALF
from pullback.relax.transform.rebatch_inputs import retyped
from pullback.tir.expr import FLOATS
from pullback.tir.stmt import FLUSH_SUBNORMALS

OLD_BACKBONE = "predict"  # the backbone's name in older programs


@guided
@dataclass(frozen=True)
class SetupTrainer(Pass):
    """Make a trainer module from a module with the function ``backbone``, whose parameters are declared by ``R.Param``
    and ``R.State``, in any order, or counted by the module attributes ``param_num``, ``state_num``.

    The result has the module attributes ``input_num``; ``optim_state``, the initial optimizer states, which can be read
    as ``optim_states`` too; ``convention``, what each function takes and returns; and ``training``, what a trainer has
    to know of loss and optimizer.

    Args:
        loss: appended to the backbone.
        optimizer: initialised for the parameters.
        loss_args: the types of the loss's arguments: the outputs that it takes, then the targets.
        legalize: whether ops are lowered to kernels at the end.
        precision: "bfloat16" computes products of matrices, convolutions and what is between them in that type;
            parameters, their gradients, states and the loss stay float32. "float16" does so too, with the optimizer in
            a ``DynamicLossScale`` if it is in none. None and "float32" change nothing.
        flush_subnormals: compiled code of the module takes numbers nearer to 0 than 1.2e-38 (float64: 2.2e-308) for 0,
            as operands and as results, on x86-64 and AArch64. Gradients of what a model has learnt are such numbers,
            with which a CPU may be a hundred times slower. It is the module attribute of that name.
        trainable: patterns of the names of parameters (shell-style, as in ``fnmatch``). What none of them matches is
            left as it is, as what the model freezes. None trains all that the model does not freeze.
        distributed: over which ranks, and how: what ``DataParallel`` and ``ZeRO`` do to a finished module.

    Raises:
        UserError: what does not hold of the above.

    Checks: as above.
    """

    loss: Loss
    optimizer: Optimizer
    loss_args: Sequence[StructInfo]
    legalize: bool = True
    precision: str | None = None
    flush_subnormals: bool = True
    trainable: Sequence[str] | None = None
    distributed: Distributed | None = None

    def __post_init__(self) -> None:
        check_loss_and_optimizer(self.loss, self.optimizer)
        check_precision(self.precision)
        check_flush(self.flush_subnormals)
        if self.trainable is not None:
            object.__setattr__(self, "trainable", patterns("trainable", self.trainable))
        if not isinstance(self.loss_args, (list, tuple)):
            given = type(self.loss_args).__name__
            hint = "write a list: [prediction_info, target_info]"
            message = f"loss_args must be a list of types, predictions first, then targets, got {given}"
            raise ArgumentError(message, hint=hint)

    def __call__(self, module: IRModule) -> IRModule:
        check_model(module)
        return super().__call__(module)

    @rare_collections()
    def run(self, module: IRModule) -> IRModule:
        module = RaiseOps()(with_backbone(module))  # legalised ops have no form for inference
        model = check_backbone(module)
        declared = _declared_by_name(module)
        loss_function = self.loss(*self.loss_args)
        takes_any_rows = self._takes_any_rows(loss_function, inline_calls(module[BACKBONE], module), model.taken(INPUT))
        module = AppendLoss(BACKBONE, loss_function, self.loss.num_backbone_outputs, LOSS)(module)
        self._check_states(module, model)
        backbone = inline_calls(module[BACKBONE], module)
        if self.precision in HALF:
            for name in (BACKBONE, LOSS):
                module = MixedPrecision(name, self.precision)(module)
        without_random = len(module[LOSS].params)
        module = AddRandomState(LOSS)(module)
        params = [module[LOSS].params[i] for i in model.taken(PARAMETER)]
        optimizer = self._scaling_optimizer()
        optimizer.take_loss(self.loss.reduction == "sum")
        optimizer.freeze(not_trained(module, [p.name for p in params], self.trainable))
        optimizer.init(params)
        if self.distributed is not None:  # the adjoint is that of a rank's part of the batch
            draws = len(module[LOSS].params) > without_random
            known = {"reduction": self.loss.reduction, "shared_targets": tuple(self.loss.shared_targets)}
            module = module.with_attrs({
                DISTRIBUTED: replace(self.distributed, draws=draws).attribute,
                ATTRIBUTE: Convention.made(module, int(draws)).attribute,
                "training": known,
            })  # fmt: skip
        has_scale = LOSS_SCALE in optimizer.state_kinds.values()
        trained = [i for i, param in enumerate(params) if not optimizer.is_frozen(param.name)]
        places = model.taken(PARAMETER)
        module = with_adjoint(module, [places[i] for i in trained], has_scale, self.precision in HALF)
        function = with_gradients_of(trained, optimizer.get_function())
        module[OPTIMIZER] = function.with_attr(GLOBAL_SYMBOL, OPTIMIZER)
        random = len(module[LOSS].params) - without_random
        source = {n: d for n, d in source_digests(module).items() if n != LOSS or takes_any_rows}
        begins = {name: d.initial for name, d in declared.items() if d.initial is not None}
        begins |= {update.b: 0.0 for update in updates_of(module)}
        record = TrainingRecord.of(self.loss, optimizer, backbone, self.precision, source, begins)
        module = module.with_attr("training", vars(record).copy())
        module = module.with_attrs({
            "input_num": len(model.taken(INPUT)),
            "optim_state": optimizer.state or (),
            ATTRIBUTE: Convention.made(module, random, optimizer.state_kinds, trained).attribute,
            FLUSH_SUBNORMALS: self.flush_subnormals,
        })  # fmt: skip
        if self.distributed is not None and self.distributed.stage:
            whole = replace(self.distributed, micro_batches=1).attribute
            JoinStep()(module.with_attr(DISTRIBUTED, whole))  # an optimizer that cannot update pieces says so now
        if self.legalize:
            module = LegalizeOps()(module)
        module.attrs = TrainerAttributes(module.attrs)
        return module

    def _scaling_optimizer(self) -> Optimizer:
        """The optimizer, in float16 with a loss scale."""
        has_scale = any(isinstance(part, DynamicLossScale) for part in layers(self.optimizer))
        return self.optimizer if self.precision != "float16" or has_scale else DynamicLossScale(self.optimizer)

    def _takes_any_rows(self, function: Function, backbone: Function, inputs: Sequence[int]) -> bool:
        """Whether the loss function for another number of rows is this one for that number. That of a loss which reads
        its shapes when it is made, to divide by a size, say, is not."""
        batch = _rows(backbone.params[inputs[0]].struct_info) if inputs else None
        if batch is None:
            return True
        names = [p.name for i, p in enumerate(backbone.params) if i in inputs and _rows(p.struct_info) == batch]
        count = self.loss.num_backbone_outputs
        try:
            other = RebatchInputs(batch + 1, BACKBONE, input_num=0, also=names).rebatched(backbone)
            infos = flat_infos(other.ret_struct_info)[:count]
            for param in function.params[count:]:
                info = param.struct_info
                has_rows = _rows(info) == batch and param.name not in self.loss.shared_targets
                infos.append(_with_rows(as_tensor(info), batch + 1) if has_rows else info)
            derived = retyped(function, infos)
        except UserError:
            return True  # who derives it will be told why the model takes no other number
        try:
            return structural_equal(derived, self.loss(*infos))
        except UserError:
            return False

    def _check_states(self, module: IRModule, model: Roles) -> None:
        """The backbone returns the loss's outputs, then any extra outputs, then the updated states."""
        info = module[BACKBONE].ret_struct_info
        results = info.fields if isinstance(info, TupleStructInfo) else (info,)
        free, states = len(results) - self.loss.num_backbone_outputs, len(model.taken(STATE))
        if free < states:
            raise ArgumentError(
                f"the backbone returns {len(results)} values: {self.loss.num_backbone_outputs} for the loss and"
                f" {max(free, 0)} updated states, but state_num is {states}",
                span=module[BACKBONE].span,
                hint="return the predictions, then one updated value for each state",
            )


@dataclass(frozen=True)
class TrainingRecord:
    """What a trainer has to know of the loss and the optimizer that made its module; empty when nobody recorded it.

    It is the module attribute ``training``, as a dict of plain values: so it survives being printed and read.
    """

    loss: str = ""  # its name
    reduction: str = ""
    outputs: int = 1  # how many outputs of the backbone the loss takes
    classification: bool = False
    ignore_index: int | None = None
    shared_targets: tuple[str, ...] = ()
    optimizer: str = ""
    hyperparameters: Mapping[str, float | str] = field(default_factory=dict)
    initial: Mapping[str, float] = field(default_factory=dict)  # of parameters and states, by name
    declared: Mapping[str, float] = field(default_factory=dict)  # of those, what R.Param and R.State say
    optimizer_states: tuple[str, ...] = ()  # their names
    optimizer_groups: tuple[str, ...] = ()  # the pattern of the group of parameters that each belongs to, or ""
    run_time: Mapping[str, Any] = field(default_factory=dict)  # run-time values: see Optimizer.roles
    averages: Mapping[str, int] = field(default_factory=dict)  # the optimizer's states that average parameters
    precision: str = "float32"  # in which products are computed
    source: Mapping[str, str] = field(default_factory=dict)  # digests of the functions: see source_digests
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    network: str = ""  # what tells two models of the same parameters apart, whatever the size of a batch

    @staticmethod
    def of(
        loss: Loss, optimizer: Optimizer, backbone: Function, precision: str | None, source: Mapping[str, str],
        declared: Mapping[str, float],
    ) -> TrainingRecord:  # fmt: skip
        return TrainingRecord(
            loss.name, loss.reduction, loss.num_backbone_outputs, loss.classification,
            getattr(loss, "ignore_index", None), tuple(loss.shared_targets), optimizer.name, optimizer.hyperparameters,
            {**initial_values(backbone), **declared}, declared, **optimizer.roles, precision=precision or "float32",
            source=source, loss_options=loss.options, network=network(backbone),
        )  # fmt: skip

    @property
    def identity(self) -> dict[str, Any]:
        """What the values of a training are worth nothing without, by name."""
        options = {f"loss's {name}": value for name, value in self.loss_options.items()}
        return {"loss": self.loss, "loss's reduction": self.reduction, **options, "network": self.network}


def _declared_by_name(module: IRModule) -> dict[str, Declared]:
    """What the backbone's parameters are declared to be."""
    found = declarations(module)
    return {} if found is None else {p.name: d for p, d in zip(module[BACKBONE].params, found, strict=True)}


def source_digests(module: IRModule) -> dict[str, str]:
    """Digests of the functions from which batches of other sizes are derived, and of what is derived; the same for a
    function that was legalised and raised again, whose aliases are resolved."""
    inlined = {name: inline_calls(module[name], module) for name in (BACKBONE, LOSS, ADJOINT)}
    functions = {name: ExprMutator().function(function) for name, function in inlined.items()}
    return {name: structural_digest(function).hex()[:32] for name, function in functions.items()}


class TrainerAttributes(dict[str, Any]):
    """The attributes of a trainer module: ``optim_states`` reads ``optim_state``."""

    def __missing__(self, key: str) -> Any:
        if key == "optim_states" and "optim_state" in self:
            return self["optim_state"]
        raise KeyError(key)

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default


def _with_rows(info: TensorStructInfo, rows: Dim) -> TensorStructInfo:
    return TensorStructInfo((rows, *info.sizes[1:]), info.dtype)


def initial_values(backbone: Function) -> dict[str, float]:
    """With what the parameters and states begin whose use says so: a scale with 1 (``initial`` of an Op), and with 0
    what is added and has at most one size other than 1, such as a bias (C, 1, 1)."""
    params: dict[Expr, str] = {p: p.name for p in backbone.params}
    result: dict[str, float] = {}
    for binding in backbone.bindings:
        call = binding.value
        if isinstance(call, Call) and isinstance(call.op, Op):
            arguments = dict(zip(call.op.signature.tensors, call.args, strict=False))
            result |= {params[arguments[n]]: v for n, v in call.op.initial.items() if arguments.get(n) in params}
            if is_op(call, "add"):
                result |= {params[a]: 0.0 for a in call.args if a in params and _is_bias(a.struct_info)}
    return result


def network(backbone: Function) -> str:
    """The number of a backbone's ops and a digest of their names."""
    names = [b.value.op.name for b in backbone.bindings if isinstance(b.value, Call) and isinstance(b.value.op, Op)]
    return f"{len(names)} ops, {hashlib.sha256(' '.join(names).encode()).hexdigest()[:8]}"


def _is_bias(info: StructInfo) -> bool:
    """Of a rank above one: those below begin as zeros in any case."""
    if not isinstance(info, TensorStructInfo) or not info.is_static or not info.shape:
        return False
    return len(info.shape) > 1 and sum(size != 1 for size in info.shape) <= 1


def with_backbone(module: IRModule) -> IRModule:
    """The module with a ``backbone``, which is called ``predict`` in older programs, and with the attributes
    ``param_num`` and ``state_num`` where the backbone declares its parameters itself."""
    if BACKBONE not in module and OLD_BACKBONE in module:
        module = module.copy()
        module[BACKBONE] = module[OLD_BACKBONE]
    declared = declarations(module)
    if declared is not None:
        kinds = [d.kind for d in declared]
        counted = {"param_num": kinds.count(PARAMETER), "state_num": kinds.count(STATE)}
        module = module.with_attrs({k: v for k, v in counted.items() if k not in module.attrs})
    return module


def _rows(info: StructInfo) -> int | None:
    """The leading size of a tensor, where it is a number."""
    shape = info.shape if isinstance(info, TensorStructInfo) else None
    return shape[0] if shape and isinstance(shape[0], int) else None


def check_loss_and_optimizer(loss: Any, optimizer: Any) -> None:
    """Raise an ArgumentError for what is no loss or no optimizer."""
    for name, value, kind, example in (
        ("loss", loss, Loss, "CrossEntropyLoss()"),
        ("optimizer", optimizer, Optimizer, "SGD(0.1)"),
    ):
        if isinstance(value, kind):
            continue
        given, hint = repr(value), f"it is an object, such as relax.training.{name}.{example}"
        if isinstance(value, type):
            given = f"the class {value.__name__}"
            if issubclass(value, kind):
                hint = f"make one of it: {value.__name__}({'…' if kind is Optimizer else ''})"
        elif isinstance(value, (Loss, Optimizer)):
            hint = "the loss comes first, then the optimizer"
        kinds = f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"
        raise ArgumentError(f"{name} must be {kinds}, such as {name}.{example}, got {given}", hint=hint)


def check_precision(precision: Any) -> None:
    """Raise an ArgumentError for what is no precision to train in."""
    known = (None, "float32", *HALF)
    if not isinstance(precision, (str, type(None))) or precision not in known:
        hint = "a model in another dtype declares it; precision says how what is float32 is computed"
        raise ArgumentError(f"precision must be one of {', '.join(map(repr, known))}, got {precision!r}", hint=hint)


def check_flush(flush: Any) -> None:
    """Raise an ArgumentError for what doesn't say whether to flush subnormal numbers."""
    if not isinstance(flush, bool):
        raise ArgumentError(f"flush_subnormals must be True or False, got {flush!r}")


def check_model(module: Any) -> None:
    """Raise an ArgumentError for what is no module."""
    if isinstance(module, IRModule):
        return
    given = f"the class {module.__name__}" if isinstance(module, type) else type(module).__name__
    hint = f"write the function {BACKBONE!r} into a class with @I.ir_module"
    if hasattr(module, "export") and hasattr(module, "named_parameters"):
        hint = "net.export(example) is the IRModule of an nn.Module; pullback.trainer takes the module itself"
    if isinstance(module, Function):
        hint = f'wrap it: IRModule({{"{BACKBONE}": function}}, {{"param_num": …, "state_num": …}})'
    raise ArgumentError(f"a model is an IRModule with a function {BACKBONE!r}, not {given}", hint=hint)


def check_backbone(module: IRModule) -> Roles:
    """Raise a UserError unless the module can be made a trainer module; returns what its backbone takes and returns."""
    check_model(module)
    if BACKBONE not in module:
        known = ", ".join(module) or "none"
        raise NameNotFound(
            f"a model needs a function {BACKBONE!r}; the module has: {known}",
            hint="name the function that gives the prediction backbone (or predict)",
        )
    backbone = module[BACKBONE]
    if not isinstance(backbone, Function):
        raise UserError(
            f"{BACKBONE} must be a graph function, it is a {type(backbone).__name__}",
            hint="decorate it with @R.function",
        )
    check_well_formed(module)
    params, states = _count(module, "param_num"), _count(module, "state_num")
    total = len(backbone.params)
    if params + states > total:
        raise ArgumentError(
            f"the backbone has {total} parameters, but param_num + state_num = {params} + {states}",
            span=backbone.span,
            hint="module_attrs: parameters are the last but states of the backbone's, states the last",
        )
    if params == 0:
        raise ArgumentError(
            "param_num is 0: there is nothing to train",
            span=backbone.span,
            hint="declare parameters, w: R.Param((784, 10)), or count them in"
            ' I.module_attrs({"param_num": 2, "state_num": 0})',
        )
    _check_names(backbone.params)
    roles = Convention.made(module)[BACKBONE]
    _check_params([backbone.params[i] for i in roles.taken(PARAMETER)])
    _check_updated_states(backbone, [backbone.params[i] for i in roles.taken(STATE)])
    return roles


def _count(module: IRModule, key: str) -> int:
    hint = f'write I.module_attrs({{"param_num": …, "state_num": …}}) in the module, or mod.with_attr("{key}", …)'
    if key not in module.attrs:
        hint += ", or declare parameters and states: w: R.Param((784, 10)), mean: R.State((784,))"
        raise ArgumentError(f"a model needs the integer module attribute {key!r}", hint=hint)
    value = getattr(module.attrs[key], "value", module.attrs[key])
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ArgumentError(f"the module attribute {key!r} must be an integer ≥ 0, it is {value!r}", hint=hint)
    return value


def _check_names(params: Sequence[Var]) -> None:
    """Names are keys, of checkpoints and wherever parameters are given by name: they differ and can be written."""
    seen: set[str] = set()
    for param in params:
        if not param.name or not param.name.isprintable():
            message = f"the name of a parameter of {BACKBONE} must be printable and not empty, got {param.name!r}"
            raise ArgumentError(message, span=param.span, hint="rename it: values are loaded and saved by name")
        if param.name in seen:
            message = f"{BACKBONE} has two parameters named {param.name!r}"
            hint = "give each input, parameter and state a name of its own: values are loaded and saved by name"
            raise ArgumentError(message, span=param.span, hint=hint)
        seen.add(param.name)


def _check_params(params: Sequence[Var]) -> None:
    for param in params:
        info = param.struct_info
        if not isinstance(info, TensorStructInfo) or info.dtype not in FLOATS:
            raise DTypeError(
                f"parameter {param.name} must be a float tensor, it is {format_info(info)}",
                span=param.span,
                hint="by param_num and state_num, the backbone takes inputs, then parameters, then states; R.Param and"
                " R.State declare them in any order",
            )


def _check_updated_states(backbone: Function, states: Sequence[Var]) -> None:
    """The last results have the types of the states."""
    count = len(states)
    if not count:
        return
    info = backbone.ret_struct_info
    results = info.fields if isinstance(info, TupleStructInfo) else ()
    if len(results) <= count:
        raise ArgumentError(
            f"state_num is {count}, so the backbone must return a prediction and {count} updated states,"
            f" it returns {format_info(info)}",
            span=backbone.span,
            hint="return (prediction, new_state, …), a tuple",
        )
    for state, updated in zip(states, results[-count:], strict=True):
        if not same_info(state.struct_info, updated):
            raise ShapeError(
                f"state {state.name} is {format_info(state.struct_info)}, its updated value {format_info(updated)}",
                span=backbone.span,
                hint="the last results are the updated states, in the order of the states",
            )
