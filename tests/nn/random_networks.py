"""Random networks, described once and built of the layers of either library.

A description is nested tuples: ``(name, args, kwargs)`` for a layer, and ``(name, …)`` for what is put together of
others, whose classes are below. ``describe`` draws one; ``build`` makes it of ``nn`` or ``torch.nn``.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from pullback import nn
from pullback.relax import op


class _Residual:
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)


class _Twice:
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(self.inner(x) * 0.5)


class _Branches:
    def __init__(self, *branches):
        super().__init__()
        self.branches = self.nn.ModuleList(branches)

    def forward(self, x):
        return self.concatenated([branch(x) for branch in self.branches])


class _Named:
    """A dict of modules, taken one after the other."""

    def __init__(self, *modules):
        super().__init__()
        self.inside = self.nn.ModuleDict({f"part{i}": m for i, m in enumerate(modules)})

    def forward(self, x):
        for module in self.inside.values():
            x = module(x)
        return x


class _Tied:
    """Two linear layers with one weight, one of them in a dict."""

    def __init__(self, size, bias):
        super().__init__()
        self.first, self.act = self.nn.Linear(size, size), self.nn.Tanh()
        self.more = self.nn.ModuleDict({"second": self.nn.Linear(size, size, bias)})
        self.more["second"].weight = self.first.weight

    def forward(self, x):
        return self.more["second"](self.act(self.first(x)))


class _Scaled:
    """A parameter of its own and a constant."""

    def __init__(self, shape):
        super().__init__()
        self.scale = self.nn.Parameter(self.array(np.linspace(0.5, 1.5, int(np.prod(shape))).reshape(shape)))
        self.register_buffer("shift", self.array(np.linspace(-0.1, 0.1, shape[-1])))

    def forward(self, x):
        return x * self.scale + self.shift


class _Counting:
    """A buffer that each call in a step changes, and that the output depends on."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.register_buffer("calls", self.array(np.zeros(())))

    def forward(self, x):
        y = self.inner(x) / (1 + 0.01 * self.calls)
        self.count()
        return y


class _Attention:
    def __init__(self, *args, **options):
        super().__init__()
        self.attention = self.nn.MultiheadAttention(*args, batch_first=True, **options)

    def forward(self, x):
        return self.attention(x, x, x)[0]


class _Transposed:
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x.transpose(1, 2)


class _Mean:
    """Not of x itself, which after a norm is 0 but for rounding, whose sign a ReLU would see."""

    def __init__(self, *axes):
        super().__init__()
        self.axes = axes

    def forward(self, x):
        return x.tanh().mean(dim=self.axes)


class _Net:
    """Encoders of several inputs, a body of what they give, and one head or two."""

    def __init__(self, encoders, body, *heads):
        super().__init__()
        self.encoders, self.body, self.heads = self.nn.ModuleList(encoders), body, self.nn.ModuleList(heads)

    def forward(self, *inputs):
        codes = [encoder(x) for encoder, x in zip(self.encoders, inputs, strict=True)]
        x = self.body(self.concatenated(codes) if len(codes) > 1 else codes[0])
        results = [head(x) for head in self.heads]
        return results[0] if len(results) == 1 else tuple(results)


class _Ours(nn.Module):
    nn = nn

    @staticmethod
    def array(value):
        return value

    @staticmethod
    def concatenated(tensors):
        return op.concat(tensors, 1)

    def count(self):
        self.calls = nn.functional.in_train_phase(self.calls + 1, self.calls)


class _Theirs(torch.nn.Module):
    nn = torch.nn
    array = staticmethod(torch.tensor)

    @staticmethod
    def concatenated(tensors):
        return torch.cat(tensors, 1)

    def count(self):
        if self.training:
            self.calls = self.calls + 1


_PARTS = (_Residual, _Twice, _Branches, _Named, _Tied, _Scaled, _Counting, _Attention, _Transposed, _Mean, _Net)
for _part in _PARTS:  # in the module, so that they pickle
    for _base in (_Ours, _Theirs):
        _name = f"{_base.__name__}{_part.__name__}"
        globals()[_name] = type(_name, (_part, _base), {"__module__": __name__})
