# Parameters without values cannot be exported.
import pullback
from pullback.relax.training import Trainer
from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    Trainer(trainer.mod, trainer.vm, pullback.cpu(), zero_init_param_state=False).export_params()
