"""What the importers share: an imported model as a function of relay, and its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pullback import relax
from pullback.ir.module import IRModule
from pullback.ir.node import Span
from pullback.relax.analysis import used_vars
from pullback.relax.convention import BACKBONE, OUTPUT, Convention
from pullback.relax.frontend.imported import Imported
from pullback.relax.transform import DeadCodeElimination
from pullback.relay.expr import Expr, Function, Var, span_of
from pullback.relay.frontend.names import NAMES
from pullback.relay.op.meaning import type_of
from pullback.relay.raised import raised_body
from pullback.runtime.tensor import Tensor, tensor

Module = tuple[IRModule, dict[str, Tensor]]
Body = Callable[[list[Expr]], Expr]


@dataclass(frozen=True)
class Spelling:
    """How the result is written: names of parameters that are not those of the model, spans of the function's
    parameters by their names in the model, and of calls."""

    params: Mapping[str, str] = field(default_factory=dict)
    entries: Mapping[str, Span] = field(default_factory=dict)
    places: Mapping[Any, Span] = field(default_factory=dict)

    def place(self, call: Any) -> Span | None:
        return self.places.get(call, span_of(call))


def computed(model: Imported) -> relax.Function:
    """The model's function of inputs, parameters and states that returns its outputs alone."""
    exported = model.export(*model.example)
    places = Convention.of(exported)[BACKBONE].returned(OUTPUT)
    body = exported[BACKBONE].body
    fields = body.body.fields if isinstance(body.body, relax.Tuple) else (body.body,)
    outputs = tuple(fields[place] for place in places)
    result = outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)
    function = relax.Function(exported[BACKBONE].params, relax.SeqExpr(body.blocks, result), attrs={})
    return DeadCodeElimination()(IRModule({"main": function}))["main"]


def in_relay(
    model: Imported,
    function: relax.Function,
    inputs: Sequence[str],
    spelling: Spelling | None = None,
    around: Callable[[list[Expr], Body], Expr] | None = None,
) -> Module:
    """``function``, what :func:`computed` returns of the model, as a module of relay in the form for inference, and the
    values of its parameters and states by name.

    ``inputs``: the names of its inputs. ``around(inputs, body)`` returns the result where the body is to be computed of
    other values than the inputs themselves.
    """
    spelling = spelling or Spelling()
    held = dict((*model.named_parameters(), *model.named_buffers()))
    bound = [binding.value for block in function.body.blocks for binding in block.bindings]
    read = {var for value in (*bound, function.body.body) for var in used_vars(value)}
    params, values = [], {}
    for k, param in enumerate(function.params):
        shown = inputs[k] if k < len(inputs) else spelling.params.get(param.name, param.name)
        params.append(Var(shown, type_of(param.struct_info), span=spelling.entries.get(param.name)))
        if k >= len(inputs) and param in read:
            values[shown] = tensor(held[param.name].numpy(), copy=True)
    own, weights = params[: len(inputs)], params[len(inputs) :]

    def body(arguments: list[Expr]) -> Expr:
        return raised_body(function, [*arguments, *weights], NAMES, spelling.place)

    result = body(list(own)) if around is None else around(list(own), body)
    kept = [p for p in weights if p.name in values]
    return IRModule.from_expr(Function((*own, *kept), result)), values
