"""Metadata as the reference system writes it, in the texts that people have: constants, and variables of sizes.

It is a graph of nodes with a ``type_key`` each, whose root is a map from kinds to arrays, and tensors beside it in
base64: a magic number, 8 bytes that mean nothing, the device (two int32), rank (int32), type (code and bits, a byte
each, and lanes, a uint16), sizes (int64), the number of bytes (int64), and the bytes, all little-endian.
"""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass
from typing import Any

from pullback import tir
from pullback.ir.errors import ScriptError, UserError
from pullback.relay.expr import Constant
from pullback.relay.text.arrays import from_bytes
from pullback.runtime.tensor import Tensor

_MAGIC = 0xDD5E40F096B4A13F
_HEAD = struct.Struct("<QQiiiBBH")
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat"}
_HINT = "astext of the reference writes this section with show_meta_data=True"


@dataclass(frozen=True)
class NotRead:
    """An object of a kind that is not read: an error where the text uses it."""

    kind: str


def table(held: dict[str, Any]) -> dict[str, list[Any]]:
    """Objects by kind."""
    nodes, arrays = held.get("nodes"), held.get("b64ndarrays", [])
    if not isinstance(nodes, list) or not isinstance(arrays, list):
        raise ScriptError("the reference's metadata has lists of nodes and of arrays", hint=_HINT)
    root = _node(nodes, held.get("root"), "Map")
    keys, places = root.get("keys"), root.get("data")
    if not isinstance(keys, list) or not isinstance(places, list) or len(keys) != len(places):
        raise ScriptError("the root of the reference's metadata has a key for each of its lists", hint=_HINT)
    found = {}
    for key, place in zip(keys, places, strict=True):
        entries = _node(nodes, place, "Array").get("data")
        if not isinstance(key, str) or not isinstance(entries, list):
            raise ScriptError("the reference's metadata has lists by kind", hint=_HINT)
        found[key] = [_object(_node(nodes, entry), arrays) for entry in entries]
    return found


def _node(nodes: list[Any], index: Any, kind: str | None = None) -> dict[str, Any]:
    if type(index) is not int or not 0 <= index < len(nodes) or not isinstance(nodes[index], dict):
        raise ScriptError(f"the reference's metadata has no node {index!r:.20}", hint=_HINT)
    if kind is not None and nodes[index].get("type_key") != kind:
        found = nodes[index].get("type_key")
        raise ScriptError(f"node {index} of the reference's metadata is no {kind}: {found!r:.40}", hint=_HINT)
    return nodes[index]


def _object(node: dict[str, Any], arrays: list[Any]) -> Any:
    kind, attrs = node.get("type_key"), node.get("attrs")
    attrs = attrs if isinstance(attrs, dict) else {}
    if kind == "relay.Constant":
        place = attrs.get("data")
        if not isinstance(place, str) or not place.isdecimal() or int(place) >= len(arrays):
            raise ScriptError(f"the reference's metadata has no array {place!r:.20}", hint=_HINT)
        return Constant(_tensor(arrays[int(place)]))
    if kind in ("tir.SizeVar", "tir.Var") and isinstance(attrs.get("name"), str):
        try:
            return tir.Var(attrs["name"], attrs.get("dtype", "int32"))
        except UserError as error:
            raise ScriptError(error.message, hint=_HINT) from None
    return NotRead(str(kind))


def _tensor(text: Any) -> Tensor:
    try:
        raw = base64.b64decode(text, validate=True)
        magic, _, _, _, rank, code, bits, lanes = _HEAD.unpack_from(raw)
        sizes = struct.unpack_from(f"<{rank}q", raw, _HEAD.size) if 0 <= rank <= 32 else None
        count = struct.unpack_from("<q", raw, _HEAD.size + 8 * rank)[0] if sizes is not None else 0
    except (binascii.Error, ValueError, TypeError, struct.error) as error:
        raise ScriptError(f"an array of the reference's metadata is damaged: {error}", hint=_HINT) from None
    if magic != _MAGIC or sizes is None:
        raise ScriptError("an array of the reference's metadata is damaged: it does not begin like one", hint=_HINT)
    dtype = "bool" if (code, bits) == (1, 1) else f"{_KINDS.get(code, f'type {code} of ')}{bits}"
    data = raw[_HEAD.size + 8 * rank + 8 :]
    if lanes != 1 or len(data) != count:
        raise ScriptError(f"an array of the reference's metadata has {lanes} lanes and {len(data)} bytes", hint=_HINT)
    return from_bytes(dtype, list(sizes), data)
