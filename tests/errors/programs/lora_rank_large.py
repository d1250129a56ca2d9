# fc2 has three outputs, so its weight has no rank above three.
from pullback import nn


class Net(nn.Module):
    def __init__(self):
        self.fc1, self.fc2 = nn.Linear(4, 8), nn.Linear(8, 3)


nn.LoRA(4, 8, targets="fc*")(Net())
