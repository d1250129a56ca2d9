"""Apache TVM's side of a training step: its own relax.training, compiled for this CPU with its default pipeline."""

from __future__ import annotations

import os
from typing import Any

from benchmarks.models import MODELS
from benchmarks.workers.protocol import Cases, draw_model, serve, versions_of
from benchmarks.workers.relax_module import module_of, setup


def load() -> dict[str, str]:
    import tvm  # noqa: F401
    from tvm import relax  # noqa: F401

    return versions_of("apache-tvm")


def prepare(name: str, variant: str) -> Cases:
    import tvm
    from tvm import relax
    from tvm.relax import training
    from tvm.relax.training import loss, optimizer, setup_trainer, trainer  # noqa: F401 (makes them attributes)

    model = MODELS[name]
    module = setup(model, relax)(module_of(model, relax))
    device = tvm.cpu()
    machine = relax.VirtualMachine(tvm.compile(module, host_target()), device)
    side = training.Trainer(module, machine, device, False)
    side.load_params(list(model.parameters().values()))
    side.load_states(list(model.states().values()))
    x, y = (tvm.runtime.tensor(array) for array in model.data())
    return {"step": lambda: float(side.update(x, y).numpy())}


def host_target() -> Any:
    """This machine's CPU, as TVM's own LLVM names it, with the threads that the benchmark grants."""
    import tvm

    cpu = tvm.get_global_func("target.llvm_get_system_cpu")()
    return tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": int(os.environ["OMP_NUM_THREADS"])})


if __name__ == "__main__":
    serve(load, prepare, draw_model)
