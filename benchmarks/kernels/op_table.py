"""A call of every op, of a number of elements, and PyTorch's call that computes the same, where it has one.

Each row is a function from the number of elements to the arguments, our call and theirs: ``o`` is `pullback.relax.op`,
``t`` is `torch` and ``f`` is `torch.nn.functional`. Elementwise ops have no row: `ops.py` makes their calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from pullback.relax.op.sample import Bools, Floats, Ints

Shape = tuple[int, ...]


class Row(NamedTuple):
    """``wrt``: how many of the arguments are differentiated, all floats by default."""

    arguments: Callable[[int], list[Any]]
    ours: Callable[..., Any]
    theirs: Callable[..., Any] | None = None
    wrt: int | None = None


# ---- arguments -------------------------------------------------------------------------------------------------------


def floats(shape: Shape) -> Floats:
    return Floats(shape, -1.0, 1.0)


def unit(shape: Shape) -> Floats:
    """Probabilities, and what has to be positive."""
    return Floats(shape, 0.05, 0.95)


def columns(n: int) -> int:
    return min(1024, 2 ** round(math.log2(n) / 2))


def matrix(n: int) -> Shape:
    """About as many rows as columns, but at most 1024 columns."""
    return n // columns(n), columns(n)


def square(n: int) -> Shape:
    return (math.isqrt(n),) * 2


def images(n: int, rank: int = 2) -> Shape:
    """(N, C, spatial…): a few images of 4 to 32 channels."""
    count, channels = (2, 4) if n < 10_000 else (4, 16) if n < 1_000_000 else (16, 32)
    return count, channels, *(max(4, round((n / count / channels) ** (1 / rank))),) * rank


def vector(n: int) -> list[Any]:
    return [floats((n,))]


def rows(n: int) -> list[Any]:
    return [floats(matrix(n))]


def two(n: int) -> list[Any]:
    return [floats(matrix(n))] * 2


def squares(n: int) -> list[Any]:
    return [floats(square(n))]


def pictures(rank: int = 2) -> Callable[[int], list[Any]]:
    return lambda n: [floats(images(n, rank))]


def positive(n: int) -> list[Any]:
    return [unit(matrix(n))]


def probabilities(n: int) -> list[Any]:
    return [unit(matrix(n))] * 2


def signs(n: int) -> list[Any]:
    return [floats(matrix(n)), Floats(matrix(n), 0.5, 1.0)]


def state() -> Ints:
    return Ints((2,), 0, 1000, "uint64")


def labels(n: int) -> list[Any]:
    r, c = matrix(n)
    return [floats((r, c)), Ints((r,), 0, c)]


def scaled(n: int) -> list[Any]:
    """Rows, and a scale and shift of each column."""
    r, c = matrix(n)
    return [floats((r, c)), unit((c,)), floats((c,))]


def channelwise(n: int) -> list[Any]:
    shape = images(n)
    return [floats(shape), unit(shape[1:2]), floats(shape[1:2])]


def elements(n: int) -> list[Any]:
    """Rows, and an index into the rows for each element."""
    r, c = matrix(n)
    return [floats((r, c)), Ints((r, c), 0, r)]


def scattered(n: int) -> list[Any]:
    return [*elements(n), floats(matrix(n))]


def chosen_rows(n: int) -> list[Any]:
    r, c = matrix(n)
    return [floats((r, c)), Ints((r,), 0, r)]


def filters(rank: int, transposed: bool = False) -> Callable[[int], list[Any]]:
    """Images, and as many filters of 3, 3 x 3 or 3 x 3 x 3 as they have channels."""

    def arguments(n: int) -> list[Any]:
        shape = images(n, rank)
        return [floats(shape), floats((shape[1], shape[1], *(3,) * rank))]

    return arguments


def heads(n: int) -> list[Any]:
    """Queries, keys and values of 64 numbers: batch, length, heads."""
    length, number = (16, 1) if n < 10_000 else (128, 4) if n < 1_000_000 else (256, 8)
    return [floats((max(1, n // (length * number * 64)), length, number, 64))] * 3


def attention(t: Any, q: Any, k: Any, v: Any) -> Any:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return t.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)


def product(n: int) -> list[Any]:
    """Rows by a square matrix."""
    c = min(columns(n), 256)
    return [floats((n // c, c)), floats((c, c))]


def lists(f: Callable[..., Any]) -> Callable[..., Any]:
    """A call with the tensors as one argument."""
    return lambda module, *tensors: f(module, list(tensors))


def normal_axes(x: Any) -> list[int]:
    return list(range(2, len(x.shape)))


# ---- the rows --------------------------------------------------------------------------------------------------------

MOVING: dict[str, Row] = {
    "astype": Row(vector, lambda o, x: o.astype(x, "float64"), lambda t, x: x.double()),
    "broadcast_to": Row(
        lambda n: [floats((1, columns(n)))],
        lambda o, x: o.broadcast_to(x, (x.shape[1], x.shape[1])),
        lambda t, x: x.expand(x.shape[1], -1).contiguous(),
    ),
    "expand": Row(
        lambda n: [floats((1, columns(n)))],
        lambda o, x: o.expand(x, (x.shape[1], -1)),
        lambda t, x: x.expand(x.shape[1], -1).contiguous(),
    ),
    "collapse_sum_to": Row(
        rows, lambda o, x: o.collapse_sum_to(x, (x.shape[1],)), lambda t, x: x.sum_to_size(x.shape[1])
    ),
    "collapse_sum_like": Row(
        lambda n: [floats(matrix(n)), floats(matrix(n)[1:])],
        lambda o, x, y: o.collapse_sum_like(x, y),
        lambda t, x, y: x.sum_to_size(y.shape),
        1,
    ),
    "meshgrid": Row(
        lambda n: [floats((columns(n),))] * 2,
        lists(lambda o, xs: o.meshgrid(xs)),
        lists(lambda t, xs: [x.contiguous() for x in t.meshgrid(*xs, indexing="ij")]),
        1,
    ),
    "concat": Row(
        lambda n: [floats(matrix(n // 2))] * 2, lists(lambda o, xs: o.concat(xs, 1)), lists(lambda t, xs: t.cat(xs, 1))
    ),
    "stack": Row(
        lambda n: [floats(matrix(n // 2))] * 2, lists(lambda o, xs: o.stack(xs, 1)), lists(lambda t, xs: t.stack(xs, 1))
    ),
    "flip": Row(rows, lambda o, x: o.flip(x, 1), lambda t, x: x.flip(1)),
    "roll": Row(rows, lambda o, x: o.roll(x, 3, 1), lambda t, x: x.roll(3, 1)),
    "permute_dims": Row(rows, lambda o, x: o.permute_dims(x), lambda t, x: x.T.contiguous()),
    "diagonal": Row(squares, lambda o, x: o.diagonal(x), lambda t, x: x.diagonal().contiguous()),
    "repeat": Row(lambda n: rows(n // 4), lambda o, x: o.repeat(x, 4, 1), lambda t, x: x.repeat_interleave(4, 1)),
    "tile": Row(lambda n: rows(n // 4), lambda o, x: o.tile(x, (2, 2)), lambda t, x: x.tile(2, 2)),
    "reshape": Row(rows, lambda o, x: o.reshape(x, (-1,)), lambda t, x: x.reshape(-1).clone()),
    "flatten": Row(rows, lambda o, x: o.flatten(x), lambda t, x: x.flatten().clone()),
    "nn.batch_flatten": Row(pictures(), lambda o, x: o.nn.batch_flatten(x), lambda t, x: x.flatten(1).clone()),
    "expand_dims": Row(rows, lambda o, x: o.expand_dims(x, 1), lambda t, x: x.unsqueeze(1).clone()),
    "squeeze": Row(lambda n: [floats((n, 1))], lambda o, x: o.squeeze(x), lambda t, x: x.squeeze().clone()),
    "strided_slice": Row(
        rows, lambda o, x: o.strided_slice(x, [1], [1], [x.shape[1]], [2]), lambda t, x: x[:, 1::2].contiguous()
    ),
    "split": Row(
        rows, lambda o, x: o.split(x, 4, 1), lambda t, x: [y.contiguous() for y in x.split(x.shape[1] // 4, 1)]
    ),
    "chunk": Row(rows, lambda o, x: o.chunk(x, 4, 1), lambda t, x: [y.contiguous() for y in x.chunk(4, 1)]),
    "unbind": Row(
        lambda n: [floats((4, n // 4))], lambda o, x: o.unbind(x), lambda t, x: [y.clone() for y in x.unbind()]
    ),
    "slice_scatter": Row(
        lambda n: [floats(matrix(n)), floats((matrix(n)[0], matrix(n)[1] // 2))],
        lambda o, x, y: o.slice_scatter(x, y, 1, 0, None, 2),
        lambda t, x, y: t.slice_scatter(x, y, 1, 0, None, 2),
    ),
    "tril": Row(squares, lambda o, x: o.tril(x), lambda t, x: x.tril()),
    "triu": Row(squares, lambda o, x: o.triu(x), lambda t, x: x.triu()),
    "where": Row(
        lambda n: [Bools((n,)), floats((n,)), floats((n,))],
        lambda o, c, x, y: o.where(c, x, y),
        lambda t, c, x, y: t.where(c, x, y),
    ),
    "nn.dilate": Row(lambda n: rows(n // 4), lambda o, x: o.nn.dilate(x, (2, 2))),
    "nn.pad": Row(
        pictures(),
        lambda o, x: o.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1]),
        lambda t, x: t.nn.functional.pad(x, (1, 1, 1, 1)),
    ),
    "nn.depth_to_space": Row(pictures(), lambda o, x: o.nn.depth_to_space(x, 2)),
    "nn.space_to_depth": Row(
        lambda n: [floats((*images(n)[:2], *(s // 2 * 2 for s in images(n)[2:])))],
        lambda o, x: o.nn.space_to_depth(x, 2),
    ),
    "nn.pixel_shuffle": Row(
        pictures(), lambda o, x: o.nn.pixel_shuffle(x, 2), lambda t, x: t.nn.functional.pixel_shuffle(x, 2)
    ),
    "nn.pixel_unshuffle": Row(
        lambda n: [floats((*images(n)[:2], *(s // 2 * 2 for s in images(n)[2:])))],
        lambda o, x: o.nn.pixel_unshuffle(x, 2),
        lambda t, x: t.nn.functional.pixel_unshuffle(x, 2),
    ),
}
CREATING: dict[str, Row] = {
    "arange": Row(
        lambda n: [n], lambda o, n: o.arange(0, n, 1, "float32"), lambda t, n: t.arange(0, n, 1, dtype=t.float32)
    ),
    "eye": Row(lambda n: [columns(n)], lambda o, c: o.eye(c), lambda t, c: t.eye(c)),
    "eye_like": Row(squares, lambda o, x: o.eye_like(x), lambda t, x: t.eye(*x.shape)),
    "full": Row(lambda n: [n], lambda o, n: o.full((n,), 1.5, "float32"), lambda t, n: t.full((n,), 1.5)),
    "full_like": Row(vector, lambda o, x: o.full_like(x, 1.5), lambda t, x: t.full_like(x, 1.5), 0),
    "hamming_window": Row(lambda n: [n], lambda o, n: o.hamming_window(n), lambda t, n: t.hamming_window(n)),
    "ones": Row(lambda n: [n], lambda o, n: o.ones((n,)), lambda t, n: t.ones(n)),
    "ones_like": Row(vector, lambda o, x: o.ones_like(x), lambda t, x: t.ones_like(x)),
    "zeros": Row(lambda n: [n], lambda o, n: o.zeros((n,)), lambda t, n: t.zeros(n)),
    "zeros_like": Row(vector, lambda o, x: o.zeros_like(x), lambda t, x: t.zeros_like(x)),
    "one_hot": Row(
        lambda n: [Ints((n // 32,), 0, 32)],
        lambda o, i: o.one_hot(i, 1.0, 0.0, 32),
        lambda t, i: t.nn.functional.one_hot(i, 32).float(),
    ),
    "random.bernoulli": Row(
        lambda n: [state(), n], lambda o, s, n: o.random.bernoulli(s, (n,)), lambda t, s, n: t.rand(n) < 0.5
    ),
    "random.bits": Row(lambda n: [state(), n], lambda o, s, n: o.random.bits(s, (n,))),
    "random.normal": Row(lambda n: [state(), n], lambda o, s, n: o.random.normal(s, (n,)), lambda t, s, n: t.randn(n)),
    "random.randint": Row(
        lambda n: [state(), n],
        lambda o, s, n: o.random.randint(s, (n,), 0, 100),
        lambda t, s, n: t.randint(0, 100, (n,)),
    ),
    "random.uniform": Row(lambda n: [state(), n], lambda o, s, n: o.random.uniform(s, (n,)), lambda t, s, n: t.rand(n)),
    "dropout": Row(
        lambda n: [floats((n,)), state()],
        lambda o, x, s: o.dropout(x, s, 0.5),
        lambda t, x, s: t.nn.functional.dropout(x, 0.5),
    ),
    "nn.dropout": Row(
        lambda n: [floats((n,)), state()],
        lambda o, x, s: o.nn.dropout(x, s, 0.5)[0],
        lambda t, x, s: t.nn.functional.dropout(x, 0.5),
    ),
    # PyTorch has none of these; torchvision's are of one image, or draw one number for a batch
    "nn.in_train_phase": Row(lambda n: [floats((n,))] * 2, lambda o, x, y: o.nn.in_train_phase(x, y)),
    "nn.mixup": Row(lambda n: [floats(matrix(n)), state()], lambda o, x, s: o.nn.mixup(x, s)),
    "image.random_flip": Row(lambda n: [floats(images(n)), state()], lambda o, x, s: o.image.random_flip(x, s)),
    "image.random_crop": Row(
        lambda n: [floats(images(n)), state()], lambda o, x, s: o.image.random_crop(x, s, size=x.shape[2:], padding=2)
    ),
    "image.crop": Row(
        lambda n: [floats(images(n)), Ints((images(n)[0], 2), -1, 2, "int64")],
        lambda o, x, places: o.image.crop(x, places, size=x.shape[2:]),
    ),
}
REDUCING: dict[str, Row] = {
    "all": Row(rows, lambda o, x: o.all(x, 1), lambda t, x: x.all(1)),
    "any": Row(rows, lambda o, x: o.any(x, 1), lambda t, x: x.any(1)),
    "argmax": Row(rows, lambda o, x: o.argmax(x, 1), lambda t, x: x.argmax(1)),
    "argmin": Row(rows, lambda o, x: o.argmin(x, 1), lambda t, x: x.argmin(1)),
    "count_nonzero": Row(rows, lambda o, x: o.count_nonzero(x, 1), lambda t, x: x.count_nonzero(1)),
    "logsumexp": Row(rows, lambda o, x: o.logsumexp(x, 1), lambda t, x: x.logsumexp(1)),
    "max": Row(rows, lambda o, x: o.max(x, 1), lambda t, x: x.amax(1)),
    "mean": Row(rows, lambda o, x: o.mean(x, 1), lambda t, x: x.mean(1)),
    "min": Row(rows, lambda o, x: o.min(x, 1), lambda t, x: x.amin(1)),
    "norm": Row(rows, lambda o, x: o.norm(x, 2.0, 1), lambda t, x: t.linalg.vector_norm(x, 2, 1)),
    "prod": Row(positive, lambda o, x: o.prod(x + 0.5, 1), lambda t, x: (x + 0.5).prod(1)),
    "std": Row(rows, lambda o, x: o.std(x, 1), lambda t, x: x.std(1, correction=0)),
    "sum": Row(rows, lambda o, x: o.sum(x, 1), lambda t, x: x.sum(1)),
    "variance": Row(rows, lambda o, x: o.variance(x, 1), lambda t, x: x.var(1, correction=0)),
    "vecdot": Row(two, lambda o, x, y: o.vecdot(x, y), lambda t, x, y: t.linalg.vecdot(x, y)),
    "cumsum": Row(rows, lambda o, x: o.cumsum(x, 1), lambda t, x: x.cumsum(1)),
    "cumprod": Row(positive, lambda o, x: o.cumprod(x + 0.5, 1), lambda t, x: (x + 0.5).cumprod(1)),
    "linear_recurrence": Row(probabilities, lambda o, x, y: o.linear_recurrence(x, y)),
    "nn.softmax": Row(rows, lambda o, x: o.nn.softmax(x), lambda t, x: x.softmax(-1)),
    "nn.softmin": Row(rows, lambda o, x: o.nn.softmin(x), lambda t, x: t.nn.functional.softmin(x, -1)),
    "nn.log_softmax": Row(rows, lambda o, x: o.nn.log_softmax(x), lambda t, x: x.log_softmax(-1)),
    "sort": Row(rows, lambda o, x: o.sort(x), lambda t, x: x.sort()[0]),
    "argsort": Row(rows, lambda o, x: o.argsort(x), lambda t, x: x.argsort()),
    "topk": Row(rows, lambda o, x: o.topk(x, 5)[0], lambda t, x: x.topk(5)[0]),
    "searchsorted": Row(
        lambda n: [Floats((1024,), 0.1, 0.2), floats((n,))],
        lambda o, s, x: o.searchsorted(o.cumsum(s, 0), x),
        lambda t, s, x: t.searchsorted(s.cumsum(0), x, out_int32=True),
    ),
    "bucketize": Row(
        lambda n: [floats((n,)), Floats((1024,), 0.1, 0.2)],
        lambda o, x, s: o.bucketize(x, o.cumsum(s, 0)),
        lambda t, x, s: t.bucketize(x, s.cumsum(0)),
    ),
    "nn.cosine_similarity": Row(
        two, lambda o, x, y: o.nn.cosine_similarity(x, y), lambda t, x, y: t.nn.functional.cosine_similarity(x, y)
    ),
}
PRODUCTS: dict[str, Row] = {
    "dot": Row(lambda n: [floats((n,))] * 2, lambda o, x, y: o.dot(x, y), lambda t, x, y: t.dot(x, y)),
    "einsum": Row(
        product,
        lists(lambda o, xs: o.einsum(xs, "ij,jk->ki")),
        lists(lambda t, xs: t.einsum("ij,jk->ki", *xs).contiguous()),
    ),
    "linear": Row(
        lambda n: [*product(n), floats(product(n)[1].shape[:1])],
        lambda o, x, w, b: o.linear(x, w, b),
        lambda t, x, w, b: t.nn.functional.linear(x, w, b),
    ),
    "matmul": Row(product, lambda o, x, y: o.matmul(x, y), lambda t, x, y: x @ y),
    "outer": Row(
        lambda n: [floats((columns(n),)), floats((n // columns(n),))],
        lambda o, x, y: o.outer(x, y),
        lambda t, x, y: t.outer(x, y),
    ),
    "tensordot": Row(product, lambda o, x, y: o.tensordot(x, y, 1), lambda t, x, y: t.tensordot(x, y, 1)),
    "nn.attention": Row(heads, lambda o, q, k, v: o.nn.attention(q, k, v), attention),
    "nn.rotary_embedding": Row(
        lambda n: [
            floats(matrix(n)),
            floats((matrix(n)[0], matrix(n)[1] // 2)),
            floats((matrix(n)[0], matrix(n)[1] // 2)),
        ],
        lambda o, x, c, s: o.nn.rotary_embedding(x, c, s),
    ),
}
GATHERING: dict[str, Row] = {
    "gather_elements": Row(elements, lambda o, x, i: o.gather_elements(x, i, 0), lambda t, x, i: x.gather(0, i)),
    "gather_nd": Row(
        lambda n: [floats(matrix(n)), Ints((matrix(n)[0], 1), 0, matrix(n)[0])],
        lambda o, x, i: o.gather_nd(x, i),
        lambda t, x, i: x[i[:, 0]],
    ),
    "index_tensor": Row(chosen_rows, lambda o, x, i: o.index_tensor(x, [i]), lambda t, x, i: x[i]),
    "ravel_multi_index": Row(
        lambda n: [Ints((n,), 0, 100)] * 2, lists(lambda o, xs: o.ravel_multi_index(xs, (100, 100)))
    ),
    "take": Row(chosen_rows, lambda o, x, i: o.take(x, i, 0), lambda t, x, i: x.index_select(0, i)),
    "take_gradient": Row(
        chosen_rows,
        lambda o, x, i: o.take_gradient(x, i, x.shape[0], 0),
        lambda t, x, i: t.zeros_like(x).index_add(0, i, x),
    ),
    "nn.embedding": Row(
        chosen_rows, lambda o, x, i: o.nn.embedding(i, x), lambda t, x, i: t.nn.functional.embedding(i, x)
    ),
    "reverse_sequence": Row(
        lambda n: [floats(matrix(n)), Ints(matrix(n)[:1], 1, matrix(n)[1])],
        lambda o, x, i: o.reverse_sequence(x, i),
    ),
    "index_put": Row(
        lambda n: [floats(matrix(n)), Ints(matrix(n)[:1], 0, matrix(n)[0]), floats(matrix(n))],
        lambda o, x, i, v: o.index_put(x, [i], v, True),
        lambda t, x, i, v: x.index_put((i,), v, True),
    ),
    "scatter_elements": Row(
        scattered, lambda o, x, i, v: o.scatter_elements(x, i, v, 0, "add"), lambda t, x, i, v: x.scatter_add(0, i, v)
    ),
    "scatter_nd": Row(
        lambda n: [floats(matrix(n)), Ints((matrix(n)[0], 1), 0, matrix(n)[0]), floats(matrix(n))],
        lambda o, x, i, v: o.scatter_nd(x, i, v, "add"),
        lambda t, x, i, v: x.index_add(0, i[:, 0], v),
    ),
    "segment_reduce": Row(
        chosen_rows,
        lambda o, x, i: o.segment_reduce(x, i, x.shape[0]),
        lambda t, x, i: t.zeros_like(x).index_add(0, i, x),
    ),
}
LAYERS: dict[str, Row] = {
    "nn.glu": Row(rows, lambda o, x: o.nn.glu(x), lambda t, x: t.nn.functional.glu(x)),
    "nn.prelu": Row(
        lambda n: channelwise(n)[:2], lambda o, x, w: o.nn.prelu(x, w), lambda t, x, w: t.nn.functional.prelu(x, w)
    ),
    "nn.batch_norm": Row(
        lambda n: [*channelwise(n), floats(images(n)[1:2]), unit(images(n)[1:2])],
        lambda o, x, g, b, m, v: o.nn.batch_norm(x, g, b, m, v)[0],
        lambda t, x, g, b, m, v: t.nn.functional.batch_norm(x, m, v, g, b, True),
        3,
    ),
    "nn.layer_norm": Row(
        scaled,
        lambda o, x, g, b: o.nn.layer_norm(x, g, b),
        lambda t, x, g, b: t.nn.functional.layer_norm(x, g.shape, g, b),
    ),
    "nn.rms_norm": Row(
        lambda n: scaled(n)[:2],
        lambda o, x, w: o.nn.rms_norm(x, w),
        lambda t, x, w: t.nn.functional.rms_norm(x, w.shape, w, 1e-5),
    ),
    "nn.group_norm": Row(
        channelwise,
        lambda o, x, g, b: o.nn.group_norm(x, g, b, 2, 1, [2, 3]),
        lambda t, x, g, b: t.nn.functional.group_norm(x, 2, g, b),
    ),
    "nn.instance_norm": Row(
        channelwise,
        lambda o, x, g, b: o.nn.instance_norm(x, g, b, 1, [2, 3]),
        lambda t, x, g, b: t.nn.functional.instance_norm(x, None, None, g, b),
    ),
    "image.affine_grid": Row(
        lambda n: [floats((2, 2, 3)), columns(n) // 2],
        lambda o, x, s: o.image.affine_grid(x, (s, s)),
        lambda t, x, s: t.nn.functional.affine_grid(x, (2, 1, s, s), True).permute(0, 3, 1, 2).contiguous(),
    ),
    "image.grid_sample": Row(
        lambda n: [floats(images(n)), floats((images(n)[0], 2, *images(n)[2:]))],
        lambda o, x, g: o.image.grid_sample(x, g),
        lambda t, x, g: t.nn.functional.grid_sample(x, g.permute(0, 2, 3, 1), align_corners=True),
    ),
}
PLACES = {1: "linear", 2: "bilinear", 3: "trilinear"}
for _k in (1, 2, 3):
    LAYERS |= {
        f"image.resize{_k}d": Row(
            lambda n, k=_k: [floats(images(n // 2**k, k))],
            lambda o, x, k=_k: getattr(o.image, f"resize{k}d")(x, tuple(2 * s for s in x.shape[2:])),
            lambda t, x, k=_k: t.nn.functional.interpolate(x, scale_factor=2, mode=PLACES[k]),
        ),
        f"nn.conv{_k}d": Row(
            filters(_k),
            lambda o, x, w, k=_k: getattr(o.nn, f"conv{k}d")(x, w, 1, 1),
            lambda t, x, w, k=_k: getattr(t.nn.functional, f"conv{k}d")(x, w, None, 1, 1),
        ),
        f"nn.conv{_k}d_transpose": Row(
            filters(_k),
            lambda o, x, w, k=_k: getattr(o.nn, f"conv{k}d_transpose")(x, w, 1, 1),
            lambda t, x, w, k=_k: getattr(t.nn.functional, f"conv_transpose{k}d")(x, w, None, 1, 1),
        ),
        f"nn.avg_pool{_k}d": Row(
            pictures(_k),
            lambda o, x, k=_k: getattr(o.nn, f"avg_pool{k}d")(x, 2, 2),
            lambda t, x, k=_k: getattr(t.nn.functional, f"avg_pool{k}d")(x, 2),
        ),
        f"nn.max_pool{_k}d": Row(
            pictures(_k),
            lambda o, x, k=_k: getattr(o.nn, f"max_pool{k}d")(x, 2, 2),
            lambda t, x, k=_k: getattr(t.nn.functional, f"max_pool{k}d")(x, 2),
        ),
        f"nn.lp_pool{_k}d": Row(
            pictures(_k),
            lambda o, x, k=_k: getattr(o.nn, f"lp_pool{k}d")(x, 2.0, 2, 2),
            lambda t, x, k=_k: getattr(t.nn.functional, f"lp_pool{k}d")(x, 2.0, 2),
        ),
        f"nn.adaptive_avg_pool{_k}d": Row(
            pictures(_k),
            lambda o, x, k=_k: getattr(o.nn, f"adaptive_avg_pool{k}d")(x, 3),
            lambda t, x, k=_k: getattr(t.nn.functional, f"adaptive_avg_pool{k}d")(x, 3),
        ),
        f"nn.global_avg_pool{_k}d": Row(
            pictures(_k),
            lambda o, x, k=_k: getattr(o.nn, f"global_avg_pool{k}d")(x),
            lambda t, x, k=_k: getattr(t.nn.functional, f"adaptive_avg_pool{k}d")(x, 1),
        ),
        f"nn.global_max_pool{_k}d": Row(
            pictures(_k),
            lambda o, x, k=_k: getattr(o.nn, f"global_max_pool{k}d")(x),
            lambda t, x, k=_k: getattr(t.nn.functional, f"adaptive_max_pool{k}d")(x, 1),
        ),
    }


def _loss(name: str, arguments: Callable[[int], list[Any]], wrt: int = 1, theirs: bool = True, **options: Any) -> Row:
    return Row(
        arguments,
        lambda o, *args: getattr(o.nn, name)(*args, **options),
        (lambda t, *args: getattr(t.nn.functional, name)(*args, **options)) if theirs else None,
        wrt,
    )


def pair_labels(n: int) -> list[Any]:
    """Two vectors for each row, and whether they are alike."""
    return [*two(n), Floats(matrix(n)[:1], 1.0, 1.001)]


LOSSES: dict[str, Row] = {
    "nn.cross_entropy": _loss("cross_entropy", labels),
    "nn.nll_loss": _loss("nll_loss", labels),
    "nn.multi_margin_loss": _loss("multi_margin_loss", labels),
    "nn.l1_loss": _loss("l1_loss", two),
    "nn.mse_loss": _loss("mse_loss", two),
    "nn.smooth_l1_loss": _loss("smooth_l1_loss", two),
    "nn.huber_loss": _loss("huber_loss", two),
    "nn.soft_margin_loss": _loss("soft_margin_loss", signs),
    "nn.hinge_loss": _loss("hinge_loss", signs, theirs=False),
    "nn.hinge_embedding_loss": _loss(
        "hinge_embedding_loss", lambda n: [floats(matrix(n)), Floats(matrix(n), 1.0, 1.0001)]
    ),
    "nn.kl_div": _loss("kl_div", probabilities),
    "nn.binary_cross_entropy": _loss("binary_cross_entropy", probabilities),
    "nn.binary_cross_entropy_with_logits": _loss("binary_cross_entropy_with_logits", signs),
    "nn.poisson_nll_loss": _loss("poisson_nll_loss", probabilities),
    "nn.gaussian_nll_loss": _loss("gaussian_nll_loss", lambda n: [*two(n), unit(matrix(n))]),
    "nn.margin_ranking_loss": _loss("margin_ranking_loss", lambda n: [*two(n), Floats(matrix(n), 1.0, 1.001)], 2),
    "nn.cosine_embedding_loss": Row(
        lambda n: [*two(n), Ints(matrix(n)[:1], 1, 2)],
        lambda o, x, y, i: o.nn.cosine_embedding_loss(x, y, o.astype(i, "float32")),
        lambda t, x, y, i: t.nn.functional.cosine_embedding_loss(x, y, i),
        2,
    ),
    "nn.triplet_margin_loss": _loss("triplet_margin_loss", lambda n: [floats(matrix(n))] * 3, 3),
    "nn.cross_entropy_with_logits": Row(
        two, lambda o, x, y: o.nn.cross_entropy_with_logits(x, y), lambda t, x, y: -(x * y).sum() / x.shape[0], 1
    ),
}

# Products of adjoints: PyTorch has the plain ones.
GUARDED: dict[str, Row] = {
    "multiply_no_nan": Row(two, lambda o, x, y: o.multiply_no_nan(x, y), lambda t, x, y: x * y),
    "xdivy": Row(probabilities, lambda o, x, y: o.xdivy(x, y), lambda t, x, y: x / y),
    "nn.with_divisor": Row(two, lambda o, x, y: o.nn.with_divisor(o.sum(x * y), 1.0), lambda t, x, y: (x * y).sum()),
}

ROWS: dict[str, Row] = MOVING | CREATING | REDUCING | PRODUCTS | GATHERING | LAYERS | LOSSES | GUARDED
