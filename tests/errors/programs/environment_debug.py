# The debug ladder has the rungs 0 to 5.
import pullback
from tests.errors.models import linear

# environment: PULLBACK_DEBUG=9

pullback.compile(linear)["backbone"]
