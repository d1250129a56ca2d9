# A file that holds no measured step.
from pathlib import Path

from pullback.scale.step import load


def mistake(folder):
    path = Path(folder) / "step.json"
    path.write_text('{"format": 1, "title": "net"}')
    load(path)
