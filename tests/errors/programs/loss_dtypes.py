# The targets have another dtype than the predictions.
from pullback.relax import TensorStructInfo
from pullback.relax.training import loss


def mistake():
    loss.MSELoss()(TensorStructInfo((4, 2), "float32"), TensorStructInfo((4, 2), "int64"))
