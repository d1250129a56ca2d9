# Labels of all rows in one line, as PyTorch also takes them.
from pullback.script import relax as R


def mistake():
    @R.function
    def main(
        x: R.Tensor((4, 2, 3), "float32"),
        labels: R.Tensor((4,), "int64"),
        lengths: R.Tensor((2,), "int64"),
        counts: R.Tensor((2,), "int64"),
    ):
        y = R.nn.ctc_loss(R.nn.log_softmax(x), labels, lengths, counts)
        return y
