"""A GPT over characters: learned positions, causal attention, pre-norm blocks, exact gelu, trained by Adam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.models.base import Arrays, Initial, Model, Optimizer, Values

EPSILON = 1e-5


@dataclass(frozen=True)
class CharGPT(Model):
    layers: int = 6
    width: int = 384
    heads: int = 6
    length: int = 256
    batch: int = 4
    vocabulary: int = 65

    name = "chargpt"
    optimizer = Optimizer("adam", 1e-3)
    embeddings = ("tokens", "positions")

    @property
    def title(self) -> str:
        return f"char-GPT {self.layers}x{self.width}, {self.heads} heads, {self.batch}x{self.length} characters, Adam"

    def draw_data(self) -> tuple[np.ndarray, np.ndarray]:
        text = np.random.default_rng(0).integers(0, self.vocabulary, (self.batch, self.length + 1))
        return text[:, :-1].copy(), text[:, 1:].reshape(-1)

    def draw_parameters(self) -> Arrays:
        initial, width = Initial(self.seed), self.width
        initial.arrays["tokens"] = initial.normal((self.vocabulary, width), 5000)  # standard deviation 0.02
        initial.arrays["positions"] = initial.normal((self.length, width), 5000)
        for k in range(self.layers):
            initial.norm(f"block{k}_norm0", width)
            initial.linear(f"block{k}_qkv", width, 3 * width)
            initial.linear(f"block{k}_out", width, width)
            initial.norm(f"block{k}_norm1", width)
            initial.linear(f"block{k}_up", width, 4 * width)
            initial.linear(f"block{k}_down", 4 * width, width)
        initial.norm("norm", width)
        initial.linear("head", width, self.vocabulary)
        return initial.arrays

    def flops(self) -> int:
        """Forward and both gradients of all products; of attention's, only what lies below the diagonal."""
        linear = 2 * self.batch * self.length * self.width * (12 * self.width * self.layers + self.vocabulary)
        pairs = self.length * (self.length + 1) // 2
        attention = 2 * 2 * self.batch * pairs * self.width * self.layers
        return 3 * (linear + attention)

    @property
    def _heads(self) -> tuple[int, int, int, int]:
        return self.batch, self.length, self.heads, self.width // self.heads

    def torch(self, p: Values, s: Values, x: Any) -> Any:
        import torch
        from torch.nn import functional as f

        def linear(x: torch.Tensor, name: str) -> torch.Tensor:
            return f.linear(x, p[f"{name}_weight"], p[f"{name}_bias"])

        def norm(x: torch.Tensor, name: str) -> torch.Tensor:
            return f.layer_norm(x, (self.width,), p[f"{name}_gamma"], p[f"{name}_beta"], EPSILON)

        x = f.embedding(x, p["tokens"]) + p["positions"]
        for k in range(self.layers):
            parts = linear(norm(x, f"block{k}_norm0"), f"block{k}_qkv").split(self.width, -1)
            q, key, v = (part.view(self._heads).transpose(1, 2) for part in parts)
            mixed = f.scaled_dot_product_attention(q, key, v, is_causal=True).transpose(1, 2).reshape(x.shape)
            x = x + linear(mixed, f"block{k}_out")
            x = x + linear(f.gelu(linear(norm(x, f"block{k}_norm1"), f"block{k}_up")), f"block{k}_down")
        return linear(norm(x, "norm"), "head").flatten(0, 1)

    def jax(self, p: Values, s: Values, x: Any) -> tuple[Any, Values]:
        import jax
        from jax import lax
        from jax import numpy as jnp

        def linear(x: Any, name: str) -> Any:
            return x @ p[f"{name}_weight"] + p[f"{name}_bias"]

        def norm(x: Any, name: str) -> Any:
            mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
            return (x - mean) * lax.rsqrt(var + EPSILON) * p[f"{name}_gamma"] + p[f"{name}_beta"]

        x = p["tokens"][x] + p["positions"]
        for k in range(self.layers):
            parts = jnp.split(linear(norm(x, f"block{k}_norm0"), f"block{k}_qkv"), 3, -1)
            q, key, v = (part.reshape(self._heads) for part in parts)
            mixed = jax.nn.dot_product_attention(q, key, v, is_causal=True).reshape(x.shape)
            x = x + linear(mixed, f"block{k}_out")
            inner = jax.nn.gelu(linear(norm(x, f"block{k}_norm1"), f"block{k}_up"), approximate=False)
            x = x + linear(inner, f"block{k}_down")
        return linear(norm(x, "norm"), "head").reshape(-1, self.vocabulary), {}

    def relax(self, emit: Any, op: Any, p: Values, s: Values, x: Any) -> tuple[Any, Values]:
        whole = (self.batch, self.length, self.width)

        def linear(x: Any, name: str) -> Any:
            return emit(op.add(op.matmul(x, p[f"{name}_weight"]), p[f"{name}_bias"]))

        def norm(x: Any, name: str) -> Any:
            return emit(op.nn.layer_norm(x, p[f"{name}_gamma"], p[f"{name}_beta"], axes=[-1], epsilon=EPSILON))

        x = op.reshape(op.take(p["tokens"], op.reshape(x, (self.batch * self.length,)), axis=0), whole)
        x = emit(op.add(x, p["positions"]))
        for k in range(self.layers):
            parts = emit(op.split(linear(norm(x, f"block{k}_norm0"), f"block{k}_qkv"), 3, axis=-1))
            q, key, v = (emit(op.reshape(emit(parts[i]), self._heads)) for i in range(3))
            mixed = emit(op.reshape(op.nn.attention(q, key, v, causal_mask="TopLeft"), whole))
            x = emit(op.add(x, linear(mixed, f"block{k}_out")))
            inner = emit(op.nn.gelu(linear(norm(x, f"block{k}_norm1"), f"block{k}_up")))
            x = emit(op.add(x, linear(inner, f"block{k}_down")))
        logits = linear(norm(x, "norm"), "head")
        return emit(op.reshape(logits, (self.batch * self.length, self.vocabulary))), {}
