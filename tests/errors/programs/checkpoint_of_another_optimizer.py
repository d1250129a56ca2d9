# The file was saved with Adam.
from tests.errors.models import classifier_trainer, linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer, folder):
    classifier_trainer().save(folder / "adam.safetensors")
    trainer.load(folder / "adam.safetensors")
