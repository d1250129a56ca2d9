# The same parameter is given twice.
from pullback.relax import TensorStructInfo, Var
from pullback.relax.training import optimizer


def mistake():
    w = Var("w", TensorStructInfo((3,), "float32"))
    optimizer.SGD(0.1).init([w, w])
