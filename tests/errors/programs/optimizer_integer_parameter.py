# An integer cannot be optimized.
from pullback.relax import TensorStructInfo, Var
from pullback.relax.training import optimizer


def mistake():
    optimizer.Adam(0.1).init([Var("n", TensorStructInfo((3,), "int64"))])
