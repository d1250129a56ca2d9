"""Programs of relay as JSON: a list of nodes, each after those that it is made of, so that a shared one is there once.

    {"format": "pullback.relay", "version": 1, "nodes": [{"kind": "TensorType", "shape": [3], "dtype": "float32"}, …],
     "root": {"node": 7}}

In a node, ``{"node": i}`` is the node at ``i``, ``{"attrs": {…}}`` a mapping, ``{"float": "inf"}`` a float that JSON
has no number for, and ``{"dtype": …, "shape": …, "data": …}`` a tensor, its bytes (little-endian) in base64. The
metadata of relay text is the same, with a table of lists of objects instead of a root.

What is read is not trusted: each field is checked before a node is made of it.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pullback import tir
from pullback.ir.depth import deep
from pullback.ir.errors import NameNotFound, PullbackError, ScriptError, UserError
from pullback.ir.module import IRModule
from pullback.ir.node import Node, Span
from pullback.ir.op import Op
from pullback.relay import adt, ty
from pullback.relay import expr as relay
from pullback.relay.attrs import Attrs
from pullback.relay.op import registry
from pullback.relay.text import reference_metadata
from pullback.relay.text.arrays import from_bytes, to_bytes
from pullback.runtime.tensor import Tensor, tensor

FORMAT, FORMAT_VERSION = "pullback.relay", 1
_HINT = "save_json writes such text"


# What may stand in a field: a name for messages, and whether a value does.

Check = tuple[str, Callable[[Any], bool]]


def _a(*kinds: type) -> Check:
    return " or ".join(k.__name__ for k in kinds), lambda v: isinstance(v, kinds)


def _optional(check: Check) -> Check:
    return f"{check[0]} or null", lambda v: v is None or check[1](v)


def _list(check: Check) -> Check:
    return f"a list of {check[0]}", lambda v: isinstance(v, tuple) and all(check[1](x) for x in v)


_TEXT: Check = ("a string", lambda v: isinstance(v, str))
_WHOLE: Check = ("a whole number", lambda v: type(v) is int)
_BOOL: Check = ("true or false", lambda v: isinstance(v, bool))
_VALUE: Check = ("an expression", lambda v: isinstance(v, (relay.Expr, registry.Op)) and not isinstance(v, ty.Type))
_TYPE = _a(ty.Type)
_SIZE: Check = ("a size", lambda v: type(v) is int or isinstance(v, (ty.Any, tir.PrimExpr)))
_KIND: Check = ("a kind of type", lambda v: type(v) is int and v in set(ty.TypeKind))
_NAME: Check = ("a string or null", lambda v: v is None or isinstance(v, str))

_FIELDS: dict[type, dict[str, Check]] = {
    relay.Constant: {"data": _a(Tensor)},
    relay.Var: {"name": _TEXT, "type_annotation": _optional(_TYPE)},
    relay.GlobalVar: {"name": _TEXT},
    relay.Tuple: {"fields": _list(_VALUE)},
    relay.TupleGetItem: {"tuple_value": _VALUE, "index": _WHOLE},
    relay.Call: {"op": _VALUE, "args": _list(_VALUE), "attrs": _a(Attrs), "type_args": _list(_TYPE)},
    relay.Let: {"variable": _a(relay.Var), "value": _VALUE, "body": _VALUE},
    relay.If: {"cond": _VALUE, "true_branch": _VALUE, "false_branch": _VALUE},
    relay.Function: {
        "params": _list(_a(relay.Var)), "body": _VALUE, "ret_type": _optional(_TYPE),
        "type_params": _list(_a(ty.TypeVar)), "attrs": _a(Attrs),
    },
    relay.RefCreate: {"value": _VALUE},
    relay.RefRead: {"ref": _VALUE},
    relay.RefWrite: {"ref": _VALUE, "value": _VALUE},
    adt.Constructor: {"name": _TEXT, "inputs": _list(_TYPE), "belong_to": _a(ty.GlobalTypeVar), "tag": _WHOLE},
    adt.TypeData: {
        "header": _a(ty.GlobalTypeVar), "type_vars": _list(_a(ty.TypeVar)), "constructors": _list(_a(adt.Constructor)),
    },
    adt.PatternWildcard: {},
    adt.PatternVar: {"var": _a(relay.Var)},
    adt.PatternConstructor: {"constructor": _a(adt.Constructor), "patterns": _list(_a(adt.Pattern))},
    adt.PatternTuple: {"patterns": _list(_a(adt.Pattern))},
    adt.Clause: {"lhs": _a(adt.Pattern), "rhs": _VALUE},
    adt.Match: {"data": _VALUE, "clauses": _list(_a(adt.Clause)), "complete": _BOOL},
    ty.Any: {},
    ty.TensorType: {"shape": _list(_SIZE), "dtype": _TEXT},
    ty.TupleType: {"fields": _list(_TYPE)},
    ty.TypeVar: {"name": _TEXT, "kind": _KIND},
    ty.GlobalTypeVar: {"name": _TEXT, "kind": _KIND},
    ty.TypeCall: {"func": _TYPE, "args": _list(_TYPE)},
    ty.TypeRelation: {
        "func": _TEXT, "args": _list(_TYPE), "num_inputs": _WHOLE, "attrs": _optional(_a(Attrs)),
    },
    ty.FuncType: {
        "arg_types": _list(_TYPE), "ret_type": _TYPE, "type_params": _list(_a(ty.TypeVar)),
        "type_constraints": _list(_a(ty.TypeRelation)),
    },
    ty.RefType: {"value": _TYPE},
    ty.IncompleteType: {"kind": _KIND, "name": _TEXT},
    tir.Var: {"name": _TEXT, "type": _TEXT},
    tir.IntImm: {"value": _WHOLE, "type": _TEXT},
    tir.FloatImm: {"value": ("a float", lambda v: isinstance(v, float)), "type": _TEXT},
    tir.expr.Binary: {"kind": _TEXT, "a": _a(tir.PrimExpr), "b": _a(tir.PrimExpr)},
    tir.expr.Cast: {"value": _a(tir.PrimExpr), "type": _TEXT},
    tir.expr.Select: {"condition": _a(tir.PrimExpr), "a": _a(tir.PrimExpr), "b": _a(tir.PrimExpr)},
}  # fmt: skip
_MODULE = "IRModule"
_OPERATOR = "Op"
_NAMES = {kind.__name__ if kind.__module__ != "pullback.tir.expr" else f"tir.{kind.__name__}": kind for kind in _FIELDS}
_NAME_OF = {kind: name for name, kind in _NAMES.items()}


@deep
def save_json(node: Any) -> str:
    """A module, expression, type or pattern of relay as JSON; spans and inferred types are kept.

    Raises UserError for what is no program of relay.
    """
    writer = _Writer()
    root = writer.value(node)
    return json.dumps({"format": FORMAT, "version": FORMAT_VERSION, "nodes": writer.nodes, "root": root})


@deep
def load_json(text: str) -> Any:
    """What :func:`save_json` wrote, structurally equal.

    Raises ScriptError for text that it did not write; operators that this process does not know are named.
    """
    held = _checked(_object(text))
    if held.get("format") != FORMAT:
        raise ScriptError(f"this is no program of relay: its format is {held.get('format')!r:.40}", hint=_HINT)
    return _Reader(held).value(held.get("root"), "root")


def metadata_text(table: Mapping[str, list[Any]], attrs: Mapping[str, Any]) -> str:
    """The metadata of a text: objects by kind, and the module's attributes."""
    writer = _Writer()
    meta = {key: [writer.value(v) for v in values] for key, values in table.items()}
    held: dict[str, Any] = {"version": FORMAT_VERSION, "nodes": writer.nodes, "meta": meta}
    if attrs:
        held["attrs"] = writer.value(Attrs(attrs))
    return json.dumps(held, indent=1)


