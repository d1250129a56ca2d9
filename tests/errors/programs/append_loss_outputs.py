# The backbone has one output, the loss shall take two.
from pullback.relax import TensorStructInfo
from pullback.relax.training import AppendLoss, loss
from tests.errors.models import linear


def mistake():
    info = TensorStructInfo((4, 2), "float32")
    AppendLoss("backbone", loss.MSELoss()(info, info), num_backbone_outputs=2)(linear)
