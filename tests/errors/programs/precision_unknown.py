# There is no such precision.
import pullback
from pullback.relax.training import loss, optimizer
from tests.errors.models import linear


def mistake():
    pullback.trainer(linear, loss.MSELoss(), optimizer.SGD(0.1), precision="fp16")
