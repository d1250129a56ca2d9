# In float16, the optimizer is given a loss scale, which an optimizer that makes its function itself cannot take.
import pullback
from pullback.relax.training import loss, optimizer
from tests.errors.models import linear


class Own(optimizer.SGD):
    def get_function(self):
        return super().get_function()


def mistake():
    pullback.trainer(linear, loss.MSELoss(), Own(0.1), precision="float16", target="debug")
