# The older form of the constructor needs a build.
from pullback.relax import TensorStructInfo
from pullback.relax.training import loss, optimizer, SetupTrainer, Trainer
from tests.errors.models import linear, X


def mistake():
    info = TensorStructInfo((4, 2), "float32")
    trainer = Trainer(linear, 2, SetupTrainer(loss.MSELoss(), optimizer.SGD(0.1), [info, info]))
    trainer.predict(X)
