"""Models that PyTorch exports: ten training losses equal PyTorch's, and the trained file computes what it computes."""

from __future__ import annotations

import io

import numpy as np
import pytest

import pullback
from pullback import optim

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")

STEPS, ROWS = 10, 8


def mlp() -> tuple[object, tuple[int, ...]]:
    net = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    return net, (20,)


def cnn() -> tuple[object, tuple[int, ...]]:
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 8, 3, stride=2, groups=2), torch.nn.Flatten(), torch.nn.Dropout(0.0), torch.nn.Linear(72, 4),
    )  # fmt: skip
    return net, (3, 14, 14)


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.head = torch.nn.LayerNorm(16), torch.nn.Linear(16, 48), torch.nn.Linear(16, 4)

    def forward(self, x):
        parts = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (p.reshape(*p.shape[:2], 4, 4).transpose(1, 2) for p in parts)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(torch.nn.functional.gelu(y.transpose(1, 2).reshape(x.shape) + x).mean(1))


def attention() -> tuple[object, tuple[int, ...]]:
    return Attention(), (5, 16)


def exported(net: object, shape: tuple[int, ...]) -> bytes:
    """The file that PyTorch's exporter writes, with a batch of any size."""
    batch = torch.export.Dim("batch")
    program = torch.onnx.export(
        net, (torch.randn(ROWS, *shape),), dynamo=True, dynamic_shapes=({0: batch},), input_names=["x"],
        optimize=False, verbose=False, training=torch.onnx.TrainingMode.PRESERVE, keep_initializers_as_inputs=False,
    )  # fmt: skip
    buffer = io.BytesIO()
    program.save(buffer)
    return buffer.getvalue()


@pytest.mark.allowance(8)
@pytest.mark.parametrize("make", [mlp, cnn, attention], ids=["mlp", "cnn", "attention"])
def test_training_equals_pytorch(make, tmp_path):
    torch.manual_seed(0)
    net, shape = make()
    data = exported(net.eval(), shape)
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    model = pullback.from_onnx(path)
    assert set(model.state_dict()) == {k for k in net.state_dict() if "num_batches" not in k}
    generator = np.random.default_rng(0)
    x = generator.standard_normal((STEPS, ROWS, *shape)).astype("float32")
    y = generator.integers(0, 4, (STEPS, ROWS))

    net.train()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    wanted = []
    for batch, labels in zip(x, y, strict=True):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(torch.from_numpy(batch)), torch.from_numpy(labels))
        loss.backward()
        optimizer.step()
        wanted.append(loss.item())

    trainer = pullback.trainer(model, "cross_entropy", optim.SGD(lr=0.1, momentum=0.9))
    found = [float(trainer.update(batch, labels)) for batch, labels in zip(x, y, strict=True)]
    np.testing.assert_allclose(found, wanted, rtol=2e-5)
    for name, value in net.state_dict().items():
        if "num_batches" not in name:
            np.testing.assert_allclose(trainer.state_dict()[name].numpy(), value.numpy(), rtol=2e-4, atol=2e-6)

    out = tmp_path / "trained.onnx"
    trainer.to_onnx(out)
    with torch.no_grad():
        expected = net.eval()(torch.from_numpy(x[0])).numpy()
    (served,) = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"]).run(None, {"x": x[0]})
    np.testing.assert_allclose(trainer.predict(x[0]).numpy(), expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(served, trainer.predict(x[0]).numpy(), rtol=1e-4, atol=1e-5)
