# A text imports only from pullback.
import pullback


def mistake():
    pullback.script.from_source("import os", file="model.py")
