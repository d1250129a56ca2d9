"""The models that training steps are timed on: each is one file, with its data, sizes, and form for every side."""

from benchmarks.models.base import Model
from benchmarks.models.chargpt import CharGPT
from benchmarks.models.lenet import LeNet
from benchmarks.models.mlp import MLP
from benchmarks.models.recurrent import GRU, LSTM
from benchmarks.models.resnet20 import ResNet20

MODELS: dict[str, Model] = {model.name: model for model in (MLP(), LeNet(), ResNet20(), CharGPT(), LSTM(), GRU())}
