# The trainer needs a virtual machine.
from pullback.relax import TensorStructInfo
from pullback.relax.training import loss, optimizer, SetupTrainer, Trainer
from tests.errors.models import linear


def mistake():
    info = TensorStructInfo((4, 2), "float32")
    Trainer(SetupTrainer(loss.MSELoss(), optimizer.SGD(0.1), [info, info])(linear), None)
