# Text with a variable that is not bound, and an operator that there is not.
from pullback import relay


SOURCE = """#[version = "0.0.5"]
def @main(%x: Tensor[(2, 3), float32]) {
  let %y = add(%x, %z);
  sofmax(%y)
}
"""


def mistake():
    relay.fromtext(SOURCE)
