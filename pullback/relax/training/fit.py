"""Training over whole data sets: ``fit`` and ``evaluate`` of the trainer."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError
from pullback.ir.words import guided
from pullback.relax.training.callbacks.called import Callbacks
from pullback.relax.training.data import Source
from pullback.relax.training.epochs import Epochs, Run, pace_of
from pullback.relax.training.feeding import check_count
from pullback.relax.training.history import VALIDATION, Evaluation, History
from pullback.relax.training.initialize import generator
from pullback.relax.training.lr_find import LRCurve, lr_curve
from pullback.relax.training.metrics import Metrics
from pullback.relax.training.position import file_to_resume
from pullback.relax.training.progress import Progress, check_verbose
from pullback.relax.training.sources import gives_arrays
from pullback.relax.training.together import agree
from pullback.relax.transform.distributed import Distributed


@guided
class Fitting(Epochs):
    """The part of a trainer that runs over data sets."""

    _history: History
    mod: Any
    model: Any

    @property
    def history(self) -> History:
        """The epochs of all calls of ``fit`` so far, those that were interrupted too. Checkpoints do not hold it."""
        return self._history

    def fit(
        self,
        x: Any,
        y: Any = None,
        *,
        epochs: int = 1,
        batch_size: int | None = None,
        steps_per_epoch: int | None = None,
        drop_last: bool = False,
        shuffle: bool = True,
        seed: int | None = None,
        validation: Any = None,
        validation_split: float = 0.0,
        sample_weight: Any = None,
        class_weight: Any = None,
        callbacks: Any = (),
        metrics: Any = None,
        train_metrics: bool = False,
        logger: Any = None,
        verbose: Any = "auto",
        cast: bool = True,
        detect_nan: bool = False,
        resume: Any = None,
    ) -> History:
        """Train on all rows of ``x`` and ``y``, ``epochs`` times.

        Arrays of another dtype are cast batch by batch, never as a whole; their values stay as they are: scale images
        of uint8 in the model, or beforehand. Floats are rounded to the declared float type, which a warning says once
        in a process; anything else, and with ``cast=False`` everything, has to be the same number in the declared
        dtype: a DTypeError names the row.

        Of a trainer over several ranks (``distributed=``) all ranks call it with the same data: the batches are those
        of all together, of which each rank reads and computes its rows; what it returns is the same on all. Data that
        comes in batches is read by all ranks, examples by their number by one each. ``batch_size`` is a multiple of the
        number of ranks. An error in a step or in reading the data, or Ctrl-C, on one rank ends all.

        The loss of an epoch is the mean over all that its batches count, as if they were one: each batch's loss weighs
        as much as what it was divided by, such as the number of targets that are not ignored, or the sum of their
        weights. A batch that counts nothing weighs 0; where none counts anything, the loss is NaN. Losses that reduce
        by "sum" are summed, then divided by the rows. ``relax.training.loss`` says how a loss of one's own is read.
        Steps run in a native loop, which comes back to Python twenty times a second. Ctrl-C (KeyboardInterrupt) leaves
        the last complete step, and so does a step that fails, since a value of its batch is out of range: an
        ArgumentError names it.

        Args:
            x: arrays with one row for each example: NumPy's, nested lists, data frames, memory maps, what has DLPack.
                Where the model takes several inputs or targets, they are a list of arrays, or a dict by their names.
                Data that gives both comes as ``x`` alone: an object with ``__len__`` and ``__getitem__`` whose items
                are examples (a torch ``Dataset``), an iterable of batches (a torch ``DataLoader``), or a function that
                returns an iterator over batches for each epoch. A batch, and an example, is ``(x, y)``, ``(x, y,
                weight)`` or a dict by the names of inputs and targets. Such data is read by a thread, some batches
                ahead of the steps; batches come as they are, in their own order, and the model is compiled for each
                number of rows.
            y: as ``x``, for the targets.
            epochs: how many times all rows are taken.
            batch_size: by default the model's own; the last batch of an epoch has the rows that are left, and the model
                is compiled for that number of rows once.
            steps_per_epoch: how many batches an epoch takes: of arrays, the first of each epoch's order; an iterable
                goes on in the next epoch where it was, and begins anew after its end. A generator, which can be read
                only once, needs it for more than one epoch.
            drop_last: leaves out the rows of a last, smaller batch (others in each epoch, if it shuffles); validation
                takes all rows in any case.
            shuffle: draws a new order for each epoch from the trainer's generator.
            seed: restarts the generator of orders, and the random numbers of the model, such as dropout's. Both are
                saved with the trainer: training goes on after ``load`` as if it had never stopped.
            validation: inputs and targets (and weights), or any data as above, on which each epoch is evaluated: they
                give the history's "val_loss", and "val_accuracy" where the loss has classes.
            validation_split: takes this fraction of the rows of arrays for it, the last ones, before any shuffling.
            sample_weight: (rows,), what each row's loss weighs; batches bring their own. The loss is Σ w·l / Σ w then,
                where class weights and ignored targets of the loss itself count as they do without.
            class_weight: a dict from classes to the weights of their rows, 1 where it has none, or "balanced" (rows /
                (classes · rows of the class)); it is for training, not for validation.
            callbacks: Callbacks (``pullback.callbacks``), such as ``EarlyStopping(patience=3)``.
            metrics: what is measured on the validation rows besides loss and accuracy: names ("f1", "top5", "r2", …)
                and functions ``f(y_true, y_pred)`` (``pullback.training.metrics``).
            train_metrics: measures the same on the training rows, accuracy included, from the predictions of the steps
                themselves: each row's is that of the moment before its batch was trained on. Steps return their
                predictions then, so another program is compiled, and Python runs between them.
            logger: gets the metrics of each epoch (MLflow, Weights & Biases, ``logging``: see ``callbacks.Logger``);
                several are a list.
            verbose: "auto" or 1 shows a bar in a terminal, a table in a notebook, and elsewhere a line for each epoch;
                2 lines anywhere, 0 nothing.
            cast: whether floats are rounded to the declared type; False: everything has to be the same number in it.
            detect_nan: stops at the first loss that is not finite, with the trainer as it was before that step, and
                says which op is to blame; it makes steps slower. Without it, the first epoch whose loss is not finite
                gives a RuntimeWarning, and training goes on.
            resume: the path of a checkpoint to go on from, of a training that was ended or killed; with True, that of
                the callback ``Checkpoint``. It trains until the trainer has seen ``epochs`` epochs in all, and gives
                what it would have given without the interruption, bit for bit, also when the file was saved in the
                middle of an epoch: the epoch goes on at the next batch. So the same call begins a training, as long as
                there is no such file, and goes on with it. Data that comes in batches has to give the same ones again,
                and those that were done are read and left out. ``seed`` has had its effect then. Callbacks, and
                ``train_metrics`` of an epoch that goes on, begin anew.

        Returns:
            the epochs' history: ``history["val_loss"]``. ``trainer.history`` has those of earlier calls too.

        Raises:
            CheckpointError: as ``load`` does, and where the file is from within an epoch of other batches.

        Examples:
            >>> history = trainer.fit(x, y, epochs=5, batch_size=16, validation_split=0.25, verbose=0)
            >>> len(history["val_loss"])
            5
        """
        check_count("epochs", epochs, may_be_none=False)
        _check_flags(shuffle=shuffle, train_metrics=train_metrics, detect_nan=detect_nan)
        check_verbose(verbose)
        check_count("batch_size", batch_size)
        if seed is not None:
            generator(seed)  # an error comes before anything is compiled
        check_count("steps_per_epoch", steps_per_epoch)
        data, validation_data = self._sources(
            x, y, sample_weight, validation, validation_split, class_weight=class_weight, cast=cast,
            steps=steps_per_epoch, epochs=epochs,
        )  # fmt: skip
        size = self._batch_size(batch_size, data)
        _check_drop_last(drop_last, data.rows, size)
        ranks = self._placement.ranks
        _check_divides(size, data.rows, self._interface.distributed)
        self._values.check_complete(self._interface)
        self._check_frozen()
        history = History()
        measured = Metrics.of(metrics, self._interface)
        called = Callbacks(callbacks, logger, self, history, ranks.is_first)
        called.check(self._names(measured, bool(train_metrics), validation_data is not None), measured.modes)
        options = f"epochs={epochs}, shuffle={bool(shuffle)}, drop_last={bool(drop_last)}, seed={seed}"
        self._agree(data, validation_data, size, f"{options}, callbacks: {', '.join(called.names) or 'none'}")
        file = None if resume is None else file_to_resume(resume, callbacks, ranks)
        with Progress(verbose if ranks.is_first else 0, history) as progress:
            run = Run(
                data, validation_data, size, bool(shuffle), drop_last, bool(detect_nan), measured, bool(train_metrics),
                called, progress, history, pace_of(ranks, called), ranks.size > 1 and ranks.broadcast(verbose == 2),
            )  # fmt: skip
            self._go_through(run, epochs, seed, file, resumes=resume is not None)
        return history

    def _check_frozen(self) -> None:
        """Warn of parameters of the module that were frozen, or are no longer, since the step was compiled."""
        frozen = self.mod.attrs.get("frozen", ())
        parameters = () if self.model is None else self.model.named_parameters()
        changed = [name for name, p in parameters if p.requires_grad == (name in frozen)]
        if changed:
            was = f"{changed[0]} is {'frozen' if changed[0] in frozen else 'trained'}"
            message = (
                f"requires_grad of {', '.join(changed)} was changed after the trainer was made, in which {was};"
                " another trainer of the module goes on from here: pullback.trainer(net, …)"
            )
            warnings.warn(message, UserWarning, stacklevel=4)  # the call of fit, which words.py wraps

    def _names(self, metrics: Metrics, of_steps: bool, validates: bool) -> list[str]:
        """What each epoch's record will hold."""
        if of_steps and not metrics.names:
            message = "train_metrics=True measures nothing: the loss has no classes, and no metrics are given"
            raise ArgumentError(message, hint='write metrics=["mae", "r2"], say')
        names = ["loss", *(metrics.names if of_steps else ())]
        if validates:
            names += [f"{VALIDATION}{name}" for name in ("loss", *metrics.names)]
        elif metrics.chosen and not of_steps and metrics.asked:
            message = f"there are no rows on which {', '.join(metrics.names)} could be measured"
            hint = "fit(…, validation=(x_test, y_test)) measures validation rows, train_metrics=True training rows"
            raise ArgumentError(message, hint=hint)
        return names + (["lr"] if "lr" in self._interface.record.run_time else [])

    def evaluate(
        self,
        x: Any,
        y: Any = None,
        batch_size: int | None = None,
        *,
        sample_weight: Any = None,
        steps: int | None = None,
        metrics: Any = None,
        averaged: bool = False,
        cast: bool = True,
    ) -> Evaluation:
        """The mean loss over all rows, and the accuracy when the loss has classes; nothing is updated.

        The mean is that of :meth:`fit`: the loss of all rows in one batch, NaN where none counts. The accuracy is the
        share of rows (pixels, tokens, …) whose largest prediction is at the right class; ignored targets do not count.
        Of binary losses, it is the share of right zeros and ones.

        Args:
            x: inputs, as :meth:`fit` takes them.
            y: targets, as :meth:`fit` takes them.
            batch_size: rows at a time; by default the model's own.
            sample_weight: what each row's loss weighs, (rows,); it is for the loss alone.
            steps: how many batches are read, if not all.
            metrics: others than loss and accuracy, which ``found["f1"]`` reads: names, and functions ``f(y_true,
                y_pred)``, which are called once, with all rows (``pullback.training.metrics``).
            averaged: whether the averages of the parameters are taken, which the optimizer ``EMA`` keeps.
            cast: whether values of another dtype are rounded; False: they have to be the same number.

        Returns:
            loss, metrics and the number of rows.

        Examples:
            >>> found = trainer.evaluate(x, y, metrics=["f1"])
            >>> found.count, 0.0 <= found["f1"] <= 1.0
            (64, True)
        """
        check_count("batch_size", batch_size)
        if not isinstance(averaged, (bool, np.bool_)):
            raise ArgumentError(f"averaged must be True or False, got {averaged!r}")
        measured = Metrics.of(metrics, self._interface)
        check_count("steps", steps)
        data = self._source(x, y, sample_weight, cast=cast, steps=steps)
        self._values.check_complete(self._interface)
        return self._evaluate(data, self._batch_size(batch_size, data), measured, averaged)

    def lr_find(
        self,
        x: Any,
        y: Any = None,
        *,
        start: float = 1e-7,
        end: float = 1.0,
        steps: int = 100,
        batch_size: int | None = None,
    ) -> LRCurve:
        """How the loss goes with the learning rate: so many steps on a copy of the trainer, with rates that grow from
        ``start`` to ``end`` in equal ratios; this trainer stays as it is.

        Batches are drawn as by :meth:`fit`, all of the same size. It stops before ``end`` where the loss has risen to
        four times its least, or is not finite. Unless the optimizer's ``lr`` is a run-time value, the step is compiled
        anew with one. The optimizer's own states begin anew; groups of parameters with a rate of their own keep it.

        >>> found = trainer.lr_find(x, y)
        >>> found.suggestion, found.lrs, found.losses
        >>> found.plot()

        Args:
            x: inputs, as :meth:`fit` takes them.
            y: targets, as :meth:`fit` takes them.
            start: the first rate.
            end: the last rate.
            steps: how many steps.
            batch_size: rows at a time; by default the model's own.

        Returns:
            the curve: ``.suggestion``, ``.lrs``, ``.losses``, ``.plot()``.

        Raises:
            UserError: when the optimizer has no ``lr``, and when the trainer, as the copy of another, does not hold
                what it was made from and its ``lr`` is no ``RunTime``.
        """
        check_count("batch_size", batch_size)
        if gives_arrays(x, y):
            self._source(x, y)  # an error comes before anything is compiled
        self._values.check_complete(self._interface)
        return lr_curve(self, x, y, start, end, steps, batch_size)

    def _agree(self, data: Source, validation: Source | None, size: int, options: str) -> None:
        """Raise a RankError unless all ranks begin the same training. Collective."""
        if self._placement.size > 1:
            state = self._state_of_training(data, validation, size)
            agree(self._placement.ranks, state | {"the options of fit": options})

    def _state_of_training(self, data: Source, validation: Source | None, size: int) -> dict[str, str]:
        """What all ranks have alike when a training begins, by what it is called."""
        found = {"the size of batches": str(size), "the number of steps": str(self.steps), **data.identity()}
        found |= {"where the order of rows begins": str(self._generator.bit_generator.state["state"])}
        for what, value in ({} if validation is None else validation.identity()).items():
            found[f"{what}, in validation"] = value
        return found


