# The predictions have the shape (4, 2).
from pullback.relax import TensorStructInfo
from pullback.relax.training import loss, optimizer, SetupTrainer
from tests.errors.models import linear


def mistake():
    info = TensorStructInfo((4, 3), "float32")
    SetupTrainer(loss.MSELoss(), optimizer.SGD(0.1), [info, info])(linear)
