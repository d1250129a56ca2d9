"""Models of PyTorch as their papers and libraries have them, of any width: benchmarks time them, tests train them."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

# -- ResNet-18: He et al., Deep Residual Learning, 2015; names as in torchvision


class BasicBlock(nn.Module):
    def __init__(self, given: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(given, planes, 3, stride, 1, bias=False), nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False), nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or given != planes:
            self.downsample = nn.Sequential(nn.Conv2d(given, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet18(nn.Module):
    def __init__(self, classes: int = 1000, width: int = 64) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        given = width
        for k, planes in enumerate((width, 2 * width, 4 * width, 8 * width), 1):
            blocks = BasicBlock(given, planes, 1 if k == 1 else 2), BasicBlock(planes, planes, 1)
            self.add_module(f"layer{k}", nn.Sequential(*blocks))
            given = planes
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(given, classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


# -- MobileNetV2: Sandler et al., Inverted Residuals and Linear Bottlenecks, 2018


def conv_bn(given: int, planes: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(given, planes, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(planes), nn.ReLU6(inplace=True))


class InvertedResidual(nn.Module):
    def __init__(self, given: int, planes: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = given * expand
        layers = [] if expand == 1 else [conv_bn(given, hidden, 1)]
        layers += [conv_bn(hidden, hidden, 3, stride, hidden), nn.Conv2d(hidden, planes, 1, bias=False)]
        self.conv, self.residual = nn.Sequential(*layers, nn.BatchNorm2d(planes)), stride == 1 and given == planes

    def forward(self, x):
        return x + self.conv(x) if self.residual else self.conv(x)


class MobileNetV2(nn.Module):
    SETTINGS = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )

    def __init__(self, classes: int = 1000, width: float = 1.0, dropout: float = 0.2, settings=SETTINGS) -> None:
        super().__init__()
        given = max(4, int(32 * width))
        layers = [conv_bn(3, given, 3, 2)]
        for expand, channels, count, stride in settings:
            planes = max(4, int(channels * width))
            for k in range(count):
                layers.append(InvertedResidual(given, planes, stride if k == 0 else 1, expand))
                given = planes
        last = max(8, int(1280 * width))
        self.features = nn.Sequential(*layers, conv_bn(given, last, 1))
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(last, classes))

    def forward(self, x):
        x = F.adaptive_avg_pool2d(self.features(x), (1, 1))
        return self.classifier(torch.flatten(x, 1))


# -- U-Net: Ronneberger et al., 2015


class UNet(nn.Module):
    def __init__(self, channels: int = 1, classes: int = 2, width: int = 64, depth: int = 4) -> None:
        super().__init__()
        widths = [width * 2**k for k in range(depth + 1)]
        self.down = nn.ModuleList(self.block(g, w) for g, w in zip([channels, *widths[:-1]], widths, strict=True))
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(g, w, 2, 2) for g, w in pairs)
        self.merge = nn.ModuleList(self.block(g, w) for g, w in pairs)
        self.head = nn.Conv2d(width, classes, 1)

    @staticmethod
    def block(given: int, width: int) -> nn.Sequential:
        layers = []
        for planes in (given, width):
            layers += [nn.Conv2d(planes, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        return nn.Sequential(*layers)

    def forward(self, x):
        kept = []
        for k, block in enumerate(self.down):
            x = block(x if k == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        for up, merge, skip in zip(self.up, self.merge, kept[-2::-1], strict=True):
            x = merge(torch.cat([skip, up(x)], dim=1))
        return self.head(x)


# -- ViT: Dosovitskiy et al., An Image Is Worth 16×16 Words, 2020


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        rows, length, width = x.shape
        qkv = self.qkv(x).reshape(rows, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = qkv.unbind(0)
        x = F.scaled_dot_product_attention(query, key, value)
        return self.proj(x.transpose(1, 2).reshape(rows, length, width))


class EncoderBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """ViT-tiny by default."""

    def __init__(
        self, classes: int = 1000, size: int = 224, patch: int = 16, width: int = 192, heads: int = 3, depth: int = 12
    ) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, width, patch, patch)
        self.cls_token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.pos_embed = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(EncoderBlock(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


# -- a tagger: a class for each word


class Tagger(nn.Module):
    def __init__(self, words: int = 50, tags: int = 7, width: int = 16, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=0)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, tags)

    def forward(self, words):
        states, _ = self.lstm(self.embed(words))
        return self.out(states).transpose(1, 2)  # (N, tags, T), as cross_entropy takes it


# -- from packages


def gpt2(width: int = 768, layers: int = 12, heads: int = 12, words: int = 50257, places: int = 1024) -> nn.Module:
    """GPT-2 small by default, without dropout: its weights are drawn."""
    import transformers

    config = transformers.GPT2Config(
        vocab_size=words, n_positions=places, n_embd=width, n_layer=layers, n_head=heads, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def bert(width: int = 384, layers: int = 6, heads: int = 12, words: int = 30522) -> nn.Module:
    """MiniLM's architecture by default, without dropout: its weights are drawn."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=words, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=4 * width, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return transformers.BertModel(config)


class Sentences(nn.Module):
    """One vector for each sentence: the mean of its words' of length 1, as MiniLM is used."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids, attention_mask):
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(states.dtype)
        return F.normalize((states * mask).sum(1) / mask.sum(1), dim=1)
