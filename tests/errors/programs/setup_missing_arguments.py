# SetupTrainer needs the types of the loss.
from pullback.relax.training import loss, optimizer, SetupTrainer


def mistake():
    SetupTrainer(loss.MSELoss(), optimizer.SGD(0.1))
