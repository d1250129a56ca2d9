"""The layers of ``pullback.nn`` under TVM's names and argument order (``tvm.relax.frontend.nn``), and ``export_tvm``.

    class Net(nn.Module):
        def __init__(self):
            self.fc1, self.relu, self.fc2 = nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)

        def forward(self, x):
            return self.fc2(self.relu(self.fc1(x)))

    module, params = Net().export_tvm(spec={"forward": {"x": nn.spec.Tensor(("n", 784), "float32")}})

A module of this package is one of ``pullback.nn``: ``pullback.trainer`` trains it, and the layers of both mix. There
are no effects: nothing is printed, and no cache kept, by a graph.
"""

from __future__ import annotations

from pullback.ir.words import missing_from
from pullback.relax.expr import Expr as Tensor
from pullback.relax.frontend.nn import modules, op, spec
from pullback.relax.frontend.nn.core import Module, ModuleDict, ModuleList, Parameter
from pullback.relax.frontend.nn.modules import *  # noqa: F403
from pullback.relax.frontend.nn.op import *  # noqa: F403

__all__ = [
    "Module", "ModuleDict", "ModuleList", "Parameter", "Tensor", "modules", "op", "spec", *modules.__all__, *op.__all__,
]  # fmt: skip

__getattr__ = missing_from(globals())
