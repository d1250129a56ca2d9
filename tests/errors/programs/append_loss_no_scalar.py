# The loss is a matrix.
from pullback.relax import TensorStructInfo
from pullback.relax.training import AppendLoss, loss
from tests.errors.models import linear


def mistake():
    info = TensorStructInfo((4, 2), "float32")
    AppendLoss("backbone", loss.MSELoss(reduction="none")(info, info))(linear)
