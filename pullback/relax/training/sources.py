"""What users give ``fit``, ``evaluate`` and ``predict`` for data, as a source of batches.

    arrays                      one or several, lists, data frames, memory maps, what knows DLPack: a DataSet
    examples by their number    what has __len__ and __getitem__, as torch's Dataset: Items
    batches                     what can be iterated over, as torch's DataLoader, or a function that returns an
                                iterator for each epoch: Batches

A batch, and an example, is (x, y), (x, y, weight) or a dict by the names of inputs and targets; x and y are an array, a
list of several, or a dict by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError
from pullback.relax.training.data import DataSet, Source, check_rows
from pullback.relax.training.interface import Interface, Slot
from pullback.relax.training.shares import ALONE, Share
from pullback.relax.training.streams import Batches, Items, Rows, numbered, stacked
from pullback.relax.training.values import as_array, check_names, for_each, is_exact
from pullback.relax.training.weights import WEIGHTS, check_weights, class_weights
from pullback.runtime.interchange import is_python_data
from pullback.runtime.tensor import Tensor

_KINDS = (
    "give arrays, examples by their number (__len__ and __getitem__), an iterable of batches (x, y), or a function that"
    " returns such an iterator for each epoch"
)


@dataclass(frozen=True)
class Reading:
    """How data is read: for which interface, ``weighted`` where rows have weights; whether casts have to be ``exact``;
    whether there are targets; what classes weigh; how many batches an epoch takes, and how many epochs there are; what
    is read of each batch."""

    plain: Interface
    weighted: Callable[[], Interface]
    exact: bool = False
    targets: bool = True
    class_weight: Any = None
    steps: int | None = None
    epochs: int = 1
    share: Share = ALONE
    _checked: dict[Any, list[bool]] = field(default_factory=dict)  # by the types of a batch's arrays

    def interface(self, has_weights: bool) -> Interface:
        return self.weighted() if has_weights else self.plain

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """Inputs, and targets where they are read, without the weights."""
        return (*self.plain.inputs, *(self.plain.targets if self.targets else ()))

    # ---- one batch, or one example -----------------------------------------------------------------------------------

    def parts(self, given: Any) -> tuple[list[Any], Any]:
        """What a batch gives for each input and target, and its weights or None."""
        if isinstance(given, Mapping):
            weights = given.get(WEIGHTS) if WEIGHTS not in {slot.name for slot in self.slots} else None
            values = {k: v for k, v in given.items() if weights is None or k != WEIGHTS}
            known = (*self.plain.inputs, *self.plain.targets)
            if not self.targets:
                values = {k: v for k, v in values.items() if k not in {slot.name for slot in self.plain.targets}}
                known = self.slots
            check_names(values, known, "input or target")
            return [values[slot.name] for slot in self.slots], weights
        several = isinstance(given, (tuple, list))
        if not self.targets or not self.plain.targets:
            return for_each(self._inputs_of(given), self.plain.inputs, "input"), None
        if not several or len(given) not in (2, 3):
            got = f"{len(given)} of them" if several else f"{type(given).__name__} alone"
            raise ArgumentError(
                f"expected (x, y) or (x, y, weight), got {got}",
                hint="inputs and targets come together, as a tuple or as a dict by their names",
            )
        x, y = (for_each(given[0], self.plain.inputs, "input"), for_each(given[1], self.plain.targets, "target"))
        return [*x, *y], given[2] if len(given) == 3 else None

    def _inputs_of(self, given: Any) -> Any:
        """The inputs of a batch whose targets, if it has any, are not read."""
        if not isinstance(given, (tuple, list)) or not given:
            return given
        count = len(self.plain.inputs)
        if count > 1 and len(given) == count and not isinstance(given[0], (tuple, list, Mapping)):
            return given
        return given[0]

    def read(self, has_weights: bool, given: Any) -> Rows:
        """A batch, checked."""
        values, weights = self.parts(given)
        return self.rows(values, weights, has_weights)

    def rows(self, values: list[Any], weights: Any, has_weights: bool) -> Rows:
        arrays = [as_array(value, slot) for value, slot in zip(values, self.slots, strict=True)]
        types = tuple([(a.shape, a.dtype, is_python_data(v)) for a, v in zip(arrays, values, strict=True)])
        if types not in self._checked:  # most batches are like one before
            self._checked[types] = self._check(arrays, values)
        exact = list(self._checked[types])
        if not self.targets:
            return Rows(arrays, exact)
        if self.class_weight is not None:
            weights = class_weights(self.class_weight, arrays[len(self.plain.inputs)], self.plain, weights)
        if (weights is not None) != has_weights:
            raise ArgumentError(
                "some batches have weights for their rows, some have none",
                hint="give all of them (x, y, weight): a weight of 1 changes nothing",
            )
        if has_weights:
            arrays.append(check_weights(weights, len(arrays[0])))
            exact.append(False)
        return Rows(arrays, exact)

    def _check(self, arrays: list[np.ndarray], values: list[Any]) -> list[bool]:
        """Raise an error unless shapes fit; returns which arrays may not be rounded."""
        check_rows(arrays, self.plain if self.targets else without_targets(self.plain))
        if not len(arrays[0]):
            raise ArgumentError("a batch has 0 rows", hint="leave empty batches out")
        triples = zip(values, arrays, self.slots, strict=True)
        return [is_exact(value, array, slot, self.exact) for value, array, slot in triples]

    def has_weights(self, given: Any) -> bool:
        """Whether a batch, or an example, has weights."""
        return self.targets and (self.class_weight is not None or self.parts(given)[1] is not None)

    # ---- sources -----------------------------------------------------------------------------------------------------

    def source(self, x: Any, y: Any = None, weights: Any = None) -> Source:
        """The source of what a user gave; raises what is wrong with it before anything is trained."""
        if gives_arrays(x, y):
            return self.by_class(self.arrays(x, y, weights))
        result = self._stream(x, weights)
        result.share = self.share
        return result

    def _stream(self, x: Any, weights: Any) -> Source:
        """The source of what is read batch by batch."""
        if isinstance(self.class_weight, str):
            raise ArgumentError(
                f"class_weight={self.class_weight!r} has to see all targets, but the data comes batch by batch",
                hint="give a dict from each class to its weight",
            )
        if weights is not None:
            raise ArgumentError(
                "sample_weight is for arrays", hint="batches bring their own weights: (x, y, weight), or a dict"
            )
        if hasattr(x, "__getitem__") and hasattr(x, "__len__") and not isinstance(x, type):
            return self._items(x)
        if not isinstance(x, type) and (hasattr(x, "__iter__") or callable(x)):
            return self._batches(x)
        given = f"the class {x.__name__}" if isinstance(x, type) else type(x).__name__
        raise ArgumentError(f"expected data, got {given}", hint=_KINDS)

    def arrays(self, x: Any, y: Any, weights: Any) -> DataSet:
        if not self.targets:
            inputs = for_each(x, self.plain.inputs, "input")
            return DataSet(inputs, without_targets(self.plain), self.exact, self.steps)
        if y is None and isinstance(x, Mapping) and self.plain.targets and self.plain.targets[0].name in x:
            values, own = self.parts(x)
            weights = own if weights is None else weights
        elif y is None and self.plain.targets:
            raise ArgumentError(
                "the targets are missing: x is an array, so y is needed too",
                hint="write fit(x, y); what gives both is an iterable of batches (x, y), or examples by their number",
            )
        elif not _is_array(x) and not isinstance(x, (str, bytes, Iterator)):
            raise ArgumentError(
                f"x is a {type(x).__name__}, which gives its targets itself, but there is y too",
                hint="leave y out: fit(x)",
            )
        else:
            values = for_each(x, self.plain.inputs, "input")
            values += for_each(() if y is None else y, self.plain.targets, "target")
        data = DataSet(values, self.plain, self.exact, self.steps)
        data.share = self.share
        return data if weights is None else data.weighed(check_weights(weights, data.rows), self.weighted())

    def by_class(self, data: DataSet) -> DataSet:
        """Rows weighed by their classes too, if they are to be."""
        if self.class_weight is None:
            return data
        weights = class_weights(self.class_weight, data.labels, self.plain, data.weights)
        return data.weighed(weights, self.weighted())

    def _items(self, x: Any) -> Source:
        rows = len(x)
        if not rows:
            raise ArgumentError("the data set is empty: it has 0 rows", hint="give at least one row")
        first = x[0]
        values, _ = self.parts(first)
        slot = self.plain.inputs[0]
        if as_array(values[0], slot).ndim == slot.info.ndim:  # its items are batches
            return self._batches(lambda: (x[number] for number in range(rows)), rows)
        has_weights = self.has_weights(first)
        fetch = partial(self._fetch, x, has_weights)
        fetch(range(1))
        return Items(fetch, rows, self._read_interface(has_weights), has_weights, self.steps)

    def _fetch(self, x: Any, has_weights: bool, numbers: Sequence[int]) -> Rows:
        """Some examples as a batch."""
        given = x.__getitems__(list(numbers)) if hasattr(x, "__getitems__") else [x[number] for number in numbers]
        read = [self.parts(example) for example in given]
        columns = [[as_array(values[k], slot) for values, _ in read] for k, slot in enumerate(self.slots)]
        arrays: list[Any] = stacked(columns, self.slots, numbers)
        weights = [w for _, w in read if w is not None]
        if len(weights) not in (0, len(read)):
            raise ArgumentError("some examples have weights, some have none", hint="give all of them (x, y, weight)")
        return self.rows(arrays, weights or None, has_weights)

    def _batches(self, x: Any, length: int | None = None) -> Source:
        once = isinstance(x, Iterator)
        begin = iter if hasattr(x, "__iter__") else _called
        if once and self.epochs > 1 and self.steps is None:
            raise ArgumentError(
                f"a {type(x).__name__} can be read only once, but it is to be read {self.epochs} times",
                hint="give a function that returns a new one for each epoch; or steps_per_epoch=, which goes on where"
                " the epoch before ended",
            )
        length = _length(x) if length is None else length
        if self.steps is not None and length is not None and length < self.steps:
            raise ArgumentError(
                f"steps_per_epoch is {self.steps}, but there are {length} batches",
                hint="leave steps_per_epoch out to take all of them in each epoch",
            )
        iterator = begin(x)
        try:
            given = next(iterator)
        except StopIteration:
            raise ArgumentError(
                f"the {type(x).__name__} is empty: it gave no batch", hint="was it read to its end before?"
            ) from None
        _check_is_batch(self, given)
        has_weights = self.has_weights(given)
        read = partial(self.read, has_weights)
        first = next(numbered(iter([given]), read))
        return Batches(
            lambda: numbered(begin(x), read), numbered(iterator, read, 2), first, once,
            self._read_interface(has_weights), has_weights, self.steps,
        )  # fmt: skip

    def _read_interface(self, has_weights: bool) -> Interface:
        return self.interface(has_weights) if self.targets else without_targets(self.plain)


def without_targets(interface: Interface) -> Interface:
    """The interface of who predicts."""
    return replace(interface, targets=())


def _called(x: Callable[[], Any]) -> Iterator[Any]:
    result = x()
    if not hasattr(result, "__iter__"):
        raise ArgumentError(f"the function returned {type(result).__name__}, which gives no batches", hint=_KINDS)
    return iter(result)


def _length(x: Any) -> int | None:
    """How many batches there are, where it says so."""
    try:
        return len(x)
    except TypeError:  # no length, or none that is known
        return None


def _check_is_batch(reading: Reading, given: Any) -> None:
    """Raise an ArgumentError for what looks like one example."""
    values, _ = reading.parts(given)
    slot = reading.plain.inputs[0]
    array = as_array(values[0], slot)
    if array.shape == slot.info.sizes[1:]:
        raise ArgumentError(
            f"the data gives single examples, {slot} of shape {array.shape}, not batches",
            hint="group them: DataLoader(data, batch_size=64), data.batch(64)",
        )


def gives_arrays(x: Any, y: Any) -> bool:
    """Whether data is arrays, not what gives inputs and targets together."""
    return y is not None or _is_array(x) or isinstance(x, (str, bytes))


def _is_array(x: Any) -> bool:
    """Whether it is an array, or lists or a dict of arrays."""
    if isinstance(x, (list, tuple)):
        return not x or not all(isinstance(v, (tuple, Mapping)) for v in x)
    if isinstance(x, (np.ndarray, np.generic, Tensor, Mapping, int, float, range)) or x is None:
        return True
    return any(hasattr(x, name) for name in ("__dlpack__", "__array__", "iloc")) or _has_buffer(x)


def _has_buffer(x: Any) -> bool:
    try:
        return memoryview(x) is not None
    except TypeError:
        return False
