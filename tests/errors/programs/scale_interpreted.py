# A trainer that is interpreted has no kernel times.
import pullback
from pullback import nn, optim
from pullback.scale.measure import measure
from tests.errors.models import X, Y


def mistake():
    trainer = pullback.trainer(nn.Linear(3, 2), "mse", optim.SGD(lr=0.1), example=X, target="debug")
    measure(trainer, X, Y, (2, 4))