_COMPOSED = {part.__name__[1:]: part for part in _PARTS}

Description = tuple[Any, ...]


def build(description: Any, library: Any) -> Any:
    """The network of a description, of the layers of ``nn`` or ``torch.nn``."""
    if isinstance(description, list):
        return [build(d, library) for d in description]
    if not isinstance(description, tuple) or not description or not isinstance(description[0], str):
        return description
    name, args, options = description
    if name == "Frozen":
        return build(args[0], library).requires_grad_(False)
    args = [build(a, library) for a in args]
    if name in _COMPOSED:
        made = globals()[f"{'_Ours' if library is nn else '_Theirs'}_{name}"]
        return made(*args, **options)
    return getattr(library, name)(*args, **options)


class Draws:
    """Draws descriptions; the shapes are those that PyTorch's layers give."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def network(self) -> tuple[Description, list[Any]]:
        """A network, and a maker of each input: (rows, generator) → array."""
        encoders, makers = zip(*(self.encoder() for _ in range(self.pick(1, 1, 1, 2, 3))), strict=True)
        width = sum(
            self.shape_of(e, [m(3, np.random.default_rng(0))])[0] for e, m in zip(encoders, makers, strict=True)
        )
        body, shape = self.chain((width,), self.pick(0, 1, 2))
        heads = [("Linear", (shape[0], self.pick(1, 2, 5)), {}) for _ in range(self.pick(1, 1, 2))]
        return ("Net", (list(encoders), body, *heads), {}), list(makers)

    def encoder(self) -> tuple[Description, Any]:
        """From an input to (rows, features)."""
        if self.pick(False, False, True):
            return self.words()
        shape = self.pick((5,), (4, 6), (3, 9), (2, 7, 6), (3, 5, 8), (4, 6, 6), (2, 4, 4, 4))
        body, after = self.chain(shape, self.pick(1, 2, 3, 4))
        flat = self.flattened(after)
        return ("Sequential", (body, *flat), {}), lambda n, source: source.normal(size=(n, *shape))

    def words(self) -> tuple[Description, Any]:
        rows, size, length = self.pick(7, 12), self.pick(3, 4, 6), self.pick(3, 5)
        padding = self.pick(None, 0, 2, -1)
        if self.pick(True, False):
            mode = self.pick("sum", "mean", "max")
            bag = ("EmbeddingBag", (rows, size), {"mode": mode, "padding_idx": padding})
            body, after = self.chain((size,), self.pick(0, 1))
            inside = (bag, body, *self.flattened(after))
        else:
            body, after = self.chain((length, size), self.pick(0, 1, 2, 3))
            inside = (("Embedding", (rows, size), {"padding_idx": padding}), body, *self.flattened(after))
        dtype = self.pick("int64", "int32", "int64")
        return ("Sequential", inside, {}), lambda n, source: source.integers(0, rows, (n, length)).astype(dtype)

    def flattened(self, shape: tuple[int, ...]) -> list[Description]:
        if len(shape) == 1:
            return []
        if self.pick(True, False):
            return [("Mean", tuple(range(2, len(shape) + 1)), {})]
        size = int(np.prod(shape))
        return [("Flatten", (), {}), ("Linear", (size, 4), {})]

    def chain(self, shape: tuple[int, ...], length: int) -> tuple[Description, tuple[int, ...]]:
        """Layers one after the other, and the shape of a row of their result."""
        found: list[Description] = []
        for _ in range(length):
            made = self.layer(shape)
            try:
                after = self.shape_of(made, [np.random.default_rng(1).normal(size=(3, *shape))])
            except (RuntimeError, ValueError, AssertionError, TypeError):
                continue
            if min(after) > 0 and np.prod(after) <= 400:
                shape = after
                found.append(made)
        if self.pick(True, False):
            return ("Sequential", tuple(found), {}), shape
        return ("Named", tuple(found), {}), shape

    @staticmethod
    def shape_of(description: Description, inputs: list[np.ndarray]) -> tuple[int, ...]:
        module = build(description, torch.nn).double().train()
        with torch.no_grad():
            return tuple(module(*map(torch.tensor, inputs)).shape[1:])

    def layer(self, shape: tuple[int, ...]) -> Description:
        kind = self.random.random()
        if kind < 0.12:
            inner, after = self.chain(shape, self.pick(1, 2))
            return (self.pick("Residual", "Twice"), (inner,), {}) if after == shape else inner
        if kind < 0.17:
            branches = [self.chain(shape, 1)[0] for _ in range(2)]
            return ("Branches", tuple(branches), {})
        if kind < 0.22:
            return ("Frozen", (self.layer(shape),), {})
        if kind < 0.27:
            return ("Counting", (self.layer(shape),), {})
        if kind < 0.32:
            return ("Scaled", (shape,), {})
        if kind < 0.50:
            return self.activation()
        rank = len(shape)
        if rank == 1:
            return self.of_vectors(*shape)
        if rank == 2 and self.pick(True, False):
            return self.of_sequences(*shape)
        return self.of_images(shape)

    def activation(self) -> Description:
        return self.pick(
            ("ReLU", (), {}), ("GELU", (), {"approximate": self.pick("none", "tanh")}), ("SiLU", (), {}),
            ("LeakyReLU", (0.2,), {}), ("ELU", (0.7,), {}), ("CELU", (1.3,), {}), ("SELU", (), {}), ("Mish", (), {}),
            ("Softplus", (), {"beta": 2.0}), ("Tanhshrink", (), {}), ("Hardswish", (), {}), ("PReLU", (), {}),
            ("Softsign", (), {}), ("LogSigmoid", (), {}), ("Sigmoid", (), {}), ("Hardtanh", (-0.7, 0.9), {}),
            ("Softshrink", (0.1,), {}), ("Hardshrink", (0.1,), {}), ("Threshold", (0.1, -0.3), {}), ("ReLU6", (), {}),
            ("Softmax", (), {"dim": 1}), ("LogSoftmax", (), {"dim": -1}), ("Hardsigmoid", (), {}), ("Tanh", (), {}),
            ("Dropout", (0.0,), {}), ("Identity", (), {}), ("GLU", (), {"dim": 1}), ("Softmin", (), {"dim": -1}),
        )  # fmt: skip

    def of_vectors(self, size: int) -> Description:
        momentum = self.pick(0.1, None, 0.5)
        return self.pick(
            ("Linear", (size, self.pick(3, 4, 6)), {"bias": self.pick(True, False)}),
            ("Linear", (size, self.pick(3, 4, 6)), {}),
            ("BatchNorm1d", (size,), {"momentum": momentum, "affine": self.pick(True, False)}),
            ("BatchNorm1d", (size,), {"track_running_stats": False, "eps": 1e-2}),
            ("LayerNorm", (size,), {"elementwise_affine": self.pick(True, False)}),
            ("LayerNorm", (size,), {"bias": False}),
            ("RMSNorm", (size,), {}),
            ("GroupNorm", (self.pick(1, 2, 3), size), {}),
            ("Tied", (size, self.pick(True, False)), {}),
            ("Sequential", (("Unflatten", (1, (-1, self.pick(1, 2))), {}), self.activation(), ("Flatten", (), {})), {}),
        )

    def of_sequences(self, length: int, size: int) -> Description:
        heads = self.pick(1, 2, 3)
        feed, before = self.pick(4, 5), self.pick(True, False)
        layer = ("TransformerEncoderLayer", (size, heads, feed, 0.0), {
            "batch_first": True, "norm_first": before, "activation": self.pick("relu", "gelu"),
        })  # fmt: skip
        return self.pick(
            ("Linear", (size, self.pick(3, 4, 6)), {}),
            ("LayerNorm", (size,), {}),
            ("LayerNorm", ((length, size),), {}),
            ("RMSNorm", (size,), {"eps": 1e-3}),
            ("Attention", (size, heads), {"bias": self.pick(True, False), "add_zero_attn": self.pick(True, False)}),
            ("Attention", (size, heads), {"add_bias_kv": True}),
            layer,
            ("TransformerEncoder", (layer, 2), {"enable_nested_tensor": False}),
            ("Transposed", (), {}),
            ("Tied", (size, self.pick(True, False)), {}),
        )

    def of_images(self, shape: tuple[int, ...]) -> Description:
        """Channels first, with one to three axes."""
        channels, rank = shape[0], len(shape) - 1

        def each(*choices: Any) -> Any:
            return self.pick(self.pick(*choices), tuple(self.pick(*choices) for _ in range(rank)))

        groups = self.pick(1, 1, 1, channels)
        kernel = each(1, 2, 3)
        conv = {
            "stride": each(1, 1, 2, 3), "padding": each(0, 1, 2), "dilation": each(1, 1, 2), "groups": groups,
            "bias": self.pick(True, False),
            "padding_mode": self.pick("zeros", "zeros", "reflect", "replicate", "circular"),
        }  # fmt: skip
        same = {"padding": self.pick("same", "valid"), "dilation": each(1, 2), "groups": groups}
        stride = self.pick(2, 3)
        transposed = {
            "stride": stride, "padding": self.pick(0, 1), "output_padding": self.pick(0, 1), "groups": groups,
            "dilation": self.pick(1, 2), "bias": self.pick(True, False),
        }  # fmt: skip
        window = self.pick(2, 3)
        pool = {"stride": self.pick(None, 1, 2, 3), "padding": self.pick(0, 1), "ceil_mode": self.pick(True, False)}
        average = pool | {"count_include_pad": self.pick(True, False)}
        pads = tuple(self.random.choice((0, 1, 2)) for _ in range(2 * rank))
        d = f"{rank}d"
        options = [
            (f"Conv{d}", (channels, channels * self.pick(1, 2), kernel), conv),
            (f"Conv{d}", (channels, 4 if groups == 1 else channels, kernel), conv),
            (f"Conv{d}", (channels, channels, kernel), same),
            (f"ConvTranspose{d}", (channels, channels, window), transposed),
            (f"MaxPool{d}", (window,), pool | {"dilation": self.pick(1, 1, 2)}),
            (f"AvgPool{d}", (window,), average),
            (f"AdaptiveAvgPool{d}", (self.pick(1, 2, 3),), {}),
            (f"AdaptiveMaxPool{d}", (self.pick(1, 2, 3),), {}),
            (f"BatchNorm{d}", (channels,), {"momentum": self.pick(0.1, None), "eps": self.pick(1e-5, 1e-2)}),
            (
                f"InstanceNorm{d}",
                (channels,),
                {"affine": self.pick(True, False), "track_running_stats": self.pick(True, False)},
            ),
            ("GroupNorm", (self.pick(1, 2, 3), channels), {"affine": self.pick(True, False)}),
            (f"{self.pick('Reflection', 'Replication', 'Zero', 'Circular')}Pad{d}", (pads,), {}),
            (f"ConstantPad{d}", (pads, 0.5), {}),
            ("LocalResponseNorm", (self.pick(2, 3),), {}),
            ("PReLU", (channels,), {}),
            (f"Dropout{d}", (0.0,), {}),
            ("Upsample", (), {"scale_factor": self.pick(2, 1.5), "mode": "nearest"}),
            ("ChannelShuffle", (self.pick(1, 2),), {}),
        ]
        if rank == 2:
            options += [
                ("LPPool2d", (2, window), {"stride": self.pick(None, 1)}),
                ("PixelShuffle", (2,), {}), ("PixelUnshuffle", (2,), {}), ("Softmax2d", (), {}),
                ("Upsample", (), {"scale_factor": 2, "align_corners": self.pick(True, False),
                                  "mode": self.pick("bilinear", "bicubic")}),
                ("Unfold", (window,), {"stride": self.pick(1, 2), "padding": self.pick(0, 1)}),
            ]  # fmt: skip
        if rank == 1:
            options += [("Transposed", (), {}), ("Upsample", (), {"size": 5, "mode": "linear"})]
        return self.random.choice(options)
