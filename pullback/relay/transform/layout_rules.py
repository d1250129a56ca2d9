"""In which layouts operators take and give tensors: from the layouts in which their arguments come, old and new.

A rule ``rule(attrs, new, old, types)`` returns the layouts of the arguments, those of the results, and the attributes
for these; or None where it cannot say. ``new`` is None when it is asked about the program as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.relay.op.registry import Op, OpPattern
from pullback.relay.transform.layouts import Layout, is_plain, last, letters, parts, primal
from pullback.relay.ty import TensorType


@dataclass(frozen=True)
class Inferred:
    """The layouts of a call's arguments (those inside a tuple one by one) and results, and its attributes."""

    inputs: list[Layout]
    outputs: list[Layout]
    attrs: dict[str, Any]


Rule = Callable[[dict[str, Any], list[Layout] | None, list[Layout], list[TensorType]], Inferred | None]


def infer(op: Op, attrs: Mapping[str, Any], new: Any, old: list[Layout], types: list[TensorType]) -> Inferred | None:
    """What the operator's rule says, if it says everything."""
    rule = _RULES.get(op.name)
    if rule is None and op.pattern == OpPattern.ELEMWISE and len(old) == 1:
        rule = _any
    if rule is None and op.pattern == OpPattern.BROADCAST and tuple(op.signature.tensors) == ("lhs", "rhs"):
        rule = _broadcast
    if rule is None:
        return None
    found = rule(dict(attrs), new, old, types)
    known = found is not None and None not in found.inputs and None not in found.outputs
    return found if known else None


def _any(attrs: dict[str, Any], new: Any, old: list[Layout], types: list[TensorType]) -> Inferred | None:
    """Elementwise ops: whatever the first argument comes in."""
    found = new[0] if new is not None else next((layout for layout in old if layout is not None), None)
    return Inferred([found] * len(old), [found], attrs)


def _broadcast(attrs: dict[str, Any], new: Any, old: list[Layout], types: list[TensorType]) -> Inferred | None:
    """Elementwise ops of two tensors: in the layout of the one with more axes."""
    layouts = list(old if new is None else new)
    if layouts == [None, None]:
        return None
    if None in layouts:
        known = 0 if layouts[1] is None else 1
        if types[known].ndim < types[1 - known].ndim:
            return None
        layouts[1 - known] = last(layouts[known], types[1 - known].ndim)
        return Inferred(layouts, [layouts[known]], attrs)
    if "" in layouts:
        return Inferred(layouts, [layouts[1 if layouts[0] == "" else 0]], attrs)
    large = 0 if len(primal(layouts[0])) >= len(primal(layouts[1])) else 1
    if old[0] == old[1]:
        common = parts(layouts[large])
        start = len(common)
        while start and common[start - 1][-1].upper() in primal(layouts[1 - large]):
            start -= 1
        if sorted(primal("".join(common[start:]))) != sorted(primal(layouts[1 - large])):
            return None
        layouts[1 - large] = "".join(common[start:])
    else:
        layouts[1 - large] = layouts[large]
    return Inferred(layouts, [layouts[large]], attrs)


def _convolution(attrs: dict[str, Any], new: Any, old: list[Layout], types: list[TensorType]) -> Inferred | None:
    out = attrs["out_layout"] or attrs["data_layout"]
    return Inferred([attrs["data_layout"], attrs["kernel_layout"]], [out], attrs)


def _window(attrs: dict[str, Any], new: Any, old: list[Layout], types: list[TensorType]) -> Inferred | None:
    """Pools and resizing: in any order of the axes, unless the program says which it wants."""
    same = new is not None and sorted(primal(new[0])) == sorted(primal(attrs["layout"]))
    if same and not attrs.get("out_layout"):
        attrs = {**attrs, "layout": new[0]}
    return Inferred([attrs["layout"]], [attrs["layout"]], attrs)


def _moved(axis: int, new: Any, old: list[Layout], types: list[TensorType]) -> tuple[Layout, int | None]:
    """The layout of the first argument that has one, and where the axis is in it; None if it is cut into blocks."""
    axis %= types[0].ndim
    if new is None:
        found = next((layout for layout in old if layout is not None), None)
        return found, axis
    found = next((layout for layout in new if layout is not None), None)
    if found is None or old[0] is None or len(letters(old[0])) <= axis:
        return found, None
    letter = letters(old[0])[axis]
    return found, letters(found).index(letter) if letter in found and letter.lower() not in letters(found) else None


