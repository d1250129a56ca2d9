# A list as long as a value says is no graph.
import numpy as np

from pullback import relay

SOURCE = """#[version = "0.0.5"]
type List[A] { Cons(A, List[A]), Nil }
def @down(%x: Tensor[(), float32]) -> List[Tensor[(), float32]] {
  if (less(%x, 1f)) { Nil } else { Cons(%x, @down(subtract(%x, 1f))) }
}
def @sum(%l: List[Tensor[(), float32]]) -> Tensor[(), float32] {
  match (%l) { Cons(%x, %rest) => add(%x, @sum(%rest)), Nil => 0f }
}
def @main(%x: Tensor[(), float32]) -> Tensor[(), float32] { @sum(@down(%x)) }
"""


def mistake():
    relay.create_executor("graph", mod=relay.fromtext(SOURCE)).evaluate()(np.float32(3))
