# Nobody initialised the parameters.
import pullback
from pullback.relax.training import Trainer
from tests.errors.models import linear_trainer, X, Y


def setup():
    return linear_trainer()


def mistake(trainer):
    other = Trainer(trainer.mod, trainer.vm, pullback.cpu(), zero_init_param_state=False)
    other.update(X, Y)
