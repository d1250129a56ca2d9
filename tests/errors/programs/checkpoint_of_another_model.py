# The file was saved by a model with other parameters.
from tests.errors.models import counting_trainer, linear_trainer


def setup():
    return counting_trainer()


def mistake(trainer, folder):
    linear_trainer().save(folder / "linear.safetensors")
    trainer.load(folder / "linear.safetensors")
