"""Pullback's side of the matrix products: one graph function each, the transposes as `permute_dims`."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.workers import gemm_case
from benchmarks.workers.protocol import Cases, serve


def load() -> dict[str, str]:
    import pullback
    from pullback import relax  # noqa: F401

    return {"pullback": getattr(pullback, "__version__", "this tree")}


def prepare() -> Cases:
    import pullback
    from pullback import relax

    cases: Cases = {}
    for name in gemm_case.SHAPES:
        machine = relax.VirtualMachine(pullback.compile(module_of(name), "llvm"), pullback.cpu(0))
        a, b = (pullback.nd.array(array) for array in gemm_case.operands(name))
        main = machine["main"]
        gemm_case.check(name, main(a, b).numpy())
        cases[name] = partial(product, main, a, b)
    return cases


def module_of(name: str) -> Any:
    """A module with one function `main(a, b)`: the product of the operands, transposed as the case says."""
    import pullback

    _, _, _, transpose_a, transpose_b = gemm_case.SHAPES[name]
    a, b = gemm_case.operands(name)
    return pullback.script.from_source(f"""
from pullback.script import ir as I, relax as R

@I.ir_module
class Product:
    @R.function
    def main(a: R.Tensor({a.shape}, "float32"), b: R.Tensor({b.shape}, "float32")):
        with R.dataflow():
            left = {"R.permute_dims(a)" if transpose_a else "a"}
            right = {"R.permute_dims(b)" if transpose_b else "b"}
            out = R.matmul(left, right)
            R.output(out)
        return out
""")


def product(main: Any, a: Any, b: Any) -> None:
    main(a, b)


if __name__ == "__main__":
    serve(load, prepare)
