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
    around: Callable[[list[Var], Body], Function] | None = None,
) -> Module:
    """``function``, what :func:`computed` returns of the model, as a module of relay in the form for inference, and the
    values of its parameters and states by name, in the order in which the function reads them.

    ``inputs``: the names of its inputs. ``around(inputs, body)`` returns a function of other inputs that computes the
    body of what it makes of them; parameters come behind its own.
    """
    spelling = spelling or Spelling()
    held = dict((*model.named_parameters(), *model.named_buffers()))
    variables = {}
    for k, param in enumerate(function.params):
        shown = inputs[k] if k < len(inputs) else spelling.params.get(param.name, param.name)
        variables[param] = Var(shown, type_of(param.struct_info), span=spelling.entries.get(param.name))
    entries = function.params[: len(inputs)]
    weights = [p for p in _read(function) if p in variables.keys() - set(entries)]

    def body(arguments: list[Expr]) -> Expr:
        values = dict(zip(entries, arguments, strict=True))
        return raised_body(function, [values.get(p, variables[p]) for p in function.params], NAMES, spelling.place)

    own = [variables[p] for p in entries]
    made = Function(tuple(own), body(list(own))) if around is None else around(own, body)
    values = {variables[p].name: tensor(held[p.name].numpy(), copy=True) for p in weights}
    return IRModule.from_expr(made.replace(params=(*made.params, *(variables[p] for p in weights)))), values


def _read(function: relax.Function) -> list[relax.Var]:
    """The variables that the function reads, in the order in which it does."""
    bound = [binding.value for block in function.body.blocks for binding in block.bindings]
    return list(dict.fromkeys(var for value in (*bound, function.body.body) for var in used_vars(value)))