def _batch_norm(attrs: dict[str, Any], new: Any, old: list[Layout], types: list[TensorType]) -> Inferred | None:
    found, axis = _moved(attrs["axis"], new, old, types)
    if axis is None:
        return None
    return Inferred([found, "C", "C", "C", "C"], [found, "C", "C"], {**attrs, "axis": axis})


def _bias(attrs: dict[str, Any], new: Any, old: list[Layout], types: list[TensorType]) -> Inferred | None:
    found, axis = _moved(attrs["axis"], new, old, types)
    if axis is None or found is None:
        return None
    return Inferred([found, letters(found)[axis]], [found], {**attrs, "axis": axis})


def _norm(attrs: dict[str, Any], new: Any, old: list[Layout], types: list[TensorType]) -> Inferred | None:
    """Norms whose statistics are those of one example: its axis must stay the first one."""
    found, axis = _moved(attrs["axis"], new, old, types)
    if axis is None or found is None or (new is not None and (old[0] or "")[:1] != found[:1]):
        return None
    channel = letters(found)[axis]
    return Inferred([found, channel, channel], [found], {**attrs, "axis": axis})


def _along(attrs: dict[str, Any], new: Any, old: list[Layout], types: list[TensorType]) -> Inferred | None:
    """Ops along one axis of one tensor."""
    found, axis = _moved(attrs["axis"], new, old, types)
    return None if axis is None else Inferred([found], [found], {**attrs, "axis": axis})


def _concatenate(attrs: dict[str, Any], new: Any, old: list[Layout], types: list[TensorType]) -> Inferred | None:
    """Along blocks too: each tensor has whole ones."""
    found = next((layout for layout in (old if new is None else new) if layout is not None), None)
    axis = attrs["axis"] % types[0].ndim
    if new is not None and found is not None:
        if old[0] is None or len(letters(old[0])) <= axis or not letters(old[0])[axis].isupper():
            return None
        axis = letters(found).index(letters(old[0])[axis])
    return Inferred([found] * len(old), [found], {**attrs, "axis": axis})


def _split(attrs: dict[str, Any], new: Any, old: list[Layout], types: list[TensorType]) -> Inferred | None:
    found, axis = _moved(attrs["axis"], new, old, types)
    if axis is None:
        return None
    sections = attrs["indices_or_sections"]
    count = sections if isinstance(sections, int) else len(sections) + 1
    return Inferred([found], [found] * count, {**attrs, "axis": axis})


def _both_plain(new: Any, old: list[Layout]) -> bool:
    """Whether the axes are only in another order."""
    return old[0] is not None and is_plain(old[0]) and sorted(old[0]) == sorted(new[0])


def _same_axes(new: Any, old: list[Layout], rank: int) -> str | None:
    """The first argument's layout, where it was plain, and has the same axes now, some in blocks perhaps."""
    before = old[0]
    if before is None or not is_plain(before) or len(before) != rank:
        return None
    return before if new is None or sorted(primal(new[0])) == sorted(before) else None


def _reduce(attrs: dict[str, Any], new: Any, old: list[Layout], types: list[TensorType]) -> Inferred | None:
    """Blocks of an axis that is summed up are too; of one that is kept they are of size 1."""
    before = _same_axes(new, old, types[0].ndim)
    if before is None:
        return None
    layout = before if new is None else new[0]
    given = attrs["axis"]
    axes = range(types[0].ndim) if given is None else [a % types[0].ndim for a in _ints(given)]
    gone = {before[a] for a in axes}
    if attrs["exclude"]:
        gone = set(before) - gone
    out, new_axes = "", []
    for i, part in enumerate(parts(layout)):
        letter = part[-1]
        if letter.upper() not in gone:
            out += part
            continue
        new_axes.append(i)
        if attrs["keepdims"]:
            out += letter if letter.isupper() else f"1{letter}"
    if new is not None:
        attrs = {**attrs, "axis": tuple(new_axes), "exclude": False}
    return Inferred([layout], [out], attrs)


def _ints(value: Any) -> Sequence[int]:
    return (value,) if isinstance(value, int) else value


