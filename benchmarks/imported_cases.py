"""Models of PyTorch whose training steps are timed, imported and in PyTorch: each with a batch, a loss, an optimizer.

Weights are drawn, the same in every process: what a step takes does not depend on them. Nothing is dropped, so that all
sides compute the same losses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

SEED = 0
CLASSES, LABELS = 1000, 2  # of images, of sentences
WORDS_OF_GPT2, WORDS_OF_BERT = 50257, 30522
TOLERANCE = 2e-3  # relative, between sides, of ten losses in float32


@dataclass(frozen=True)
class Imported:
    """``module`` makes PyTorch's module, ``inputs`` and ``targets`` a batch; ``optimizer`` is "sgd", with a momentum of
    0.9, or "adamw". ``output``: the name of the output that the loss takes, where a module returns several. The loss is
    a cross entropy of the last axis of logits; ``needs``: packages beside torch."""

    title: str
    module: Callable[[], Any]
    inputs: Callable[[np.random.Generator], Mapping[str, np.ndarray]]
    targets: Callable[[np.random.Generator], np.ndarray]
    optimizer: str
    learning_rate: float
    output: str | None = None
    needs: tuple[str, ...] = ()

    @property
    def has_images(self) -> bool:
        return any(array.ndim == 4 for array in self.inputs(np.random.default_rng(SEED)).values())

    def made(self) -> tuple[Any, dict[str, np.ndarray], np.ndarray]:
        """The module, in the form for training, inputs by name, and targets."""
        import torch

        torch.manual_seed(SEED)
        source = np.random.default_rng(SEED)
        return self.module().train(), dict(self.inputs(source)), self.targets(source)


def _images(batch: int, size: int, name: str = "x") -> Callable[[np.random.Generator], Mapping[str, np.ndarray]]:
    return lambda source: {name: source.standard_normal((batch, 3, size, size), dtype=np.float32)}


def _classes(count: int, *shape: int) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda source: source.integers(0, count, shape)


def _sentences(source: np.random.Generator) -> Mapping[str, np.ndarray]:
    """Sixteen, of 16 to 64 words."""
    lengths = source.integers(16, 65, 16)
    lengths[0] = 64
    mask = (np.arange(64) < lengths[:, None]).astype(np.int64)
    return {"input_ids": source.integers(1000, WORDS_OF_BERT, (16, 64)) * mask, "attention_mask": mask}


def _resnet18() -> Any:
    from benchmarks.models_torch import ResNet18

    return ResNet18(CLASSES)


def _mobilenet() -> Any:
    from benchmarks.models_torch import MobileNetV2

    return MobileNetV2(CLASSES, dropout=0.0)


def _vit() -> Any:
    from benchmarks.models_torch import ViT

    return ViT(CLASSES)


def _minilm() -> Any:
    from torch import nn

    from benchmarks.models_torch import Sentences, bert

    class Classifier(nn.Module):
        """MiniLM's vector of a sentence, and a linear layer."""

        def __init__(self) -> None:
            super().__init__()
            self.sentences, self.head = Sentences(bert(words=WORDS_OF_BERT)), nn.Linear(384, LABELS)

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.head(self.sentences(input_ids, attention_mask))

    return Classifier()


def _gpt2() -> Any:
    from benchmarks.models_torch import gpt2

    return gpt2(words=WORDS_OF_GPT2)


def _efficientnet() -> Any:
    from efficientnet_lite_pytorch import EfficientNet

    options = {"image_size": 96, "dropout_rate": 0.0, "drop_connect_rate": 0.0, "num_classes": CLASSES}
    return EfficientNet.from_name("efficientnet-lite0", **options)


CASES = {
    "resnet18": Imported(
        "ResNet-18, 8 images of 3×128×128, SGD", _resnet18, _images(8, 128), _classes(CLASSES, 8), "sgd", 1e-4
    ),
    "mobilenet_v2": Imported(
        "MobileNetV2, 16 images of 3×96×96, SGD", _mobilenet, _images(16, 96), _classes(CLASSES, 16), "sgd", 1e-3
    ),
    "minilm": Imported(
        "MiniLM, fine-tuned, 16 sentences of at most 64 words, AdamW", _minilm, _sentences, _classes(LABELS, 16),
        "adamw", 2e-5, needs=("transformers",),
    ),
    "vit_tiny": Imported(
        "ViT-tiny, 32 images of 3×224×224, AdamW", _vit, _images(32, 224), _classes(CLASSES, 32), "adamw", 1e-4
    ),
    "gpt2": Imported(
        "GPT-2 small, 1 text of 128 words, AdamW", _gpt2,
        lambda source: {"input_ids": source.integers(0, WORDS_OF_GPT2, (1, 128))}, _classes(WORDS_OF_GPT2, 1, 128),
        "adamw", 1e-4, output="logits", needs=("transformers",),
    ),
    "efficientnet_lite0": Imported(
        "EfficientNet-lite0, 16 images of 3×96×96, SGD", _efficientnet, _images(16, 96, "inputs"),
        _classes(CLASSES, 16), "sgd", 1e-4, needs=("efficientnet_lite_pytorch",),
    ),
}  # fmt: skip
