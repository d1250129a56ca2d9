"""Layouts with blocks, such as ``NCHW4c``: what is computed in plain ones is so between two rearrangements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.relay.op.layout import layout_transform


def with_blocks(lower: Callable[..., Any], *layouts: str) -> Callable[..., Any]:
    """``lower`` for arguments in blocks too: ``layouts`` are the attributes that say the layouts of the arguments, and
    ``out_layout`` is the result's, where it is not empty."""

    def lowered(*args: Any, **attrs: Any) -> Any:
        given = [attrs[name] for name in layouts]
        out = attrs["out_layout"] or given[0]
        if all(map(str.isalpha, [*given, out])):
            return lower(*args, **attrs)
        changed = {name: _plain(layout) for name, layout in zip(layouts, given, strict=True)}
        changed["out_layout"] = _plain(attrs["out_layout"])
        plain = [_moved(arg, layout, _plain(layout)) for arg, layout in zip(args, given, strict=True)]
        return _moved(lower(*plain, **{**attrs, **changed}), _plain(out), out)

    return lowered


def _plain(layout: str) -> str:
    return "".join(letter for letter in layout if letter.isupper())


def _moved(x: Any, source: str, target: str) -> Any:
    return x if source == target else layout_transform(x, src_layout=source, dst_layout=target)