def _pad(attrs: dict[str, Any], new: Any, old: list[Layout], types: list[TensorType]) -> Inferred | None:
    """Of an axis in blocks, whole ones are added."""
    before = _same_axes(new, old, types[0].ndim)
    if before is None:
        return None
    layout = before if new is None else new[0]
    sizes = {part[-1].upper(): int(part[:-1]) for part in parts(layout) if part[-1].islower()}
    widths = []
    for letter in letters(layout):
        added = attrs["pad_width"][before.index(letter)] if letter.isupper() else (0, 0)
        if any(n % sizes.get(letter, 1) for n in added):
            return None
        widths.append(tuple(n // sizes.get(letter, 1) for n in added))
    return Inferred([layout, ""][: len(old)], [layout], {**attrs, "pad_width": tuple(widths)})


def _transpose(attrs: dict[str, Any], new: Any, old: list[Layout], types: list[TensorType]) -> Inferred | None:
    """The result stays as it was: the axes are taken from where they are now."""
    if old[0] is None or len(letters(old[0])) != types[0].ndim or not is_plain(old[0]):
        return None
    axes = attrs["axes"] or tuple(range(types[0].ndim))[::-1]
    out = "".join(old[0][axis] for axis in axes)
    if new is None:
        return Inferred([old[0]], [out], attrs)
    if not _both_plain(new, old):
        return None
    return Inferred([new[0]], [out], {**attrs, "axes": tuple(new[0].index(letter) for letter in out)})


def _squeeze(attrs: dict[str, Any], new: Any, old: list[Layout], types: list[TensorType]) -> Inferred | None:
    layout = old[0] if new is None else new[0]
    if layout is None or old[0] is None or (new is not None and not _both_plain(new, old)):
        return None
    sizes = types[0].shape
    given = attrs["axis"]
    axes = [i for i, s in enumerate(sizes) if s == 1] if given is None else [a % types[0].ndim for a in _ints(given)]
    gone = {old[0][a] for a in axes}
    out = "".join(letter for letter in layout if letter not in gone)
    return Inferred([layout], [out], {**attrs, "axis": tuple(i for i, c in enumerate(layout) if c in gone)})


def _strided_slice(attrs: dict[str, Any], new: Any, old: list[Layout], types: list[TensorType]) -> Inferred | None:
    """Without axes, begin and end are said of all of them, in their new order."""
    source = old[0]
    layout = source if new is None else new[0]
    if new is None:
        return Inferred([layout], [layout], attrs)
    if source is None or not _both_plain(new, old):
        return None
    if attrs["axes"]:
        moved = tuple(new[0].index(source[axis % types[0].ndim]) for axis in attrs["axes"])
        return Inferred([layout], [layout], {**attrs, "axes": moved})
    missing = types[0].ndim - len(attrs["begin"])
    ends = (-1,) * missing if attrs["slice_mode"] == "size" else types[0].shape[types[0].ndim - missing :]
    steps = (attrs["strides"] or (1,)) * (len(attrs["begin"]) if len(attrs["strides"] or (1,)) == 1 else 1)
    whole = {
        "begin": (*attrs["begin"], *(0,) * missing),
        "end": (*attrs["end"], *ends),
        "strides": (*steps, *(1,) * missing),
    }
    changed = {name: tuple(values[source.index(letter)] for letter in new[0]) for name, values in whole.items()}
    return Inferred([layout], [layout], {**attrs, **changed})


def _layout_transform(attrs: dict[str, Any], new: Any, old: list[Layout], types: list[TensorType]) -> Inferred | None:
    return Inferred([attrs["src_layout"]], [attrs["dst_layout"]], attrs)


def _dropout(attrs: dict[str, Any], new: Any, old: list[Layout], types: list[TensorType]) -> Inferred | None:
    found = old[0] if new is None else new[0]
    return Inferred([found], [found, found], attrs)


_RULES: dict[str, Rule] = {
    **{f"nn.conv{d}d{kind}": _convolution for d in (1, 2, 3) for kind in ("", "_transpose")},
    **{f"nn.{kind}_pool{d}d": _window for kind in ("max", "avg", "global_max", "global_avg") for d in (1, 2, 3)},
    **{f"nn.adaptive_{kind}_pool{d}d": _window for kind in ("max", "avg") for d in (1, 2, 3)},
    **dict.fromkeys(("nn.upsampling", "image.resize2d", "nn.depth_to_space", "nn.space_to_depth"), _window),
    **dict.fromkeys(("sum", "mean", "max", "min", "prod", "all", "any", "argmax", "argmin"), _reduce),
    **dict.fromkeys(("nn.softmax", "nn.log_softmax"), _along),
    **dict.fromkeys(("nn.bias_add", "nn.prelu"), _bias),
    **dict.fromkeys(("nn.layer_norm", "nn.instance_norm"), _norm),
    "nn.batch_norm": _batch_norm,
    "nn.dropout": _dropout,
    "nn.pad": _pad,
    "concatenate": _concatenate,
    "layout_transform": _layout_transform,
    "split": _split,
    "squeeze": _squeeze,
    "strided_slice": _strided_slice,
    "transpose": _transpose,
}
