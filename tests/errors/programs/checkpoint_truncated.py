# The file lost its end.
from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer, folder):
    file = folder / "model.safetensors"
    trainer.save(file)
    file.write_bytes(file.read_bytes()[:-5])
    trainer.load(file)
