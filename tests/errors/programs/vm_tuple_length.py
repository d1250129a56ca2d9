# The optimizer has two parameters.
from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    params = tuple(trainer.params.values())
    trainer.vm["optimizer"](params, params[:1], trainer.optimizer_states)
