# A text that is nested too deeply to be read.
import pullback


def mistake():
    minus = "-" * 100_000
    pullback.script.from_source(f'@R.function\ndef main(x: R.Tensor((2,), "float32")):\n    return {minus}x')
