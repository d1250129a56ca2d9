"""PyTorch's side of a step over ranks, which talk by gloo.

Variants: `ddp`, DistributedDataParallel; `zero1`, the same with ZeroRedundancyOptimizer; `fsdp`, FSDP2 over each layer
or block, whose parameters are gathered for the forward pass, and again for the backward one; `fsdp-keep` keeps them in
between, as ZeRO's second stage does.

The loss that a step returns is that of the rank's rows: to add up those of all ranks would be a message more.
"""

from __future__ import annotations

import gc
import os
from typing import Any

from benchmarks.scale_models import LEARNING_RATE, MODELS, initial
from benchmarks.workers.protocol import Cases, Step, serve, start_watching_memory, versions_of

VARIANTS = ("ddp", "zero1", "fsdp", "fsdp-keep")


def load() -> dict[str, str]:
    import torch
    import torch.distributed

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    place = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
    torch.distributed.init_process_group("gloo", init_method=f"file://{os.environ['INIT_FILE']}", **place)
    return versions_of("torch")


def prepare(name: str, variant: str) -> Cases:
    step = step_of(name, variant)
    step()
    gc.collect()
    start_watching_memory()
    return {"step": step}


def step_of(name: str, variant: str) -> Step:
    """A step of training on this rank's rows."""
    import torch
    from torch import distributed

    model, rank, ranks = MODELS[name], distributed.get_rank(), distributed.get_world_size()
    net = model.net(torch.nn)
    net.load_state_dict({key: torch.from_numpy(array) for key, array in initial(net).items()})
    x, y = (torch.from_numpy(array).chunk(ranks)[rank].contiguous() for array in model.data())
    net, optimizer = (fully_sharded if variant.startswith("fsdp") else data_parallel)(net, variant)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def data_parallel(net: Any, variant: str) -> tuple[Any, Any]:
    """Gradients are views of the buckets that are sent, which saves a copy. Adam is the fused one, the fastest."""
    import torch
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    net = DistributedDataParallel(net, gradient_as_bucket_view=True)
    if variant == "zero1":
        return net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=LEARNING_RATE, fused=True)
    return net, torch.optim.Adam(net.parameters(), lr=LEARNING_RATE, fused=True)


def fully_sharded(net: Any, variant: str) -> tuple[Any, Any]:
    """Each layer of a perceptron and each block of a transformer is gathered by itself, the rest together."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    options = {
        "mesh": init_device_mesh("cpu", (torch.distributed.get_world_size(),)),
        "reshard_after_forward": variant != "fsdp-keep",
    }
    for part in getattr(net, "blocks", net):
        if any(True for _ in part.parameters()):
            fully_shard(part, **options)
    fully_shard(net, **options)
    return net, torch.optim.Adam(net.parameters(), lr=LEARNING_RATE, fused=True)


if __name__ == "__main__":
    serve(load, prepare)
