"""Images of any size: a model declared for symbolic heights and widths computes what one of those sizes computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback
from pullback.relax import BlockBuilder, TensorStructInfo, Tuple, Var, op
from pullback.relax.training import SetupTrainer, Trainer
from pullback.relax.training.loss import MSELoss
from pullback.relax.training.optimizer import MomentumSGD
from pullback.script import from_source
from pullback.tir import Var as Size

CHANNELS = 4
WEIGHTS = {
    "stem": (CHANNELS, 3, 3, 3), "gamma": (CHANNELS,), "beta": (CHANNELS,), "down": (CHANNELS, CHANNELS, 3, 3),
    "inner": (CHANNELS, 1, 3, 3), "up": (CHANNELS, CHANNELS, 2, 2), "head": (2, 3 * CHANNELS, 1, 1),
}  # fmt: skip


def model(batch: Any, height: Any, width: Any) -> pullback.ir.IRModule:
    """A small U-Net: strided and grouped convolutions, pools, batch norm, a transposed convolution, two resizes to the
    sizes of what they are put together with."""
    x = Var("x", TensorStructInfo((batch, 3, height, width), "float32"))
    w = {name: Var(name, TensorStructInfo(shape, "float32")) for name, shape in WEIGHTS.items()}
    states = [Var(name, TensorStructInfo((CHANNELS,), "float32")) for name in ("mean", "var")]
    nn, builder = op.nn, BlockBuilder()
    with builder.function("backbone", [x, *w.values(), *states]):
        with builder.dataflow():
            a = builder.emit(nn.conv2d(x, w["stem"], padding=1))
            normed = builder.emit(nn.batch_norm(a, w["gamma"], w["beta"], *states, axis=1))
            a = builder.emit(nn.silu(normed[0]))
            b = builder.emit(nn.conv2d(a, w["down"], strides=2, padding=1))
            b = builder.emit(nn.conv2d(nn.silu(b), w["inner"], padding=1, groups=CHANNELS))
            c = builder.emit(nn.avg_pool2d(b, pool_size=3, strides=2, padding=1, ceil_mode=True))
            c = builder.emit(nn.conv2d_transpose(nn.silu(c), w["up"], strides=2))
            c = builder.emit(op.image.resize2d(c, size=a.struct_info.shape[2:]))
            d = builder.emit(nn.max_pool2d(a, pool_size=2, strides=2, ceil_mode=True))
            d = builder.emit(op.image.resize2d(d, size=a.struct_info.shape[2:], method="nearest_neighbor"))
            e = builder.emit(nn.conv2d(op.concat([a, c, d], axis=1), w["head"]))
            pooled = builder.emit(nn.adaptive_avg_pool2d(e, output_size=2))
            out = builder.emit(op.mean(pooled, [2, 3]))
            results = [builder.emit_output(v) for v in (out, normed[1], normed[2])]
        builder.emit_func_output(Tuple(results))
    return builder.get().with_attrs({"param_num": len(WEIGHTS), "state_num": 2})


def trained(sizes: tuple[Any, Any, Any], x: np.ndarray, y: np.ndarray, legalize: bool, target: str) -> list[np.ndarray]:
    """Losses, the prediction and the parameters after two steps."""
    info = TensorStructInfo((sizes[0], 2), "float32")
    setup = SetupTrainer(MSELoss(), MomentumSGD(0.05, 0.9), [info, info], legalize=legalize)
    module = setup(model(*sizes))
    trainer = Trainer(
        module, pullback.relax.VirtualMachine(pullback.compile(module, target), pullback.cpu(0)), pullback.cpu(0)
    )
    rng = np.random.default_rng(1)
    trainer.load_params({name: rng.standard_normal(shape, dtype="float32") * 0.4 for name, shape in WEIGHTS.items()})
    trainer.load_states({"mean": np.zeros(CHANNELS, "float32"), "var": np.ones(CHANNELS, "float32")})
    losses = [trainer.update(x, y).numpy() for _ in range(2)]
    return [*losses, trainer.predict(x).numpy(), *(p.numpy() for p in trainer.export_params().values())]


@pytest.mark.parametrize("legalize", [True, False])
def test_any_size_is_that_size(legalize: bool) -> None:
    rng = np.random.default_rng(0)
    symbolic = Size("n"), Size("h"), Size("w")
    for size in [(2, 9, 8)] if legalize else [(3, 6, 7), (1, 5, 4)]:
        x, y = rng.standard_normal((size[0], 3, *size[1:]), "float32"), rng.standard_normal((size[0], 2), "float32")
        found = trained(symbolic, x, y, legalize, "llvm")
        for expected in (trained(size, x, y, legalize, "llvm"), trained(symbolic, x, y, False, "debug")):
            for value, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(value, other, rtol=2e-4, atol=2e-5)


def test_one_function_takes_images_of_any_size() -> None:
    module = from_source("""
from pullback.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 3, "h", "w"), "float32"), k: R.Tensor((4, 3, 3, 3), "float32")):
        h = T.int64()
        w = T.int64()
        with R.dataflow():
            y = R.nn.max_pool2d(R.nn.conv2d(x, k, padding=1), pool_size=2, strides=2)
            z = R.image.resize2d(y, size=(h, w))
            R.output(z)
        return z
""")
    main, slow = pullback.compile(module)["main"], pullback.compile(module, "debug")["main"]
    rng = np.random.default_rng(0)
    kernel = rng.standard_normal((4, 3, 3, 3), "float32")
    for shape in [(1, 3, 8, 8), (2, 3, 11, 6), (1, 3, 2, 5)]:
        x = rng.standard_normal(shape, "float32")
        result = main(x, kernel).numpy()
        assert result.shape == (shape[0], 4, *shape[2:])
        np.testing.assert_allclose(result, slow(x, kernel).numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(pullback.ir.UserError, match="larger than the padded data"):
        main(rng.standard_normal((1, 3, 1, 8), "float32"), kernel)