def _check_flags(**flags: Any) -> None:
    for name, value in flags.items():
        if not isinstance(value, (bool, np.bool_, int)):
            raise ArgumentError(f"{name} must be True or False, got {type(value).__name__}")


def _check_divides(size: int, rows: int | None, distributed: Distributed | None) -> None:
    """Ranks take equally many rows of a batch, unless all rows are one, or batches come as they are."""
    shards = 1 if distributed is None else distributed.shards
    if distributed is None or size % shards == 0 or (rows is not None and rows <= size):
        return
    least = size - size % shards
    micro = f" of {distributed.micro_batches} micro-batches each" if distributed.micro_batches > 1 else ""
    raise ArgumentError(
        f"a batch of {size} rows cannot be divided among {distributed.ranks} ranks{micro}: batch_size is that of all"
        " ranks together",
        hint=f"batch_size={f'{least} or {least + shards}' if least else shards} can",
    )


def _check_drop_last(drop_last: Any, rows: int | None, size: int) -> None:
    if not isinstance(drop_last, (bool, np.bool_)):
        raise ArgumentError(f"drop_last must be True or False, got {drop_last!r}")
    if drop_last and rows is not None and rows < size:
        message = f"drop_last leaves no batch: there are {rows} rows, and batches have {size}"
        raise ArgumentError(message, hint="give a smaller batch_size, or leave drop_last out")
