# The code is for another machine than this one.
import pullback
from pullback.target import Target
from tests.errors.models import linear, X


def mistake():
    other = "aarch64" if Target("llvm").arch == "x86_64" else "x86_64"
    pullback.compile(linear, f"llvm -mtriple={other}-linux-gnu")["backbone"](X, X, X)
