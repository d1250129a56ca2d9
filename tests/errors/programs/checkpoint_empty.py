# The file is empty.
from tests.errors.models import linear_trainer


def setup():
    return linear_trainer()


def mistake(trainer, folder):
    (folder / "model.safetensors").write_bytes(b"")
    trainer.load(folder / "model.safetensors")
