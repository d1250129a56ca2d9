# The number of parameters is a string.
from pullback.relax import TensorStructInfo
from pullback.relax.training import loss, optimizer, SetupTrainer
from tests.errors.models import linear


def mistake():
    info = TensorStructInfo((4, 2), "float32")
    model = linear.with_attr("param_num", "two")
    SetupTrainer(loss.MSELoss(), optimizer.SGD(0.1), [info, info])(model)
