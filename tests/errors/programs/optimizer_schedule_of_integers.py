# A function of the step returns a float.
from pullback.relax.training import loss, optimizer
from tests.errors.models import linear


def mistake():
    import pullback

    pullback.trainer(linear, loss.MSELoss(), optimizer.SGD(lambda step: step + 1))
