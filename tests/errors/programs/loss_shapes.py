# The targets have another shape than the predictions.
from pullback.relax import TensorStructInfo
from pullback.relax.training import loss


def mistake():
    loss.L1Loss()(TensorStructInfo((4, 2), "float32"), TensorStructInfo((2, 4), "float32"))
