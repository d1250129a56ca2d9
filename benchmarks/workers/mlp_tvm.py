"""Apache TVM's side of the MLP step: its own relax.training, compiled for this CPU with its default pipeline."""

from __future__ import annotations

import os

from benchmarks.workers import mlp_step
from benchmarks.workers.protocol import Cases, serve, versions_of


def load() -> dict[str, str]:
    import tvm  # noqa: F401
    from tvm import relax  # noqa: F401

    return versions_of("apache-tvm")


def prepare(variant: str) -> Cases:
    import tvm
    from tvm import relax
    from tvm.relax.training import SetupTrainer, Trainer
    from tvm.relax.training.loss import CrossEntropyLoss
    from tvm.relax.training.optimizer import SGD

    from benchmarks.workers.mlp_tvm_model import MLP

    tensor_info = getattr(relax, "TensorStructInfo", None) or relax.TensorType  # renamed in TVM 0.2x
    infos = [tensor_info((mlp_step.BATCH, mlp_step.SIZES[-1]), "float32"), tensor_info((mlp_step.BATCH,), "int64")]
    optimizer = SGD(mlp_step.LEARNING_RATE, weight_decay=mlp_step.WEIGHT_DECAY)
    module = SetupTrainer(CrossEntropyLoss(reduction="sum"), optimizer, infos)(MLP)
    device = tvm.cpu()
    machine = relax.VirtualMachine(tvm.compile(module, host_target()), device)
    trainer = Trainer(module, machine, device, False)
    trainer.load_params(mlp_step.initial_parameters())
    x, y = (tvm.runtime.tensor(array) for array in mlp_step.batch())
    return {"step": lambda: float(trainer.update(x, y).numpy())}


def host_target():
    """This machine's CPU, as TVM's own LLVM names it, with the threads that the benchmark grants."""
    import tvm

    cpu = tvm.get_global_func("target.llvm_get_system_cpu")()
    return tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": int(os.environ["OMP_NUM_THREADS"])})


if __name__ == "__main__":
    serve(load, prepare)
