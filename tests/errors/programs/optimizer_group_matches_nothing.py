# A pattern that matches no parameter is a slip of the pen.
from pullback.relax.training import loss, optimizer
from tests.errors.models import linear


def mistake():
    import pullback

    groups = optimizer.ParameterGroups(optimizer.SGD(0.1), {"head.*": {"lr": 1.0}})
    pullback.trainer(linear, loss.MSELoss(), groups)
