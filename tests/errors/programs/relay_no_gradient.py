# Two operators have no gradient: both are listed.
from pullback import relay


for name in ("own.sharpen", "own.quantize"):
    if name not in relay.op.Op.registry:
        relay.op.register(name).set_num_inputs(1).add_type_rel("Identity")

x = relay.var("x", shape=(2, 3))
sharpen, quantize = relay.op.get("own.sharpen"), relay.op.get("own.quantize")
f = relay.Function([x], quantize(relay.exp(sharpen(x))))


def mistake():
    relay.transform.gradient(f)
