"""relay's text, both ways, and its form as JSON.

``source`` and ``cursor`` are places in a text, ``tokens`` its words, ``literals`` its numbers and strings. Of the
reader, ``types``, ``attributes`` and ``expressions`` build on one another, and ``parser`` reads definitions.
``printer`` writes expressions and modules, ``type_printer`` types, and ``meta`` collects what text only refers to.
``saved`` is the JSON.
"""

from pullback.relay.text.parser import fromtext, parse, parse_expr
from pullback.relay.text.printer import astext, pretty_print
from pullback.relay.text.saved import load_json, save_json

__all__ = ["astext", "fromtext", "load_json", "parse", "parse_expr", "pretty_print", "save_json"]
