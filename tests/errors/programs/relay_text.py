# Text that is no program.
from pullback import relay


SOURCE = """#[version = "0.0.5"]
def @main(%x: Tensor[(2, 3), float32]) {
  let %y = add(%x, %x;
  %y
}
"""


def mistake():
    relay.fromtext(SOURCE)
