# There is one class index for each of four rows.
from pullback.relax import TensorStructInfo
from pullback.relax.training import loss, optimizer, SetupTrainer
from tests.errors.models import linear


def mistake():
    predictions, targets = TensorStructInfo((4, 2), "float32"), TensorStructInfo((5,), "int64")
    SetupTrainer(loss.CrossEntropyLoss(), optimizer.SGD(0.1), [predictions, targets])(linear)
