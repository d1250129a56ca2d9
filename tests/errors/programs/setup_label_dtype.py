# Class indices are integers.
from pullback.relax import TensorStructInfo
from pullback.relax.training import loss, optimizer, SetupTrainer
from tests.errors.models import linear


def mistake():
    predictions, targets = TensorStructInfo((4, 2), "float32"), TensorStructInfo((4,), "float32")
    SetupTrainer(loss.CrossEntropyLoss(), optimizer.SGD(0.1), [predictions, targets])(linear)