def metadata(text: str) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Objects by kind and module attributes of what :func:`metadata_text` wrote, or the reference."""
    held = _object(text)
    if "root" in held and "format" not in held:
        return reference_metadata.table(held), {}
    reader = _Reader(_checked(held))
    table = held.get("meta", {})
    if not isinstance(table, dict) or not all(isinstance(v, list) for v in table.values()):
        raise ScriptError("the metadata's `meta` must be lists by kind", hint="astext writes this section")
    attrs = reader.value(held["attrs"], "attrs") if "attrs" in held else Attrs()
    if not isinstance(attrs, Attrs):
        raise ScriptError("the metadata's `attrs` must be a mapping", hint="astext writes this section")
    found = {key: [reader.value(v, f"meta[{key}]") for v in values] for key, values in table.items()}
    return found, dict(attrs)


class _Writer:
    """Collects nodes; :meth:`value` gives what stands for a value."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.index: dict[int, int] = {}
        self.alive: list[Any] = []  # what ``index`` knows by its address

    def value(self, value: Any) -> Any:
        """What stands for the value, after the nodes in it are collected: without recursion, as programs are deep."""
        pending = [(value, False)]
        while pending:
            node, ready = pending.pop()
            if not _is_node(node) or id(node) in self.index:
                if isinstance(node, (tuple, list)):
                    pending.extend((v, False) for v in node)
                elif isinstance(node, Mapping):
                    pending.extend((v, False) for v in node.values())
                continue
            parts = self.parts(node)
            if ready:
                self.index[id(node)] = len(self.nodes)
                self.alive.append(node)
                self.nodes.append({k: self.plain(v) for k, v in parts.items()})
            else:
                pending.append((node, True))
                pending.extend((v, False) for v in parts.values())
        return self.plain(value)

    def parts(self, node: Any) -> dict[str, Any]:
        """The fields of a node, and what is known of it beside them."""
        if isinstance(node, IRModule):
            types = [node.type_definitions[header] for header in node.type_definitions]
            attrs = Attrs(node.attrs)
            return {"kind": _MODULE, "functions": dict(node.functions), "types": types, "attrs": attrs}
        if isinstance(node, Op):
            if not isinstance(node, registry.Op):
                raise UserError(f"{node.name} is an operator of the graph IR, and no part of relay's programs")
            return {"kind": _OPERATOR, "name": node.name}
        kind = type(node)
        if kind not in _FIELDS:
            hint = "save_json saves relay's modules, expressions and types; script() is the text of other programs"
            raise UserError(f"{kind.__name__} cannot be saved: it is no part of relay's programs", hint=hint)
        found: dict[str, Any] = {"kind": _NAME_OF[kind]}
        found |= {_field(name): getattr(node, name) for name in _FIELDS[kind]}
        if getattr(node, "checked_type_", None) is not None:
            found["checked_type"] = node.checked_type_
        if node.span is not None:
            span = node.span
            found["span"] = [span.file, span.line, span.column, span.end_column, span.text]
        return found

    def plain(self, value: Any) -> Any:
        """A value whose nodes are collected."""
        if _is_node(value):
            return {"node": self.index[id(value)]}
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": repr(value)}
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, int):
            return int(value)
        if isinstance(value, (tuple, list)):
            return [self.plain(v) for v in value]
        if isinstance(value, Mapping):
            return {"attrs": {str(k): self.plain(v) for k, v in value.items()}}
        if isinstance(value, (Tensor, np.ndarray)):
            return _tensor_text(value if isinstance(value, Tensor) else tensor(value))
        raise UserError(
            f"{type(value).__name__} cannot be saved", hint="attributes are numbers, strings and lists of them"
        )


