# The shape of the predictions is not known.
from pullback.relax import TensorStructInfo
from pullback.relax.training import loss


def mistake():
    loss.MSELoss()(TensorStructInfo(None, "float32"), TensorStructInfo(None, "float32"))
