"""Regression of a table, with early stopping and R²: python examples/tabular.py (needs scikit-learn)."""

from pullback.callbacks import EarlyStopping
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import pullback
from pullback import nn, optim

x, y = load_diabetes(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(StandardScaler().fit_transform(x), y[:, None] / 100, random_state=0)
net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
trainer = pullback.trainer(net, "mse", optim.Adam(lr=1e-2), example=x_train)
stop = EarlyStopping("val_loss", patience=10, restore_best=True)
history = trainer.fit(x_train, y_train, epochs=200, validation_split=0.2, metrics=["r2"], callbacks=[stop])
print(f"{len(history)} epochs, test R² {trainer.evaluate(x_test, y_test, metrics=['r2'])['r2']:.3f}")
