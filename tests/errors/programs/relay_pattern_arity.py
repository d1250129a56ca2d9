# A pattern with too few fields.
from pullback import relay


SOURCE = """#[version = "0.0.5"]
type Pair { Pair(Tensor[(), float32], Tensor[(), float32]) }
def @first(%p: Pair) -> Tensor[(), float32] { match (%p) { Pair(%a) => %a } }
"""


def mistake():
    relay.transform.InferType()(relay.fromtext(SOURCE))
