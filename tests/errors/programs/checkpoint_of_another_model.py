# The file was saved by a model with other parameters.
import pullback
from pullback.relax.training import loss, optimizer
from tests.errors.models import counting_trainer, linear


def setup():
    return counting_trainer()


def mistake(trainer, folder):
    pullback.trainer(linear, loss.MSELoss(), optimizer.SGD(0.1)).save(folder / "linear.safetensors")
    trainer.load(folder / "linear.safetensors")
