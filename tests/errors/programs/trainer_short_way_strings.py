# Losses and optimizers are objects.
import pullback
from tests.errors.models import linear


def mistake():
    pullback.trainer(linear, "mse", "sgd")
