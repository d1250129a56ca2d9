# A value that no clause of a match takes.
import numpy as np

from pullback import relay


SOURCE = """#[version = "0.0.5"]
type Shape { Square(Tensor[(), float32]), Circle(Tensor[(), float32]) }
def @area(%s: Shape) -> Tensor[(), float32] { match? (%s) { Square(%a) => multiply(%a, %a) } }
def @main(%x: Tensor[(), float32]) -> Tensor[(), float32] { @area(Circle(%x)) }
"""


def mistake():
    relay.create_executor(mod=relay.fromtext(SOURCE)).evaluate()(np.float32(3))
