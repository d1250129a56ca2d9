# There is no such file.
from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer, folder):
    trainer.load(folder / "model.safetensors")
