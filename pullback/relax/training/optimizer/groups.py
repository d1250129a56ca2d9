"""Parameter groups: other hyperparameters for parameters whose names match a pattern, or none at all."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.ir.words import unknown_argument
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Expr, Var
from pullback.relax.training.optimizer.base import Optimizer, Parameter, State
from pullback.relax.training.optimizer.value import RunTime, flag
from pullback.relax.training.optimizer.wrapper import Wrapper

FROZEN = "frozen"


class ParameterGroups(Wrapper):
    """An optimizer whose hyperparameters differ from group to group.

    ``groups`` maps patterns of parameter names (shell-style, as in ``fnmatch``) to what differs: arguments of the
    optimizer, or ``{"frozen": True}``. The first pattern that matches a name counts; parameters that none matches get
    the optimizer as it is.

    A frozen parameter is never changed, has no state, and its gradient is not computed in training steps. The states of
    each group come together: first those of the parameters that no pattern matches. A run-time value in a group is
    called by its name and pattern, as ``lr[head.*]``, unless it has a name of its own.

    Args:
        optimizer: the optimizer that is wrapped.
        groups: patterns of parameter names (shell-style, as in ``fnmatch``) and what differs: arguments of the
            optimizer, or ``{"frozen": True}``. The first pattern that matches a name counts; parameters that none
            matches get the optimizer as it is.

    Raises:
        ArgumentError: for arguments that the optimizer does not have, and, once it knows the parameters, for a pattern
            that matches none of them.

    Examples:
        >>> groups = {"*bias": {"weight_decay": 0}, "2.*": {"lr": 1e-2}, "0.weight": {"frozen": True}}
        >>> optimizer = optim.ParameterGroups(optim.AdamW(1e-3), groups)
        >>> trainer = pullback.trainer(net, "cross_entropy", optimizer, example=x)
        >>> trainer.trained
        ('0.bias', '2.weight', '2.bias')
    """

    def __init__(self, optimizer: Optimizer, groups: Mapping[str, Mapping[str, Any]]) -> None:
        super().__init__(optimizer)
        if isinstance(optimizer, Wrapper):
            kind = type(optimizer).__name__
            hint = f"wrap the groups: {kind}(ParameterGroups(…), …)"
            raise ArgumentError(f"ParameterGroups takes a plain optimizer, not {kind}", hint=hint)
        if not isinstance(groups, Mapping):
            raise ArgumentError(f"groups must be a dict of patterns, got {type(groups).__name__}")
        self.groups = {pattern: _options(pattern, options) for pattern, options in groups.items()}
        self._optimizers: dict[str | None, Optimizer] = {
            pattern: _changed(optimizer, pattern, options)
            for pattern, options in self.groups.items()
            if not options.get(FROZEN)
        }
        self._optimizers[None] = optimizer

    @property
    def hyperparameters(self) -> dict[str, float | str]:
        """Those of the optimizer, and what differs in groups: ``weight_decay[*bias]``."""
        differing = {f"{k}[{p}]": v for p, options in self.groups.items() for k, v in options.items()}
        plain = {k: v if isinstance(v, (bool, int, float)) else repr(v) for k, v in differing.items()}
        return self.optimizer.hyperparameters | plain

    def is_frozen(self, name: str) -> bool:
        return self.optimizer.is_frozen(name) or self._pattern(name) not in self._optimizers

    def take(self, params: list[Var]) -> None:
        Optimizer.take(self, params)
        names = [p.name for p in params]
        for pattern in self.groups:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ArgumentError(
                    f"no parameter matches {pattern!r}; the parameters are: {', '.join(names)}",
                    hint="patterns are those of a shell: 'layer1.*', '*_b'",
                )
        if all(map(self.is_frozen, names)):
            raise ArgumentError(f"all parameters are frozen: {', '.join(names)}")
        for _, optimizer, places in self._members(params):
            optimizer.take([params[i] for i in places])

    def _pattern(self, name: str) -> str | None:
        """The first pattern that matches a name."""
        return next((pattern for pattern in self.groups if fnmatchcase(name, pattern)), None)

    def _members(self, params: Sequence[Var]) -> list[tuple[str | None, Optimizer, list[int]]]:
        """The groups that have a member: their patterns and optimizers, and which parameters these are."""
        patterns = [self._pattern(p.name) for p in params]
        found = (
            (pattern, self._optimizers[pattern], [i for i, own in enumerate(patterns) if own == pattern])
            for pattern in (None, *self.groups)
            if pattern in self._optimizers
        )
        return [(pattern, optimizer, places) for pattern, optimizer, places in found if places]

    def states(self, params: Sequence[Var]) -> list[State]:
        members = self._members(params)
        return [
            replace(state, group=pattern or "")
            for pattern, optimizer, places in members
            for state in optimizer.states([params[i] for i in places])
        ]

    def emit(
        self, builder: BlockBuilder, count: Expr, params: Sequence[Parameter], states: Sequence[Expr]
    ) -> tuple[list[Expr], list[Expr]]:
        declared, rest = [p.declared for p in params], list(states)
        new: dict[int, Expr] = {}
        kept: list[Expr] = []
        for _, optimizer, places in self._members(declared):
            size = len(optimizer.states([declared[i] for i in places]))
            mine, rest = rest[:size], rest[size:]
            values, changed = optimizer.emit(builder, count, [params[i] for i in places], mine)
            new |= dict(zip(places, values, strict=True))
            kept += changed
        return [new[i] for i in range(len(params))], kept

    def __repr__(self) -> str:
        return f"ParameterGroups({self.optimizer!r}, {self.groups!r})"


def _options(pattern: Any, options: Any) -> dict[str, Any]:
    """What differs in a group, checked as far as the optimizer does not matter."""
    if not isinstance(pattern, str):
        raise ArgumentError(f"a group is named by a pattern of parameter names, got {pattern!r}")
    if not isinstance(options, Mapping):
        raise ArgumentError(f'group {pattern!r} must be a dict such as {{"lr": 0.01}}, got {options!r}')
    if FROZEN in options and flag(FROZEN, options[FROZEN]) and len(options) > 1:
        others = ", ".join(str(k) for k in options if k != FROZEN)
        raise ArgumentError(f"group {pattern!r} is frozen, so that {others} would have no effect")
    return dict(options)


def _changed(optimizer: Optimizer, pattern: str, options: Mapping[str, Any]) -> Optimizer:
    """An optimizer made anew, with other arguments."""
    made_with, kind = optimizer._made_with, type(optimizer)
    changes = {k: _named(k, v, pattern) for k, v in options.items() if k != FROZEN}
    if made_with is None:
        raise ArgumentError(f"ParameterGroups cannot tell how {kind.__name__} was made: make it by its constructor")
    known = [
        n for n, p in inspect.signature(kind).parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    unknown = [str(k) for k in changes if k not in known]
    if unknown:
        has = f"{kind.__name__} has no argument {', '.join(unknown)}; it has: {', '.join(known)}, frozen"
        hint = unknown_argument(unknown[0], known, "a group changes arguments of the optimizer that it wraps")
        raise ArgumentError(f"group {pattern!r}: {has}", hint=hint)
    try:
        result = inspect.BoundArguments(made_with.signature, made_with.arguments | changes)
        return kind(*result.args, **result.kwargs)
    except ArgumentError as error:
        raise ArgumentError(f"group {pattern!r}: {error.message}", hint=error.hint) from None


def _named(argument: str, value: Any, pattern: str) -> Any:
    if isinstance(value, RunTime) and not value.name:
        return replace(value, name=f"{argument}[{pattern}]")
    return value
