"""Results that are read so late that no cache holds them until then."""

from __future__ import annotations

from pullback.relax.transform.late_reads import late_reads
from pullback.script import ir as I
from pullback.script import relax as R


def test_what_waits_for_others_is_read_late() -> None:
    """The sum of h waits for the products, which touch more than 100 kB: h is not; each product is read at once."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((64, 64), "float32"), w: R.Tensor((64, 64), "float32")):
            with R.dataflow():
                h = R.matmul(x, w)
                v = R.reshape(h, (128, 32))
                parts = R.split(x, 2)
                y1 = R.matmul(x, w)
                y2 = R.matmul(y1, w)
                y3 = R.matmul(y2, w)
                y4 = R.reshape(y3, (128, 32))
                z = R.add(v, y4)
                p = R.add(parts[0], parts[0])
                R.output(z, p)
            return (z, p)

    def names(least: int, smallest: int = 1) -> dict[str, set[int]]:
        return {var.name: results for var, results in late_reads(Module["main"], smallest, least).items()}

    assert names(100_000) == {"h": {0}, "parts": {1}, "z": {0}, "p": {0}}  # nobody reads those but h
    assert names(1_000_000) == {"parts": {1}, "z": {0}, "p": {0}}
    assert names(100_000, 16_384) == {"h": {0}, "z": {0}}  # the halves are smaller


def test_updates_run_early_wherever_they_stand() -> None:
    """What stands last waits for g alone, and so does what is read with a small value from the end."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((64, 64), "float32"), w: R.Tensor((64, 64), "float32"), s: R.Tensor((1,), "float32")):
            with R.dataflow():
                g = R.matmul(x, w)
                y1 = R.matmul(x, w)
                y2 = R.matmul(y1, w)
                rate = R.exp(s)
                new = R.multiply(g, rate)
                R.output(y2, new)
            return (y2, new)

    assert "g" not in {var.name for var in late_reads(Module["main"], 1, 10_000)}
