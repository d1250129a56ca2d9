"""What passes run in: the level of optimization, which passes must or must not run, options, and who watches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any, ClassVar

from pullback.ir.arguments import mapping, sequence, whole
from pullback.ir.errors import ArgumentError, NoAttribute, suggestion


@dataclass(frozen=True)
class PassInfo:
    """What is known of a pass: from which level on a :class:`Sequential` runs it, its name, and the names of passes
    that are run before it there.

    Args:
        opt_level: the level from which on a Sequential runs it.
        name: of the pass.
        required: the names of passes that a Sequential runs before it.
        traceable: accepted as in other packages, without effect.
    """

    opt_level: int
    name: str
    required: tuple[str, ...] = ()
    traceable: bool = False


OPTIONS: dict[str, type] = {}  # the options that passes read, with the type of their values


def register_option(name: str, kind: type) -> str:
    """Declare an option that :class:`PassContext` takes; the pass that reads it does so."""
    OPTIONS[name] = kind
    return name


# Options of the reference's code generator and tuner: no result depends on them, and nothing here does.
for _name in (
    "relay.backend.disable_compile_engine_cache", "relay.backend.use_auto_scheduler", "relay.backend.use_meta_schedule",
    "relay.remove_standalone_reshapes.enable", "testing.immutable_module", "tir.disable_vectorize",
):  # fmt: skip
    register_option(_name, bool)
register_option("relay.fallback_device_type", int)


class PassContext:
    """A scope in which passes run: ``with PassContext(opt_level=3, disabled_pass=["FoldConstant"]):``.

    A ``Sequential`` runs a pass whose ``opt_level`` is not above the context's, or that is in ``required_pass``, and
    none in ``disabled_pass``; a pass that is called itself always runs.

    Args:
        opt_level: the highest level of the passes that a Sequential runs.
        required_pass: names of passes that run whatever their level.
        disabled_pass: names of passes that do not run; it outweighs ``required_pass``.
        instruments: watch all passes (:mod:`pullback.ir.instrument`).
        config: options of passes, by name; :meth:`list_configs` has those there are.
        trace_stack: not supported, as the next three: passes are not traced.
        make_traceable: not supported.
        num_evals: not supported.
        tuning_api_database: not supported.

    Raises:
        NoAttribute: for an option that does not exist.
        ArgumentError: for a value of another kind than the option or argument takes, and for what is not supported.

    Examples:
        >>> T = relax.transform
        >>> drop = T.module_pass(lambda module: pullback.IRModule(), opt_level=3, name="Drop")
        >>> a = relax.Var("a", R.Tensor((3,), "float32"))
        >>> module = pullback.IRModule({"main": relax.Function([a], a + a)})
        >>> list(T.Sequential([drop])(module))
        ['main']
        >>> with T.PassContext(opt_level=3):
        ...     left = list(T.Sequential([drop])(module))
        >>> left
        []
    """

    _current: ClassVar[ContextVar[PassContext | None]] = ContextVar("pullback_pass_context", default=None)
    _outermost: ClassVar[PassContext | None] = None

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Iterable[str] | None = None,
        disabled_pass: Iterable[str] | None = None,
        instruments: Iterable[Any] | None = None,
        config: Mapping[str, Any] | None = None,
        trace_stack: Any = None,
        make_traceable: Any = None,
        num_evals: int = 0,
        tuning_api_database: Any = None,
    ) -> None:
        if trace_stack or make_traceable or num_evals or tuning_api_database is not None:
            raise ArgumentError("passes are not traced here", hint="leave out trace_stack and what belongs to it")
        self.opt_level = whole("opt_level", opt_level)
        self.required_pass = _names("required_pass", required_pass)
        self.disabled_pass = _names("disabled_pass", disabled_pass)
        self.instruments = _instruments(instruments)
        self.config = _options({} if config is None else mapping("config", config))
        self._tokens: list[Token[PassContext | None]] = []

    @staticmethod
    def current() -> PassContext:
        """The innermost context that is entered; outside of all, one of level 2."""
        found = PassContext._current.get()
        if found is None:
            if PassContext._outermost is None:
                PassContext._outermost = PassContext()
            found = PassContext._outermost
        return found

    @staticmethod
    def list_configs() -> dict[str, dict[str, str]]:
        """The options that ``config`` takes, with the type of each."""
        return {name: {"type": kind.__name__} for name, kind in OPTIONS.items()}

    @staticmethod
    def list_config_names() -> list[str]:
        return list(OPTIONS)

    def enabled(self, info: PassInfo) -> bool:
        """Whether a ``Sequential`` is to run the pass here."""
        if info.name in self.disabled_pass:
            return False
        return info.name in self.required_pass or self.opt_level >= info.opt_level

    def option(self, name: str, default: Any) -> Any:
        """The value of an option, or ``default``."""
        return self.config.get(name, default)

    def override_instruments(self, instruments: Iterable[Any] | None) -> None:
        """Put other instruments in place of those that watch: these leave the context, the others enter it."""
        found = _instruments(instruments)
        self._leave()
        self.instruments = found
        self._arrive()

    def before(self, module: Any, info: PassInfo) -> bool:
        """Tell the instruments that the pass is to run; False if one of them says that it should not."""
        if not self.instruments:
            return True
        if info.name not in self.required_pass:
            asked = [instrument.should_run(module, info) for instrument in self.instruments]
            if not all(asked):
                return False
        for instrument in self.instruments:
            instrument.run_before_pass(module, info)
        return True

    def after(self, module: Any, info: PassInfo) -> None:
        """Tell the instruments that the pass has run."""
        for instrument in self.instruments:
            instrument.run_after_pass(module, info)

    def _arrive(self) -> None:
        """The instruments enter. If one fails, those that have entered leave, and none watches."""
        entered: list[Any] = []
        try:
            for instrument in self.instruments:
                instrument.enter_pass_ctx()
                entered.append(instrument)
        except BaseException:
            self.instruments = []
            for instrument in entered:
                instrument.exit_pass_ctx()
            raise

    def _leave(self) -> None:
        try:
            for instrument in self.instruments:
                instrument.exit_pass_ctx()
        except BaseException:
            self.instruments = []
            raise

    def __enter__(self) -> PassContext:
        self._tokens.append(PassContext._current.set(self))
        try:
            self._arrive()
        except BaseException:
            PassContext._current.reset(self._tokens.pop())
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        PassContext._current.reset(self._tokens.pop())
        self._leave()

    def __repr__(self) -> str:
        return (
            f"PassContext(opt_level={self.opt_level}, required_pass={self.required_pass}, "
            f"disabled_pass={self.disabled_pass}, config={self.config})"
        )


def _names(what: str, given: Iterable[str] | None) -> list[str]:
    found = sequence(what, [] if given is None else given, 'write ["FoldConstant"]')
    for name in found:
        if not isinstance(name, str):
            raise ArgumentError(f"{what} has names of passes, got {type(name).__name__}", hint='such as "FoldConstant"')
    return list(found)


def _instruments(given: Iterable[Any] | None) -> list[Any]:
    found = sequence("instruments", [] if given is None else given)
    for instrument in found:
        if not hasattr(instrument, "run_before_pass"):
            hint = "classes decorated with @pass_instrument make instruments"
            raise ArgumentError(f"{type(instrument).__name__} is no instrument of passes", hint=hint)
    return list(found)


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in given.items():
        if name not in OPTIONS:
            hint = f"the options are {', '.join(OPTIONS) or 'none'}"
            raise NoAttribute(f"Invalid config option {name!r}{suggestion(str(name), OPTIONS)}", hint=hint)
        kind = OPTIONS[name]
        if not isinstance(value, kind) and not (kind is bool and value in (0, 1)):
            raise ArgumentError(f"config option {name!r} must be a {kind.__name__}, got {value!r:.80}")
    return dict(given)
