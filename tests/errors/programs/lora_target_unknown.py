# The layers are fc1 and fc2.
from pullback import nn


class Net(nn.Module):
    def __init__(self):
        self.fc1, self.fc2 = nn.Linear(4, 8), nn.Linear(8, 3)


nn.LoRA(2, 4, targets=["*.query", "fc1"])(Net())
