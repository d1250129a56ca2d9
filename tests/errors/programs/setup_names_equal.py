# Two parameters have one name.
from pullback.ir import IRModule
from pullback.relax import BlockBuilder, TensorStructInfo, Var, op
from pullback.relax.training import SetupTrainer, loss, optimizer


def mistake():
    info = TensorStructInfo((4, 4), "float32")
    x, w, again = (Var(name, info) for name in ("x", "w", "w"))
    builder = BlockBuilder()
    with builder.function("backbone", [x, w, again]):
        builder.emit_func_output(builder.emit(op.matmul(op.matmul(x, w), again)))
    model = IRModule(builder.get().functions, {"param_num": 2, "state_num": 0})
    SetupTrainer(loss.MSELoss(), optimizer.SGD(0.1), [info, info])(model)
