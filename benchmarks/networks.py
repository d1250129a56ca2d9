"""Networks whose training steps are compiled: how long that takes, and how it grows with their size.

Each is written by a :class:`Writer`, which draws nothing: parameters are shapes. ``NETWORKS`` are models as people
train them. ``GRAPHS`` are families in which a number makes the graph deeper or wider.
"""

from __future__ import annotations

from collections.abc import Callable

from pullback import relax
from pullback.ir import IRModule
from pullback.relax import Expr, TensorStructInfo, Var, op
from pullback.relax.training import SetupTrainer
from pullback.relax.training.loss import CrossEntropyLoss, MSELoss
from pullback.relax.training.optimizer import Adam

BATCH, CLASSES = 8, 10


class Writer:
    """Writes ``backbone(x, parameters…, states…)``: layers that declare their parameters where they use them."""

    def __init__(self) -> None:
        self.builder = relax.BlockBuilder()
        self.parameters: list[Var] = []
        self.states: list[Var] = []
        self.updated: list[Expr] = []

    def module(
        self, shape: tuple[int, ...], write: Callable[[Writer, Expr], Expr]
    ) -> tuple[IRModule, TensorStructInfo]:
        """A module for SetupTrainer, and the type of what ``write`` makes of an input of this shape."""
        x = Var("x", TensorStructInfo(shape))
        with self.builder.function("backbone"):
            with self.builder.dataflow():
                results = [self.builder.emit_output(v) for v in (write(self, x), *self.updated)]
            output = results[0] if len(results) == 1 else relax.Tuple(results)
            self.builder.emit_func_output(output, [x, *self.parameters, *self.states])
        counts = {"param_num": len(self.parameters), "state_num": len(self.states)}
        return self.builder.get().with_attrs(counts), results[0].struct_info

    def parameter(self, *shape: int) -> Var:
        self.parameters.append(Var(f"p{len(self.parameters)}", TensorStructInfo(shape)))
        return self.parameters[-1]

    def emit(self, expr: Expr) -> Expr:
        return self.builder.emit(expr)

    # -- layers

    def linear(self, x: Expr, outputs: int) -> Expr:
        product = self.emit(op.matmul(x, self.parameter(x.struct_info.shape[-1], outputs)))
        return self.emit(op.add(product, self.parameter(outputs)))

    def conv(self, x: Expr, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> Expr:
        weight = self.parameter(outputs, x.struct_info.shape[1] // groups, kernel, kernel)
        options = {"strides": (stride, stride), "padding": (kernel // 2, kernel // 2), "groups": groups}
        return self.emit(op.nn.conv2d(x, weight, **options))

    def norm(self, x: Expr) -> Expr:
        width = x.struct_info.shape[1]
        own = [Var(f"s{len(self.states) + k}", TensorStructInfo((width,))) for k in range(2)]
        self.states += own
        result = self.emit(op.nn.batch_norm(x, self.parameter(width), self.parameter(width), *own, axis=1))
        self.updated += [self.emit(result[1]), self.emit(result[2])]
        return self.emit(result[0])

    def relu(self, x: Expr) -> Expr:
        return self.emit(op.nn.relu(x))

    def classify(self, x: Expr) -> Expr:
        return self.linear(self.emit(op.mean(x, axis=[2, 3])), CLASSES)


# -- networks


def mobilenet(w: Writer, x: Expr) -> Expr:
    """MobileNetV2 (Sandler et al. 2018, table 2)."""
    x = w.emit(op.clip(w.norm(w.conv(x, 32, 3, 2)), 0, 6))
    blocks = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    for expansion, outputs, count, first_stride in blocks:
        for k in range(count):
            kept, inputs, stride = x, x.struct_info.shape[1], first_stride if k == 0 else 1
            if expansion > 1:
                x = w.emit(op.clip(w.norm(w.conv(x, expansion * inputs, 1)), 0, 6))
            width = x.struct_info.shape[1]
            x = w.emit(op.clip(w.norm(w.conv(x, width, 3, stride, groups=width)), 0, 6))
            x = w.norm(w.conv(x, outputs, 1))
            if stride == 1 and inputs == outputs:
                x = w.emit(op.add(x, kept))
    return w.classify(w.emit(op.clip(w.norm(w.conv(x, 1280, 1)), 0, 6)))


def unet(w: Writer, x: Expr) -> Expr:
    """U-Net (Ronneberger et al. 2015) with padding, batch norm, and a quarter of the channels."""

    def double(x: Expr, width: int) -> Expr:
        for _ in range(2):
            x = w.relu(w.norm(w.conv(x, width)))
        return x

    kept = []
    for width in (16, 32, 64, 128):
        kept.append(double(x, width))
        x = w.emit(op.nn.max_pool2d(kept[-1], pool_size=(2, 2), strides=(2, 2)))
    x = double(x, 256)
    for width, skip in zip((128, 64, 32, 16), reversed(kept), strict=True):
        weight = w.parameter(x.struct_info.shape[1], width, 2, 2)
        x = w.emit(op.nn.conv2d_transpose(x, weight, strides=(2, 2)))
        x = double(w.emit(op.concat([skip, x], axis=1)), width)
    return w.conv(x, 1, 1)


def resnet50(w: Writer, x: Expr) -> Expr:
    """ResNet-50 (He et al. 2015, table 1)."""
    x = w.relu(w.norm(w.conv(x, 64, 7, 2)))
    x = w.emit(op.nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1)))
    for stage, count in enumerate((3, 4, 6, 3)):
        for k in range(count):
            width, stride = 64 << stage, 2 if stage and k == 0 else 1
            inner = w.relu(w.norm(w.conv(x, width, 1)))
            inner = w.relu(w.norm(w.conv(inner, width, 3, stride)))
            inner = w.norm(w.conv(inner, 4 * width, 1))
            kept = x if k else w.norm(w.conv(x, 4 * width, 1, stride))
            x = w.relu(w.emit(op.add(inner, kept)))
    return w.classify(x)


def densenet(w: Writer, x: Expr, blocks: tuple[int, ...] = (6, 12), growth: int = 16) -> Expr:
    """DenseNet (Huang et al. 2016): every layer reads the concatenation of all before it in its block."""
    x = w.conv(x, 2 * growth)
    for n, count in enumerate(blocks):
        parts = [x]
        for _ in range(count):
            joined = w.emit(op.concat(parts, axis=1)) if len(parts) > 1 else x
            inner = w.conv(w.relu(w.norm(joined)), 4 * growth, 1)
            parts.append(w.conv(w.relu(w.norm(inner)), growth))
        x = w.emit(op.concat(parts, axis=1))
        if n < len(blocks) - 1:
            x = w.conv(w.relu(w.norm(x)), x.struct_info.shape[1] // 2, 1)
            x = w.emit(op.nn.avg_pool2d(x, pool_size=(2, 2), strides=(2, 2)))
    return w.classify(w.relu(w.norm(x)))


def recurrent(w: Writer, x: Expr) -> Expr:
    """A gated recurrent unit (Cho et al. 2014), written out for all steps in time of ``x`` (batch, time, features)."""
    batch, time, features = x.struct_info.shape
    width = 64
    gates = [(w.parameter(features, width), w.parameter(width, width), w.parameter(width)) for _ in range(3)]

    def gate(now: Expr, past: Expr, weights: tuple[Var, Var, Var]) -> Expr:
        of_input = w.emit(op.add(w.emit(op.matmul(now, weights[0])), weights[2]))
        return w.emit(op.add(of_input, w.emit(op.matmul(past, weights[1]))))

    h = w.emit(op.zeros((batch, width), "float32"))
    for t in range(time):
        now = w.emit(op.squeeze(w.emit(op.strided_slice(x, [1], [t], [t + 1])), axis=[1]))
        update, reset = (w.emit(op.sigmoid(gate(now, h, weights))) for weights in gates[:2])
        new = w.emit(op.tanh(gate(now, w.emit(op.multiply(reset, h)), gates[2])))
        h = w.emit(op.add(new, w.emit(op.multiply(update, w.emit(op.subtract(h, new))))))
    return w.linear(h, CLASSES)


# -- families


def depth(w: Writer, x: Expr, count: int) -> Expr:
    """Layer after layer."""
    for _ in range(count):
        x = w.relu(w.linear(x, 32))
    return x


def branches(w: Writer, x: Expr, count: int) -> Expr:
    """Products side by side, put together."""
    return w.emit(op.concat([w.linear(x, 8) for _ in range(count)], axis=1))


def added(w: Writer, x: Expr, count: int) -> Expr:
    """Products side by side, added up."""
    total = w.linear(x, 8)
    for _ in range(count - 1):
        total = w.emit(op.add(total, w.emit(op.tanh(w.linear(x, 8)))))
    return total


def widths(w: Writer, x: Expr, count: int) -> Expr:
    """Branches of seven different widths."""
    return w.emit(op.concat([w.relu(w.linear(x, 8 + k % 7)) for k in range(count)], axis=1))


def dense(w: Writer, x: Expr, count: int) -> Expr:
    """Every layer reads all before it."""
    parts = [x]
    for _ in range(count):
        joined = w.emit(op.concat(parts, axis=1)) if len(parts) > 1 else x
        parts.append(w.relu(w.linear(joined, 8)))
    return w.linear(parts[-1], 8)


def parameters(w: Writer, x: Expr, count: int) -> Expr:
    """An optimizer of many small tensors."""
    for k in range(count):
        x = w.emit(op.multiply(x, w.parameter(32))) if k % 2 else w.emit(op.add(x, w.parameter(32)))
    return x


def chain(w: Writer, x: Expr, count: int) -> Expr:
    """Elementwise op after elementwise op."""
    for k in range(count):
        x = w.emit(op.sin(x)) if k % 2 else w.emit(op.add(x, w.parameters[0] if w.parameters else w.parameter(32)))
    return x


NETWORKS: dict[str, tuple[tuple[int, ...], Callable[[Writer, Expr], Expr]]] = {
    "mobilenet": ((BATCH, 3, 64, 64), mobilenet),
    "unet": ((BATCH, 3, 64, 64), unet),
    "resnet50": ((BATCH, 3, 64, 64), resnet50),
    "densenet": ((BATCH, 3, 32, 32), densenet),
    "recurrent": ((BATCH, 24, 32), recurrent),
}
GRAPHS: dict[str, Callable[[Writer, Expr, int], Expr]] = {
    f.__name__: f for f in (depth, branches, widths, added, dense, parameters, chain)
}


def trainer_module(name: str, count: int = 0) -> IRModule:
    """The trainer module, with Adam, of a network, or of a graph of a family with ``count`` of what it has many."""
    shape, write = NETWORKS.get(name) or ((BATCH, 32), lambda w, x: GRAPHS[name](w, x, count))
    module, info = Writer().module(shape, write)
    if name in GRAPHS or name == "unet":
        return SetupTrainer(MSELoss(), Adam(1e-3), [info, info])(module)
    return SetupTrainer(CrossEntropyLoss(), Adam(1e-3), [info, TensorStructInfo((BATCH,), "int64")])(module)
