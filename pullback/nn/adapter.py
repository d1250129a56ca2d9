"""Adapters: a model is fine-tuned by small layers behind some of its layers, which stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, suggestion
from pullback.ir.module import IRModule
from pullback.ir.words import guided
from pullback.nn.export import export_layers
from pullback.nn.module import Module
from pullback.nn.parameter import Parameter
from pullback.nn.updates import Bottleneck, freeze_others, own_parameters
from pullback.relax.convention import BACKBONE, PARAMETER, STATE
from pullback.relax.expr import Function, Var
from pullback.relax.struct_info import TensorStructInfo, as_tensor
from pullback.relax.training.adapters import (
    BEGIN,
    BOTTLENECKS,
    FEW,
    PARTS,
    ZEROS,
    initial,
    means,
    sizes_of_parts,
    target_patterns,
    with_parameters,
)
from pullback.relax.training.setup_trainer import check_backbone, with_backbone
from pullback.relax.training.subset import matching, patterns
from pullback.relax.transform.inline_functions import inline_calls
from pullback.relax.transform.insert_adapters import (
    ACTIVATIONS,
    LayerAdapter,
    layer_names,
    result_of,
    width_of,
    with_adapters,
)

__all__ = ["Adapter"]


@guided
class Adapter:
    """Fine-tuning by bottlenecks behind layers: the result h of a layer becomes h + U·act(D·h + d) + u, of which only
    D, (size, width), U, (width, size), and their biases are trained. Houlsby et al., Parameter-Efficient Transfer
    Learning for NLP, 2019.

    >>> adapter = nn.Adapter(16, targets=["*.attention.output.dense", "*.output.dense"], modules_to_save="head.*")
    >>> trainer = pullback.trainer(net, "cross_entropy", "adamw", example=x, adapt=adapter)

    The parameters of a layer ``fc`` are ``fc.adapter_down.weight``, ``fc.adapter_down.bias``, ``fc.adapter_up.weight``
    and ``fc.adapter_up.bias``. D begins uniform in ±1/√width, all else with zeros: at first the model computes what it
    did before.

    Args:
        size: of the bottleneck.
        targets: patterns of the names of layers, as of a shell, or the last parts of a name; each layer is called once
            and returns one tensor. Those of a script's function are its variables.
        activation: gelu, relu, silu or tanh.
        axis: of the layer's result along which D multiplies, 1 of an image's channels.
        modules_to_save: patterns of parameters that are trained as they are, such as a new head.

    Raises:
        ArgumentError: for a size below 1, an unknown activation, and targets that are no patterns.
    """

    def __init__(
        self,
        size: int,
        targets: Sequence[str] | str = (),
        activation: str = "gelu",
        *,
        axis: int = -1,
        modules_to_save: Sequence[str] | str = (),
    ) -> None:
        for name, value, least in (("size", size, 1), ("axis", axis, None)):
            is_int = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
            if not is_int or (least is not None and value < least):
                raise ArgumentError(f"{name} must be an int{' ≥ 1' if least else ''}, got {value!r}")
        if activation not in ACTIVATIONS:
            meant = suggestion(activation, ACTIVATIONS) if isinstance(activation, str) else ""
            raise ArgumentError(
                f"there is no activation {activation!r}{meant}", hint=f"they are {', '.join(ACTIVATIONS)}"
            )
        self.size, self.activation, self.axis = int(size), activation, int(axis)
        self.targets = target_patterns(targets)
        self.modules_to_save = patterns("modules_to_save", modules_to_save)

    def __call__(self, model: Any, *example: Any) -> Any:
        """Put adapters behind the targets, and freeze the model's other parameters but ``modules_to_save``. A module
        gets them in place and is returned; of an IRModule another one is.

        ``example``: of each input of a module, as in :meth:`Module.export`; imported models need none. Raises
        ArgumentError for targets that match nothing, and layers that return no tensor or several; ShapeError for those
        whose width is not fixed.
        """
        return self.apply(model, example or None)

    def apply(self, model: Any, example: Any = None) -> Any:
        """What ``pullback.trainer(…, adapt=…)`` calls: :meth:`__call__` with one example, or a tuple of them."""
        if isinstance(model, Module):
            self._into(model, model._own_example() if example is None else example)
            return model
        if isinstance(model, IRModule):
            return self._added(model)
        raise ArgumentError(f"Adapter is for an nn.Module or an IRModule, got {type(model).__name__}")

    def _into(self, module: Module, example: Any) -> None:
        if example is None:
            raise ArgumentError(
                "adapters of an nn.Module need an example of its input",
                hint="adapter(net, x), or pullback.trainer(net, …, example=x, adapt=adapter)",
            )
        exported, calls = export_layers(module, (example,))
        backbone, states = exported[BACKBONE], int(exported.attrs["state_num"])
        named = dict(module.named_modules())
        known = [name for name in layer_names(backbone) if name in named]
        chosen = self._chosen(known)
        for name in chosen:
            if named[name]._layer_adapter is not None:
                raise ArgumentError(f"layer {name} has an adapter already")
            if sum(call.name == name for call in calls) > 1:
                raise ArgumentError(
                    f"layer {name} has no one result behind which an adapter would be: it is called several times",
                    hint="take the layers inside, or the one around it",
                )
        found = {name: _widths(backbone, name, states, self.axis) for name in chosen}
        names = [names[0] for _, names in own_parameters(module).values()]
        freeze_others(module, self._saved(names))
        for name, (width, dtype) in found.items():
            shapes = sizes_of_parts(width, self.size)
            parts = [
                Parameter(s, init=ZEROS if k else BEGIN, dtype=dtype) for k, s in enumerate(shapes)
            ]  # fmt: skip
            down, down_bias, up, up_bias = parts
            for key, parameter in zip(PARTS, parts, strict=True):
                named[name]._parameters[key] = parameter
            named[name]._layer_adapter = Bottleneck((down, down_bias, up, up_bias), self.activation, self.axis)

    def _added(self, module: IRModule) -> IRModule:
        module = with_backbone(module)
        roles = check_backbone(module)
        backbone = inline_calls(module[BACKBONE], module)
        states = len(roles.taken(STATE))
        old = dict(module.attrs.get(BOTTLENECKS, {}))
        chosen = self._chosen([name for name in layer_names(backbone) if name not in old])
        new: dict[str, tuple[str, ...]] = {}
        added: dict[str, Var] = {}
        for layer in chosen:
            width, dtype = _widths(backbone, layer, states, self.axis)
            new[layer] = tuple(f"{layer}.{part}" for part in PARTS)
            infos = [TensorStructInfo(shape, dtype) for shape in sizes_of_parts(width, self.size)]
            added |= {name: Var(name, info) for name, info in zip(new[layer], infos, strict=True)}

        def change(function: Function) -> Function:
            behind = [
                LayerAdapter.made_of(layer, [added[name] for name in names], self.activation, self.axis)
                for layer, names in new.items()
            ]
            return with_adapters(function, behind, states)

        params = [backbone.params[i].name for i in roles.taken(PARAMETER)]
        saved = self._saved([name for name in params if name not in initial(module)])
        result = with_parameters(module, list(added.values()), change, saved)
        return result.with_attr(BOTTLENECKS, {**old, **new})

    def _chosen(self, layers: Sequence[str]) -> list[str]:
        """The layers that the targets mean; an ArgumentError for a pattern that means none."""
        for pattern in self.targets:
            if not any(means(pattern, layer) for layer in layers):
                listed = ", ".join(layers[:FEW]) + (f" and {len(layers) - FEW} more" if len(layers) > FEW else "")
                raise ArgumentError(
                    f"targets: no layer matches {pattern!r}{suggestion(pattern, layers)}; they are: {listed}",
                    hint="patterns are those of a shell: '*.dense', or the last part of a name: 'dense'",
                )
        return [layer for layer in layers if any(means(pattern, layer) for pattern in self.targets)]

    def _saved(self, names: Sequence[str]) -> list[str]:
        return matching("modules_to_save", self.modules_to_save, names) if self.modules_to_save else []

    def __repr__(self) -> str:
        options = [f"{self.size}", f"targets={list(self.targets)}", f"activation={self.activation!r}"]
        options += [f"axis={self.axis}"] if self.axis != -1 else []
        options += [f"modules_to_save={list(self.modules_to_save)}"] if self.modules_to_save else []
        return f"Adapter({', '.join(options)})"


def _widths(backbone: Function, layer: str, states: int, axis: int) -> tuple[int, str]:
    """The size of a layer's result along the axis, and its dtype."""
    result = result_of(backbone, layer, states)
    return width_of(result, layer, axis), as_tensor(result.struct_info).dtype
