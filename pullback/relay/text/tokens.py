"""From relay text to tokens.

    %x  %aten::relu_0.weight  %"any name"      a variable            @main  @"any name"     a function of the module
    %0                                         a value of a graph    nn.dense  Cons  fn     a name or a word
    1  2i8  3i64  4u8  True                    a whole number        1f  1.5f16  2f64  1bf16  inff  nanf64   a float
    "text\\n"                                  a string              meta[relay.Constant][0]

``//`` and ``/* … */`` are comments; the latter nest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pullback.ir.errors import ScriptError
from pullback.relay.text.literals import unescaped
from pullback.relay.text.source import Mistakes, Source

# A period belongs to a name where a letter follows, perhaps after numbers: %layers.0.weight, but %x.0 is a field of %x.
_NAME = r"[A-Za-z_](?:\w|/(?=\w)|::(?=\w)|(?:\.\d+)*\.(?=[A-Za-z_]))*"
_STRING = r'"(?:[^"\\]|\\.)*"'
_PATTERN = re.compile(
    rf"""
    (?P<space>\s+|//[^\n]*)
    |(?P<comment>/\*)
    |(?P<local>%(?:{_NAME}|{_STRING}))
    |(?P<graph>%\d+)
    |(?P<global>@(?:{_NAME}|{_STRING}))
    |(?P<meta>meta\[\s*(?P<meta_key>[^\[\]]+?)\s*\]\[\s*(?P<meta_index>\d+)\s*\])
    |(?P<version>\#\[\s*version\s*=\s*"(?P<version_number>[^"]*)"\s*\]|v\d+\.\d+\.\d+)
    |(?P<metadata>\#\[\s*metadata\s*\])
    |(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?\w*)
    |(?P<string>{_STRING})
    |(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
    |(?P<mark>->|=>|==|!=|<=|>=|[()\[\]{{}}<>,;:.=+\-*/?!])
    """,
    re.VERBOSE | re.ASCII | re.DOTALL,
)
_PLAIN_NAME = re.compile(_NAME, re.ASCII)
_INDEX = re.compile(r"\d+", re.ASCII)
_SPECIAL_FLOAT = re.compile(r"(?:inf|nan)(?:f(?:16|32|64)?|bf16)", re.ASCII)
_COMMENT = re.compile(r"/\*|\*/")
_BEGINS = ("let", "fn", "def", "if", "else", "type", "match", "extern", "free_var", "ref", "ref_read", "ref_write")
WORDS = frozenset((*_BEGINS, "True", "False"))  # no names of operators or constructors


@dataclass(slots=True)
class Token:
    """``kind`` is one of the pattern's, ``end`` at the end; ``value`` is what a name or string stands for."""

    kind: str
    text: str
    start: int
    end: int
    value: Any = None

    def __str__(self) -> str:
        return "the end of the text" if self.kind == "end" else f"`{self.text}`" if len(self.text) < 40 else self.kind


def is_plain(name: str) -> bool:
    """Whether a variable's name needs no quotes."""
    return _PLAIN_NAME.fullmatch(name) is not None


def tokenize(source: Source, mistakes: Mistakes) -> list[Token]:
    """The tokens without spaces and comments, and an ``end``. What is no token is reported, and ``unknown``."""
    text, at = source.text, 0
    tokens: list[Token] = []
    while at < len(text):
        if tokens and tokens[-1].text == "." and (index := _INDEX.match(text, at)):
            tokens.append(Token("number", index[0], at, index.end()))
            at = index.end()
            continue
        found = _PATTERN.match(text, at)
        if found is None:
            start, at = at, _unknown(source, mistakes, at)
            tokens.append(Token("unknown", text[start:at], start, at))
            continue
        kind, start, at = str(found.lastgroup), at, found.end()
        if kind == "comment":
            at = _after_comment(source, mistakes, start)
        elif kind == "metadata":
            tokens.append(Token(kind, found[0], start, len(text), text[at:]))
            at = len(text)
        elif kind != "space":
            try:
                tokens.append(_token(kind, found, start))
            except ScriptError as error:
                mistakes.add(ScriptError(error.message, span=source.span(start, at), hint=error.hint))
                tokens.append(Token(kind, found[0], start, at, ""))
    end = tokens[-1].end if tokens else 0
    tokens.append(Token("end", "", end, end))
    return tokens


def _token(kind: str, found: re.Match[str], start: int) -> Token:
    text, end = found[0], found.end()
    if _SPECIAL_FLOAT.fullmatch(text):
        return Token("number", text, start, end)
    if kind in ("local", "global"):
        return Token(kind, text, start, end, unescaped(text[1:]) if text[1] == '"' else text[1:])
    if kind == "graph":
        return Token(kind, text, start, end, int(text[1:]))
    if kind == "string":
        return Token(kind, text, start, end, unescaped(text))
    if kind == "meta":
        return Token(kind, text, start, end, (found["meta_key"], int(found["meta_index"])))
    if kind == "version":
        return Token(kind, text, start, end, found["version_number"] or text[1:])
    return Token("word" if text in WORDS else kind, text, start, end, text)


def _after_comment(source: Source, mistakes: Mistakes, start: int) -> int:
    depth, at = 1, start + 2
    while depth:
        found = _COMMENT.search(source.text, at)
        if found is None:
            message = "this comment has no end"
            mistakes.add(ScriptError(message, span=source.span(start, start + 2), hint="it ends with */"))
            return len(source.text)
        depth += 1 if found[0] == "/*" else -1
        at = found.end()
    return at


def _unknown(source: Source, mistakes: Mistakes, at: int) -> int:
    """Report what begins no token; returns where to go on."""
    character, end = source.text[at], at + 1
    line = source.text.find("\n", at)
    rest = len(source.text) if line < 0 else line
    if character == '"':
        message, hint, end = "this string has no end", 'it ends with "', rest
    elif character in "%@":
        message = f"`{character}` is no name"
        hint = '%x is a variable, %0 a value of a graph, @f a function; other names stand in quotes: %"a name"'
    elif character == "#":
        message, hint, end = "this is no section", '#[version = "0.0.5"] and #[metadata] are; // begins a comment', rest
    else:
        message, hint = f"`{character}` means nothing here", "names of variables begin with %, of functions with @"
    mistakes.add(ScriptError(message, span=source.span(at, end), hint=hint))
    return end
