# There is no kind of targets "classes".
import pullback
from pullback.relax.training import loss, optimizer
from tests.errors.models import linear


def mistake():
    pullback.trainer(linear, loss.CrossEntropyLoss(), optimizer.SGD(0.1), targets="classes")
