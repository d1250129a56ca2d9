# Two scales.
from pullback.relax.training.optimizer import EMA, SGD, DynamicLossScale

DynamicLossScale(EMA(DynamicLossScale(SGD(0.1)), 0.9))
