"""What the examples in docstrings begin with: the reference shows it, and tests/docs/test_docstrings.py runs it."""

import numpy as np

import pullback
from pullback import callbacks, nn, optim, relax  # noqa: F401
from pullback.nn import functional as F  # noqa: F401
from pullback.script import relax as R  # noqa: F401

rng = np.random.default_rng(0)
x, y = rng.normal(size=(64, 16)).astype("float32"), rng.integers(0, 4, 64)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
trainer = pullback.trainer(net, "cross_entropy", optim.Adam(lr=1e-3), example=x)
