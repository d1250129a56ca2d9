# y belongs to another function.
from pullback.relax import BlockBuilder, TensorStructInfo, Var
from pullback.script import relax as R

source = BlockBuilder()
y = Var("y", TensorStructInfo((2, 3), "float32"))


@R.function
def main(x: R.Tensor((2, 3), "float32")):
    return R.add(x, y)
