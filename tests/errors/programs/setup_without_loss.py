# The loss is missing.
from pullback.relax import TensorStructInfo
from pullback.relax.training import optimizer, SetupTrainer
from tests.errors.models import linear


def mistake():
    info = TensorStructInfo((4, 2), "float32")
    SetupTrainer(None, optimizer.SGD(0.1), [info, info])(linear)
