# A function of a module has a name: the empty one ended the process once.
import pullback
from pullback.ir import IRModule
from tests.errors.models import linear


def mistake():
    pullback.compile(IRModule({"": linear["backbone"]}))
