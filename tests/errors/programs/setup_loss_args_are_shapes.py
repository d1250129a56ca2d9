# A shape is no type.
from pullback.relax.training import loss, optimizer, SetupTrainer
from tests.errors.models import linear


def mistake():
    SetupTrainer(loss.MSELoss(), optimizer.SGD(0.1), [(4, 2), (4, 2)])(linear)
