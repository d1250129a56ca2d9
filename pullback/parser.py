"""Where the reference has the parser of relay text."""

from pullback.relay.text import fromtext, parse, parse_expr

__all__ = ["fromtext", "parse", "parse_expr"]
