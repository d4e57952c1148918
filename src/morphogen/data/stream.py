"""Training batches whose images stay on the host: a thread reads them ahead and sends them to the device.

Nothing has to come back from the device for that.  Which samples a minibatch holds follows from the keys of the envs
and the numbers of episode, epoch and minibatch, and the host knows them all: so the thread draws instances and indices
a second time, by the integer arithmetic of the device.  What crosses are the images and nothing else; labels, their
noise, crops and mirrors are drawn on the device as for resident data.

The clock of the host is a count: the minibatches of an episode come in their order, each once after `start`.
"""

import weakref
from collections.abc import Callable, Iterator
from functools import partial
from queue import SimpleQueue
from threading import Thread

import torch
from torch import Tensor

from morphogen.config.spec import RunSpec
from morphogen.config.task import TaskSpec
from morphogen.data.dataset import Dataset
from morphogen.data.feed import EpochDraws, Feed, FeedPosition, crops, epoch_index
from morphogen.data.instances import draw_instances
from morphogen.data.splits import StoredImages, as_stored
from morphogen.device.transfers import StagingBuffer, Transfers
from morphogen.state.env import Clock, Instance
from morphogen.vocab.purpose import Purpose


class StreamedFeed(Feed):
    """Training batches of the envs of one world, through a ring of `data.prefetch + 1` lanes."""

    def __init__(
        self,
        dataset: Dataset,
        task: TaskSpec,
        spec: RunSpec,
        *,
        transfers: Transfers,
        key: Tensor,
        tasks: Tensor,
        purpose: Purpose,
    ) -> None:
        """Key and tasks int64 [E, 3], on the host; `tasks`: what instances are drawn from, `purpose`: what for."""
        super().__init__(dataset, task, spec.data, label_noise=spec.instance.label_noise[1] > 0)
        lead = (len(key), spec.data.batch)
        self._images, self._transfers = as_stored(dataset.train.pixels), transfers
        self._shape = (lead[0] * lead[1], *dataset.train.pixels.shape[1:])
        self._buffers = transfers.prefetch_buffers(self._shape, spec.data.prefetch + 1)
        self._positions = torch.arange(self._shape[0], device=transfers.device).view(lead)
        labels = dataset.train.labels
        self._indices = partial(
            _indices,
            key,
            draw=partial(draw_instances, tasks, task=task, spec=spec, labels=labels, purpose=purpose),
            spec=spec,
        )
        self._reader: _ReaderThread | None = None

    def start(self, episode: int, epoch: int = 0) -> None:
        """Read ahead from the first minibatch of an epoch on."""
        self.close()
        self._reader = _ReaderThread(self._images, self._transfers, self._buffers, self._indices(episode, epoch))
        self._finalizer = weakref.finalize(self, self._reader.stop)  # who forgets a world forgets its thread

    def close(self) -> None:
        """Stop reading; the thread has ended when this returns."""
        if self._reader is not None:
            self._finalizer()
            self._reader.join()
        self._reader = None

    def crop_images(self, draws: EpochDraws, minibatch: int) -> Tensor:
        """Each sample's crop, out of the crops of the images that come next."""
        if self._reader is None:
            raise RuntimeError("no minibatch is read ahead; want an episode to be started before its epochs")
        m = minibatch
        with self._transfers.receive_batch(self._reader.next_filled) as lane:
            images = crops(lane.device_bytes.view(self._shape), self.shift)
            found = images[self._positions, :, draws.row[m], draws.column[m]]
        self._reader.free.put(lane)
        return found


class _ReaderThread:
    """The thread of one episode, and the lanes that go back and forth between it and the device."""

    def __init__(
        self, images: StoredImages, transfers: Transfers, buffers: tuple[StagingBuffer, ...], indices: Iterator[Tensor]
    ) -> None:
        self.free: SimpleQueue[StagingBuffer | None] = SimpleQueue()
        self._filled: SimpleQueue[StagingBuffer | BaseException] = SimpleQueue()
        for lane in buffers:
            self.free.put(lane)
        self._images, self._transfers = images, transfers
        self._thread = Thread(target=self._run, args=(indices,), name="batches", daemon=True)
        self._thread.start()

    def next_filled(self) -> StagingBuffer:
        """The lane that was filled first; what ended the thread is raised in the place of all that do not come."""
        found = self._filled.get()
        if isinstance(found, BaseException):
            self._filled.put(found)
            raise found
        return found

    def stop(self) -> None:
        """Ask the thread to end before it fills another lane."""
        self.free.put(None)

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    def _run(self, indices: Iterator[Tensor]) -> None:
        try:
            for index, lane in zip(indices, iter(self.free.get, None), strict=False):
                self._transfers.fill(lane, partial(self._fill, index))
                self._filled.put(lane)
            self._filled.put(RuntimeError("all minibatches of an episode were read; want the next one to be started"))
        except BaseException as error:
            self._filled.put(error)

    def _fill(self, index: Tensor, out: Tensor) -> None:
        self._images.read(index, out.view(len(index), *self._images.shape[1:]))


def _indices(
    key: Tensor, episode: int, first: int, *, draw: Callable[[Tensor], Instance], spec: RunSpec
) -> Iterator[Tensor]:
    """The samples of every minibatch of an episode from epoch `first` on, in order: int64 [E B] each."""
    when = torch.full_like(key[:, 0], episode)
    instance = draw(when)
    for epoch in range(first, spec.episode_length):
        clock = Clock(episode=when, epoch=torch.full_like(when, epoch), batch_size=[len(key)])
        yield from epoch_index(FeedPosition(key, instance, clock), spec.data).flatten(1)
