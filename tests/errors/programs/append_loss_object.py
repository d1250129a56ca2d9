# A loss is called with types first: that gives the function.
from pullback.relax.training import AppendLoss, loss
from tests.errors.models import linear


def mistake():
    AppendLoss("backbone", loss.MSELoss())(linear)
