# The velocity of w lies in the memory of w: a step would overwrite one with the other.
import pullback
from tests.errors.models import X, Y, linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer):
    w, b = (pullback.tensor(value) for value in trainer.params.values())
    count, _, v_of_b = trainer.optimizer_states
    trainer.vm.bind("__step", [pullback.tensor(X), w, b, pullback.tensor(Y), count, w, v_of_b])()
