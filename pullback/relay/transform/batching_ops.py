"""BatchingOps: parallel convolutions, denses and batched products are combined, by the three passes for these."""

from __future__ import annotations

from pullback.ir.passes import Sequential
from pullback.relay.transform.combine_parallel_batch_matmul import CombineParallelBatchMatmul
from pullback.relay.transform.combine_parallel_conv2d import CombineParallelConv2D
from pullback.relay.transform.combine_parallel_dense import CombineParallelDense


def BatchingOps() -> Sequential:  # noqa: N802
    """The pass that combines parallel convolutions, denses and batched products; each is of level 4.

        (nn.dense(%x, %a), nn.dense(%x, %b), nn.dense(%x, %c))   →   %0 = nn.batch_matmul(stack(…), stack(…)); …

    Checks: those of the three passes; each takes at least three branches.
    """
    steps = [CombineParallelConv2D(), CombineParallelDense(), CombineParallelBatchMatmul()]
    return Sequential(steps, name="BatchingOps")
