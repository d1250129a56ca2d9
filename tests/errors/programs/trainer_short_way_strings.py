# Names of losses and optimizers are those of pullback.nn and pullback.optim.
import pullback
from tests.errors.models import linear


def mistake():
    pullback.trainer(linear, "mean_squared_error", "sgd")