def _is_node(value: Any) -> bool:
    return isinstance(value, (IRModule, Node))


def _field(name: str) -> str:
    return "kind_" if name == "kind" else name  # `kind` is the node's own


def _tensor_text(value: Tensor) -> dict[str, Any]:
    data = base64.b64encode(to_bytes(value)).decode()
    return {"dtype": value.dtype, "shape": list(value.shape), "data": data}


def _object(text: Any) -> dict[str, Any]:
    if not isinstance(text, str):
        raise ScriptError(f"the JSON of a program is a string, got {type(text).__name__}", hint=_HINT)
    try:
        held = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ScriptError(f"this is no JSON: {error}", hint=_HINT) from None
    if not isinstance(held, dict):
        raise ScriptError("the JSON of a program is an object with a list of nodes", hint=_HINT)
    return held


def _checked(held: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(held.get("nodes"), list):
        raise ScriptError("the JSON of a program is an object with a list of nodes", hint=_HINT)
    if held.get("version") != FORMAT_VERSION:
        message = f"this is version {held.get('version')!r:.40} of the format, not {FORMAT_VERSION}"
        raise ScriptError(message, hint="save the program again with this version of pullback")
    return held


class _Reader:
    """Makes the nodes, in order: each may use those before it."""

    def __init__(self, held: dict[str, Any]) -> None:
        self.made: list[Any] = []
        for i, fields in enumerate(held["nodes"]):
            try:
                self.made.append(self.node(fields))
            except (PullbackError, TypeError, ValueError, OverflowError) as error:
                kind = fields.get("kind") if isinstance(fields, dict) else fields
                message = getattr(error, "message", str(error))
                hint = getattr(error, "hint", None) or _HINT
                raise ScriptError(f"node {i} ({kind!r:.40}): {message}", hint=hint) from None

    def node(self, fields: Any) -> Any:
        """One node of its fields."""
        if not isinstance(fields, dict):
            raise ScriptError("a node is an object")
        kind = fields.get("kind")
        if kind == _MODULE:
            return self.module(fields)
        if kind == _OPERATOR:
            return self.operator(fields.get("name"))
        class_ = _NAMES.get(kind) if isinstance(kind, str) else None
        if class_ is None:
            raise ScriptError("there is no such kind of node")
        values = {}
        for name, (what, fits) in _FIELDS[class_].items():
            if _field(name) not in fields:
                raise ScriptError(f"the field {name!r} is missing")
            values[name] = self.value(fields[_field(name)], name)
            if not fits(values[name]):
                raise ScriptError(f"the field {name!r} must be {what}")
        unknown = fields.keys() - {"kind", "checked_type", "span", *map(_field, values)}
        if unknown:
            raise ScriptError(f"there is no field {min(unknown)!r:.40}")
        if "kind" in values:
            values["kind"] = values["kind"] if class_ is tir.expr.Binary else ty.TypeKind(values["kind"])
        tag = values.pop("tag", None) if class_ is adt.Constructor else None
        node = class_(**values, span=self.span(fields.get("span")), **({} if tag is None else {"tag": tag}))
        if "checked_type" in fields:
            type_ = self.value(fields["checked_type"], "checked_type")
            if not isinstance(type_, ty.Type) or not isinstance(node, relay.Expr):
                raise ScriptError("the field 'checked_type' must be a type, and the node an expression")
            relay.set_checked_type(node, type_)
        return node

    def module(self, fields: dict[str, Any]) -> IRModule:
        functions = self.value(fields.get("functions"), "functions")
        types, attrs = self.value(fields.get("types"), "types"), self.value(fields.get("attrs"), "attrs")
        ok = isinstance(functions, Attrs) and isinstance(types, tuple) and isinstance(attrs, Attrs)
        if not ok or not all(isinstance(f, relay.Function) for f in functions.values()):
            raise ScriptError("a module has functions by name, a list of data types, and attributes")
        if not all(isinstance(t, adt.TypeData) for t in types):
            raise ScriptError("the data types of a module must be TypeData")
        return IRModule(dict(functions), dict(attrs), {t.header: t for t in types})

    def operator(self, name: Any) -> Any:
        if not isinstance(name, str):
            raise ScriptError("an operator has a name")
        try:
            return registry.get(name)
        except NameNotFound as error:
            raise ScriptError(error.message, hint="import what registers the operator before loading") from None

    def span(self, parts: Any) -> Span | None:
        if parts is None:
            return None
        ok = isinstance(parts, list) and len(parts) == 5 and isinstance(parts[0], str)
        if not ok or not all(type(p) is int for p in parts[1:3]) or not isinstance(parts[4], (str, type(None))):
            raise ScriptError("a span is a file, a line, two columns and a text")
        if parts[3] is not None and type(parts[3]) is not int:
            raise ScriptError("a span's columns are whole numbers")
        return Span(*parts)

    def value(self, held: Any, name: str) -> Any:
        """What stands for a value."""
        if held is None or isinstance(held, (bool, int, float, str)):
            return held
        if isinstance(held, list):
            return tuple(self.value(v, name) for v in held)
        if held.keys() == {"node"}:
            index = held["node"]
            if type(index) is not int or not 0 <= index < len(self.made):
                raise ScriptError(f"{name}: there is no node {index!r:.20} before this one", hint=_HINT)
            return self.made[index]
        if held.keys() == {"attrs"} and isinstance(held["attrs"], dict):
            return Attrs({k: self.value(v, name) for k, v in held["attrs"].items()})
        if held.keys() == {"float"} and held["float"] in ("inf", "-inf", "nan"):
            return float(held["float"])
        if held.keys() == {"dtype", "shape", "data"}:
            return _tensor(held)
        raise ScriptError(f"{name}: {sorted(held)!r:.60} stands for no value", hint=_HINT)


def _tensor(held: dict[str, Any]) -> Tensor:
    if not isinstance(held["data"], str):
        raise ScriptError("a tensor has its bytes in base64")
    try:
        data = base64.b64decode(held["data"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise ScriptError(f"the bytes of a tensor are no base64: {error}") from None
    return from_bytes(held["dtype"], held["shape"], data)
