# A scale that does not grow.
from pullback.relax.training.optimizer import SGD, DynamicLossScale

DynamicLossScale(SGD(0.1), growth_factor=0.5)
