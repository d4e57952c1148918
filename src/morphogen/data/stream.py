"""Streamed training batches: images stay on the host, and a thread prefetches them to the device.

The samples of a minibatch follow from the keys of the envs and the numbers of episode, epoch and minibatch.  The host
knows them all, so the thread draws instances and indices a second time, by the integer arithmetic of the device, and
the device is never read.  Only images are transferred; labels, noise, crops and mirrors are drawn on the device as for
resident data.

The minibatches of an episode are requested in order, each once after `start`.
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
    """Training batches of one vector env, through `data.prefetch + 1` staging buffers."""

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
        """Set up a feed; key and tasks int64 [E, 3] on the host; instances are drawn from `tasks` for `purpose`."""
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
        """Prefetch from the first minibatch of an epoch on."""
        self.close()
        self._reader = _ReaderThread(self._images, self._transfers, self._buffers, self._indices(episode, epoch))
        self._finalizer = weakref.finalize(self, self._reader.stop)  # a deleted feed stops its thread

    def close(self) -> None:
        """Stop the thread and wait until it has ended."""
        if self._reader is not None:
            self._finalizer()
            self._reader.join()
        self._reader = None

    def crop_images(self, draws: EpochDraws, minibatch: int) -> Tensor:
        """Return the crop of each sample from the next prefetched images, uint8 [E, B, C, H, W]."""
        if self._reader is None:
            raise RuntimeError("no minibatch is prefetched: call start before the epochs of an episode")
        m = minibatch
        with self._transfers.receive_batch(self._reader.next_filled) as buffer:
            images = crops(buffer.device_bytes.view(self._shape), self.shift)
            cropped = images[self._positions, :, draws.row[m], draws.column[m]]
        self._reader.free.put(buffer)
        return cropped


class _ReaderThread:
    """Reader thread of one episode, with the queues of free and filled staging buffers."""

    def __init__(
        self, images: StoredImages, transfers: Transfers, buffers: tuple[StagingBuffer, ...], indices: Iterator[Tensor]
    ) -> None:
        self.free: SimpleQueue[StagingBuffer | None] = SimpleQueue()
        self._filled: SimpleQueue[StagingBuffer | BaseException] = SimpleQueue()
        for buffer in buffers:
            self.free.put(buffer)
        self._images, self._transfers = images, transfers
        self._thread = Thread(target=self._run, args=(indices,), name="batches", daemon=True)
        self._thread.start()

    def next_filled(self) -> StagingBuffer:
        """Return the oldest filled buffer; re-raises the exception that ended the thread."""
        item = self._filled.get()
        if isinstance(item, BaseException):
            self._filled.put(item)
            raise item
        return item

    def stop(self) -> None:
        """Request the thread to end before it fills another buffer."""
        self.free.put(None)

    def join(self) -> None:
        """Wait for the end of the thread."""
        self._thread.join()

    def _run(self, indices: Iterator[Tensor]) -> None:
        try:
            for index, buffer in zip(indices, iter(self.free.get, None), strict=False):
                self._transfers.fill(buffer, partial(self._fill, index))
                self._filled.put(buffer)
            self._filled.put(RuntimeError("all minibatches of the episode are read: call start for the next episode"))
        except BaseException as error:
            self._filled.put(error)

    def _fill(self, index: Tensor, out: Tensor) -> None:
        self._images.read(index, out.view(len(index), *self._images.shape[1:]))


def _indices(
    key: Tensor, episode: int, first: int, *, draw: Callable[[Tensor], Instance], spec: RunSpec
) -> Iterator[Tensor]:
    """Yield the sample indices of the minibatches of an episode from epoch `first` on: int64 [E B] each."""
    episodes = torch.full_like(key[:, 0], episode)
    instance = draw(episodes)
    for epoch in range(first, spec.episode_length):
        clock = Clock(episode=episodes, epoch=torch.full_like(episodes, epoch), batch_size=[len(key)])
        yield from epoch_index(FeedPosition(key, instance, clock), spec.data).flatten(1)
