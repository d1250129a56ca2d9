"""Constraints of calls of operators, and of fields of tuples: they wait until enough is known of the arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pullback.ir.errors import DTypeError, UserError
from pullback.relay.expr import Call, TupleGetItem
from pullback.relay.infer.errors import TypeInferenceError, mismatch_error
from pullback.relay.infer.solver import Constraint, Mismatch
from pullback.relay.infer.words import expr_text
from pullback.relay.op.meaning import result_type
from pullback.relay.ty import IncompleteType, TensorType, TupleType, Type

if TYPE_CHECKING:
    from pullback.relay.infer.inferencer import Inferencer


class OperatorCall(Constraint):
    """The result of an operator's call has the type that its rule gives for those of the arguments.

    ``found`` is that type where nothing has been unknown.
    """

    def __init__(self, inferencer: Inferencer, call: Call, args: tuple[Type, ...], result: IncompleteType) -> None:
        super().__init__()
        self.inferencer, self.solver = inferencer, inferencer.solver
        self.call, self.args, self.result = call, args, result
        self.found: Type | None = None
        self._last: tuple[Type, ...] | None = None
        self._failed = False

    def run(self) -> None:
        if self._failed:
            return
        types = self._arg_types()
        if types is None or types == self._last:
            return
        self._last = types
        try:
            found = result_type(self.call.op, types, self.call.attrs)
        except UserError as error:
            self._fail(_of_call(error, self.call, types))
            return
        if not self.watched:
            self.found = found
            return
        try:
            self.solver.flow(found, self.result)
        except Mismatch as mismatch:
            expected = str(self.solver.resolve(self.result))
            message = f"{expr_text(self.call)} gives {found}, and stands where {expected} is expected"
            self._fail(mismatch_error(mismatch, message, self.call.span))

    def _fail(self, error: UserError) -> None:
        self._failed = True
        self.inferencer.report(error)
        self.solver.excuse(self.result)

    def _arg_types(self) -> tuple[Type, ...] | None:
        """The arguments' types, once all is known of them."""
        if all(isinstance(t, TensorType) for t in self.args):
            return self.args
        watched, unknown = self.solver.unknowns(self.args)
        if unknown and self._complete():
            watched, unknown = self.solver.unknowns(self.args)
        self.solver.watch(self, watched)
        if unknown:
            if unknown & self.solver.excused:
                self.solver.excuse(self.result)
            return None
        return tuple(self.solver.resolve(t) for t in self.args)

    def _complete(self) -> bool:
        """Ask the operator which types follow from the others; whether there were any."""
        complete = self.call.op.complete
        if complete is None:
            return False
        types = [self.solver.resolve(t) for t in self.args]
        try:
            completed = complete(list(types), self.call.attrs)
        except UserError as error:
            self._fail(_of_call(error, self.call, types))
            return False
        changed = False
        for old, new in zip(types, completed or types, strict=True):
            if new is not old and new is not None:
                self.solver.equal(old, new)
                changed = True
        return changed


class Field(Constraint):
    """A field of a tuple has the type that the tuple's says. ``found`` is that type where the tuple was known."""

    def __init__(self, inferencer: Inferencer, expr: TupleGetItem, whole: Type, result: IncompleteType) -> None:
        super().__init__()
        self.inferencer, self.solver = inferencer, inferencer.solver
        self.expr, self.whole, self.result = expr, whole, result
        self.found: Type | None = None

    def run(self) -> None:
        known = self.solver.known(self.whole)
        if isinstance(known, IncompleteType):
            self.solver.watch(self, [known])
            if known in self.solver.excused:
                self.solver.excuse(self.result)
            return
        if not isinstance(known, TupleType):
            what = f"{expr_text(self.expr.tuple_value)} is no tuple, but {self.solver.resolve(known)}"
            self._fail(what, "relay.Tuple makes one; several results of an operator are one, too")
        elif not 0 <= self.expr.index < len(known.fields):
            count = len(known.fields)
            fields = f"{count} field{'s' * (count != 1)}"
            self._fail(f"a tuple of {fields} has no field {self.expr.index}", "the first field is 0")
        elif not self.watched:
            self.found = known.fields[self.expr.index]
        else:
            self._give(known.fields[self.expr.index])

    def _give(self, field: Type) -> None:
        try:
            self.solver.equal(field, self.result)
        except Mismatch as mismatch:
            expected = str(self.solver.resolve(self.result))
            found = str(self.solver.resolve(field))
            message = f"{expr_text(self.expr)} is {found}, and stands where {expected} is expected"
            self.inferencer.report(mismatch_error(mismatch, message, self.expr.span))

    def _fail(self, message: str, hint: str) -> None:
        where = f"{message}, in {expr_text(self.expr)}"
        self.inferencer.report(TypeInferenceError(where, span=self.expr.span, hint=hint))
        self.solver.excuse(self.result)


def _of_call(error: UserError, call: Call, types: Any) -> UserError:
    """The operator's complaint with the call, the types of its arguments, and its place."""
    shown = ", ".join(map(str, types))
    message = f"{error.message}, in {expr_text(call)} of {shown}"
    hint = error.hint
    if isinstance(error, DTypeError):
        hint = "nothing is promoted implicitly: relay.cast(x, dtype) converts one of them"
    elif hint is not None and "R." in hint:
        hint = None  # it speaks of the graph IR
    return type(error)(message, span=call.span or error.span, hint=hint)
