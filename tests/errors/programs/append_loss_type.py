# The loss takes other predictions than the backbone returns.
from pullback.relax import TensorStructInfo
from pullback.relax.training import AppendLoss, loss
from tests.errors.models import linear


def mistake():
    info = TensorStructInfo((5, 2), "float32")
    AppendLoss("backbone", loss.MSELoss()(info, info))(linear)
