"""A place in the tokens of a text, and how what stands there is taken."""

from __future__ import annotations

from typing import NoReturn

from pullback.ir.errors import ScriptError
from pullback.ir.node import Span
from pullback.relay.text.source import Mistakes, Source
from pullback.relay.text.tokens import Token, tokenize


class Cursor:
    """Tokens from left to right. What does not fit raises a ScriptError; what can be understood nevertheless is only
    reported (:meth:`mistake`), so that one look at a text finds all mistakes."""

    def __init__(self, text: str, name: str) -> None:
        self.source, self.mistakes = Source(text, name), Mistakes()
        self.tokens = tokenize(self.source, self.mistakes)
        self.position = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.position]

    def after(self, count: int = 1) -> Token:
        """The token ``count`` places behind the next one."""
        return self.tokens[min(self.position + count, len(self.tokens) - 1)]

    def take(self) -> Token:
        """The next token, passed."""
        token = self.tokens[self.position]
        if token.kind != "end":
            self.position += 1
        return token

    def at(self, *texts: str) -> bool:
        """Whether the next token is one of these marks or words."""
        token = self.tokens[self.position]
        return token.text in texts and token.kind in ("mark", "word", "name")

    def accept(self, text: str) -> bool:
        """Pass this mark or word if it stands here."""
        if self.at(text):
            self.position += 1
            return True
        return False

    def expect(self, text: str, where: str, hint: str | None = None) -> Token:
        """Pass this mark or word, which has to stand here."""
        if not self.at(text):
            self.fail(f"expected `{text}` {where}, found {self.token}", hint=hint)
        return self.take()

    def expect_kind(self, kind: str, what: str, hint: str | None = None) -> Token:
        """Pass a token of this kind, which has to stand here."""
        if self.token.kind != kind:
            self.fail(f"expected {what}, found {self.token}", hint=hint)
        return self.take()

    def span(self, start: Token, end: Token | None = None) -> Span:
        """From one token to another; by default to the last one that was passed."""
        last = end or self.tokens[max(0, self.position - 1)]
        return self.source.span(start.start, max(start.end, last.end))

    def fail(self, message: str, token: Token | None = None, hint: str | None = None) -> NoReturn:
        """Raise a mistake after which the surrounding definition cannot be read on."""
        at = token or self.token
        raise ScriptError(message, span=self.source.span(at.start, at.end), hint=hint)

    def mistake(self, message: str, token: Token, hint: str | None = None, end: Token | None = None) -> None:
        """Report a mistake, and go on."""
        self.mistakes.add(ScriptError(message, span=self.span(token, end or token), hint=hint))
