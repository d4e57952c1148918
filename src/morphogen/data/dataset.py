"""Data set of a run: stored bytes, normalised on reading, on the device or streamed to it."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from morphogen.config.groups import AUTO, RESIDENT, STREAMED, DataSpec
from morphogen.config.host import Host
from morphogen.config.parts import DATASETS, FEEDS
from morphogen.config.registry import extra_parts
from morphogen.config.task import TaskSpec
from morphogen.data.data_files import find_folder
from morphogen.data.preparation import Preparation
from morphogen.data.splits import (
    DerivedInputs,
    Samples,
    Splits,
    StoredSplits,
    check_labels,
    fingerprint,
    move_labels,
)
from morphogen.errors import ConfigError, DataError
from morphogen.hosts.answers import CLASS_LABELS, Criterion
from morphogen.state.measure import LabelledInputs
from morphogen.vocab.objective import ACCURACY, CROSS_ENTROPY
from morphogen.vocab.text import short_repr

GIB = 2**30


@short_repr
@dataclass(frozen=True, slots=True)
class Dataset:
    """Three splits: training as stored, validation prepared for scoring; original labels.

    All tensors reside on one device, except the training inputs of streamed data, which stay on the
    host.
    """

    placement: str  # resident or streamed
    train: Samples  # on the host if streamed
    labels: Tensor  # of the training split, int64 [N] or other targets, on the device
    preparation: Preparation
    fingerprint: str  # sha256 of the stored bytes
    sizes: dict[str, int]
    validation: LabelledInputs  # every env is scored on these after every epoch
    test: Samples
    # samples of each class in the validation split, the most first; () without labels
    class_sizes: tuple[int, ...]
    criterion: Criterion = CLASS_LABELS

    def most_counted(self, classes: int) -> int | None:
        """Return the most validation samples that count in an env with so many classes at most;
        None: all may.
        """
        most = sum(self.class_sizes[:classes])
        return most if most < sum(self.class_sizes) else None

    def on_test_split(self) -> "Dataset":
        """Return the data set with the complete test split for scoring, which only reports use."""
        scored = _build_split(self.test, self.preparation)
        sizes = _class_sizes(self.test.labels.cpu()) if self.class_sizes else ()
        return replace(self, validation=scored, class_sizes=sizes)


def open_dataset(task: TaskSpec, spec: DataSpec, host: Host, device: torch.device | str) -> Dataset:
    """Return the data set of a spec, or of the task if the spec names none, on a device.

    Raises: DataError if files are missing or damaged, or if the data does not fit the host;
    ConfigError if the placement or the sample count is impossible.
    """
    name = str(spec.name or task.dataset)
    stored = read_splits(name, spec)
    splits, criterion = deal_targets(deal_samples(stored, host, name), task, host, name)
    preparation = stored.preparation(task)
    available = len(splits.validation)
    count = available if spec.val_samples is None else spec.val_samples
    if count > available and count != task.defaults.get("data", {}).get("val_samples"):
        raise ConfigError(
            f"data.val_samples: expected at most {available}, the size of the validation "
            f"split, got {count}"
        )
    # a task is written for the official files; smaller ones are scored on all they have
    count = min(count, available)
    placement = choose_placement(splits, spec)
    train = splits.train if placement == STREAMED else splits.train.to(device)
    validation = splits.validation.select(torch.arange(count, device="cpu"))
    return Dataset(
        placement=placement,
        train=train,
        labels=move_labels(train.labels, device),
        preparation=preparation,
        fingerprint=fingerprint(splits),
        sizes={"train": len(splits.train), "validation": count, "test": len(splits.test)},
        validation=_build_split(validation.to(device), preparation),
        test=splits.test.to(device),
        class_sizes=_class_sizes(validation.labels) if host.labelled and criterion.labelled else (),
        criterion=criterion,
    )


def read_splits(name: str, spec: DataSpec) -> StoredSplits:
    """Return the stored samples of a data set, on the CPU.  Raises DataError; ConfigError for a
    faulty reader.
    """
    folder, _ = find_folder(spec.dir)
    return DATASETS.call(name, folder)


def deal_samples(stored: object, host: Host, name: str) -> Splits:
    """Return the samples of a data set that a host takes.  Raises: DataError for data that does not
    fit the host.
    """
    if not isinstance(stored, StoredSplits):
        raise DataError(f"{name}: expected Splits, got {stored!a:.60}")
    return stored.deal(host, name)


def deal_targets(splits: Splits, task: TaskSpec, host: Host, name: str) -> tuple[Splits, Criterion]:
    """Return samples with the targets that the loss of a task takes, and its criterion.  Raises:
    DataError for targets that do not fit the loss or the host.
    """
    if task.labelled and host.labelled:
        check_labels(splits, host, name)
    if (task.loss, task.score_name) == (CROSS_ENTROPY, ACCURACY):
        return splits, CLASS_LABELS
    return extra_parts("morphogen.criteria")["targets"](splits, task, host, name)


def choose_placement(splits: Splits, spec: DataSpec) -> str:
    """Return the placement of the training split, resident or streamed: `data.placement`, or by
    size if auto.
    """
    need = sum(samples.size for samples in (splits.train, splits.validation, splits.test)) / GIB
    fits = need <= spec.resident_limit_gib
    if spec.placement == RESIDENT and not fits:
        raise ConfigError(
            f"data.placement: expected {STREAMED} or {AUTO}, got {RESIDENT}: the data needs "
            f"{need:.3g} GiB, and data.resident_limit_gib is {spec.resident_limit_gib:g}"
        )
    chosen = (RESIDENT if fits else STREAMED) if spec.placement == AUTO else spec.placement
    if chosen == STREAMED and STREAMED not in FEEDS:
        raise ConfigError(f"data.placement: expected {RESIDENT} without a feed, got {STREAMED}")
    return chosen


def _class_sizes(labels: Tensor) -> tuple[int, ...]:
    """Samples of each class, the most first.  labels int64 [N], on the host."""
    return tuple(labels.bincount().sort(descending=True).values.tolist())


def _build_split(samples: Samples, preparation: Preparation) -> LabelledInputs:
    device = samples.labels.device
    stored: Any = samples.inputs
    if isinstance(stored, DerivedInputs):
        stored = stored[torch.arange(len(samples), device=device)]
    inputs, labels = preparation.prepare(stored, samples.labels)
    return LabelledInputs(inputs=inputs, labels=labels, batch_size=[], device=device)
