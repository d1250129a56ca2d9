# The optimizer is missing.
from pullback.relax import TensorStructInfo
from pullback.relax.training import loss, SetupTrainer
from tests.errors.models import linear


def mistake():
    info = TensorStructInfo((4, 2), "float32")
    SetupTrainer(loss.MSELoss(), None, [info, info])(linear)
