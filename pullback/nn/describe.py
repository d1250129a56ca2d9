"""What a module consists of: its text, its summary, and its tree for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from pullback.nn.export import export_layers
from pullback.relax.training.summary import Layer, Summary, summary_of_layers
from pullback.runtime.dtype import numpy_dtype

if TYPE_CHECKING:
    from pullback.nn.module import Module

OPEN = 8  # modules with at most so many inside are shown open, and the outermost


def text(module: Module) -> str:
    """A module with those inside, indented."""
    inner = [f"({name}): " + repr(child).replace("\n", "\n  ") for name, child in module.named_children()]
    own = module.extra_repr()
    if not inner:
        return f"{type(module).__name__}({own})"
    lines = ([own] if own else []) + inner
    return f"{type(module).__name__}(\n  " + "\n  ".join(lines) + "\n)"


def summary(module: Module, example: tuple[Any, ...], depth: int | None) -> Summary:
    """The summary of a module: see :meth:`Module.summary`."""
    if example:
        _, layers = export_layers(module, example)
    else:
        layers = [Layer(name, type(inner).__name__) for name, inner in module.named_modules()]
    held = [(name, p.size, not p.requires_grad) for name, p in module.named_parameters()]
    states = [(name, b) for name, b in module.named_buffers() if b.persistent]
    nbytes = {
        "parameters": sum(p.size * numpy_dtype(p.dtype).itemsize for p in module.parameters()),
        "states": sum(b.size * numpy_dtype(b.dtype).itemsize for _, b in states),
    }
    return summary_of_layers(
        type(module).__name__, layers, held, [(name, b.size) for name, b in states], nbytes, depth
    )  # fmt: skip


def html(module: Module) -> str:
    """The tree of a module, with the number of its parameters: what is inside folds."""
    style = "font-family:monospace;line-height:1.5"
    return f'<div style="{style}">{_html("", module, True)}</div>'


def _html(name: str, module: Module, is_outermost: bool = False) -> str:
    label = f"({escape(name)}): " if name else ""
    kind = f"<b>{escape(type(module).__name__)}</b>({escape(module.extra_repr())})"
    count = sum(p.size for p in module.parameters())
    frozen = sum(p.size for p in module.parameters() if not p.requires_grad)
    numbers = f"{count:,} parameters" + (f", {frozen:,} frozen" if frozen else "")
    line = f'{label}{kind}<span style="opacity:0.65"> {numbers if count else ""}</span>'
    inner = [_html(key, child) for key, child in module.named_children()]
    own = [
        f"<div>{escape(key)}: {v.kind} {escape(str(v.shape))} {escape(v.dtype)}</div>"
        for members in (module._parameters, module._buffers)
        for key, v in members.items()
        if v is not None
    ]
    if not inner and not own:
        return f"<div>{line}</div>"
    is_open = " open" if is_outermost or (inner and len(list(module.modules())) <= OPEN) else ""
    body = "".join([*own, *inner])
    return f'<details{is_open}><summary>{line}</summary><div style="margin-left:2em">{body}</div></details>'
