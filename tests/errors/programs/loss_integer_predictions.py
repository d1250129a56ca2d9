# Predictions are floats.
from pullback.relax import TensorStructInfo
from pullback.relax.training import loss


def mistake():
    loss.CrossEntropyLoss()(TensorStructInfo((4, 2), "int64"), TensorStructInfo((4,), "int64"))
