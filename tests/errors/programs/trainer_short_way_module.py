# A function instead of a module.
import pullback
from pullback.relax.training import loss, optimizer
from tests.errors.models import linear


def mistake():
    pullback.trainer(linear["backbone"], loss.MSELoss(), optimizer.SGD(0.1))
