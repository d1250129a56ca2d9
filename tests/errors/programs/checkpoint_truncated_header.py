# Little more than the length of the header is left.
from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer, folder):
    file = folder / "model.safetensors"
    trainer.save(file)
    file.write_bytes(file.read_bytes()[:20])
    trainer.load(file)
