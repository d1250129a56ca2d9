# The folder to save in does not exist.
from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer, folder):
    trainer.save(folder / "missing" / "model.safetensors")
