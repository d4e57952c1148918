"""Streamed data: the very batches of resident data, read ahead by a thread that is neither too fast
nor left behind.
"""

import gc
import threading
import time
import traceback
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.extras import needs_extra, rows_of_extra
from support.small_runs import cifar_files, story_files, tiny, tiny_setup, world_of

import morphogen as mg
from morphogen.config.execution_spec import EngineSpec
from morphogen.config.groups import DataSpec
from morphogen.config.instance_spec import InstanceSpec
from morphogen.config.parts import DATASETS
from morphogen.config.task import TASKS
from morphogen.data.dataset import open_dataset
from morphogen.data.feed import Feed
from morphogen.data.instances import HELD_OUT_INSTANCES, TRAINING_INSTANCES
from morphogen.data.splits import StoredInputs, read_digits
from morphogen.device.transfers import Transfers
from morphogen.env.environment import Environment
from morphogen.errors import ConfigError
from morphogen.extras.streaming.streamed_feed import as_stored
from morphogen.testing.audit import HostReadMode
from morphogen.train.loop import Hooks, Parts, Scheduler
from morphogen.train.train import train_ppo_vectorized

BOTH = ("resident", "streamed")
SMALL = {"batch": 8, "minibatches": 3, "val_samples": 16}
PLAIN = {"data_share": (1.0, 1.0), "classes": (10, 10), "label_noise": (0.0, 0.0)}
FORMS = {  # task, instances, whether images are augmented
    "all at once": ("digits", {}, True),
    "shifts": ("digits", PLAIN, True),
    "noise": ("digits", {**PLAIN, "label_noise": (0.3, 0.3)}, False),
    "classes": ("digits", {**PLAIN, "classes": (4, 6)}, False),
    "shares": ("digits", {**PLAIN, "data_share": (0.02, 0.5)}, False),
}
FORMS |= rows_of_extra(
    "cifar",
    lambda: {
        "crops and mirrors": ("cifar_impaired", {}, True),
        "files": ("cifar_impaired", PLAIN, False),
    },
)


def text_forms():
    host = mg.TransformerSpec(vocabulary=257, width=8, heads=2, layers=3, block=24)
    stories = replace(TASKS["tinystories"], name="small_stories", host=host)
    pydoc = replace(TASKS["pydoc"], name="small_pydoc", host=replace(host, vocabulary=97, reach=23))
    return {"text": (pydoc, {}, True), "text in files": (stories, {}, True)}


FORMS |= rows_of_extra("text", text_forms)


@pytest.fixture(scope="module")
def cifar(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cifar")
    cifar_files(folder)
    story_files(folder, 40)
    return folder


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    if readers():
        gc.collect()
    wait_until(lambda: not readers())


def readers():
    """The threads that read ahead."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("batches")]


def wait_until(what):
    """Look again and again; a test that waits in vain fails."""
    for _ in range(2_000):
        if what():
            return
        time.sleep(0.005)
    pytest.fail("it never came")


def setup_of(placement, **settings):
    data = DataSpec(**{**SMALL, "placement": placement, **settings.pop("data", {})})
    return tiny_setup(data=data, **settings)


def pair(form, cifar, *, ranges=None, **settings):
    """The same run, resident and streamed; `ranges` in the place of some of the form."""
    task, own, augment = FORMS[form]
    ranges = own | (ranges or {})
    data = {"augment": augment, "dir": str(cifar)}
    return [
        setup_of(where, task=task, instance=InstanceSpec(**ranges), data=data, **settings)
        for where in BOTH
    ]


def finished(setup):
    scheduler = Scheduler(setup)
    with torch.no_grad():
        scheduler.run()
    return scheduler


@pytest.mark.slow
@pytest.mark.parametrize(
    "form", [form for form in ("all at once", "text in files") if form in FORMS]
)
def test_a_streamed_run_has_the_numbers_of_a_resident_one_bit_for_bit(form, cifar):
    resident, streamed = (
        finished(setup) for setup in pair(form, cifar, rounds=2, episode_length=4)
    )
    assert (resident.setup.dataset.placement, streamed.setup.dataset.placement) == BOTH
    assert streamed.transfers.ledger["batch"] == 2 * 4 * 3
    assert (resident.state == streamed.state).all()
    assert (resident.params["net"] == streamed.params["net"]).all()


@pytest.mark.slow
@needs_extra("regimes")
def test_a_streamed_run_follows_the_regimes_of_its_envs_bit_for_bit(cifar):
    views = dict.fromkeys(("plain", "inverted", "turned", "half", "noisy"), 1)
    regime = {"hazard": 0.5, "views": views, "classes": (3, 8)}
    instance, observe = {"classes": (10, 10)}, {"instance": ["param_price"]}
    small = {"rounds": 2, "episode_length": 4, "observe": observe}
    runs = pair("shifts", cifar, regime=regime, ranges=instance, **small)
    resident, streamed = (finished(setup) for setup in runs)
    assert (resident.state == streamed.state).all()
    assert resident.state is not None
    assert resident.state.instance.regime.any()


@pytest.mark.parametrize(
    "split", [TRAINING_INSTANCES, HELD_OUT_INSTANCES], ids=["train", "held-out"]
)
@pytest.mark.parametrize("form", FORMS)
def test_every_batch_is_the_resident_one_bit_for_bit(form, split, cifar):
    setups = pair(form, cifar, episode_length=3)
    worlds = [world_of(s, split=split, first=5, envs=3) for s in setups]
    for episode in (4, 2):
        states = [world.reset(episode)[0] for world in worlds]
        for epoch in range(3):
            found = [
                list(batches(world.feed, state, epoch))
                for world, state in zip(worlds, states, strict=True)
            ]
            for one, other in zip(*found, strict=True):
                assert torch.equal(one.inputs, other.inputs)
                assert torch.equal(one.labels, other.labels)


def batches(feed: Feed, state, epoch):
    clock = state.clock.replace(epoch=torch.full_like(state.clock.epoch, epoch))
    draws = feed.epoch(state.replace(clock=clock))
    for minibatch in range(SMALL["minibatches"]):
        feed.fetch()
        yield feed.batch(draws, torch.tensor([minibatch], device=draws.index.device))


@given(data=st.data())
def test_what_is_read_out_of_parts_is_what_lies_there(data):
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    whole = torch.arange(sum(sizes) * 6, dtype=torch.uint8).view(-1, 1, 2, 3)
    rows = torch.tensor(data.draw(st.lists(st.integers(0, sum(sizes) - 1), min_size=1, max_size=8)))
    index = torch.tensor(data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=8)))
    images = StoredInputs(whole.split(sizes), torch.arange(sum(sizes)))[rows]
    out = torch.zeros(len(index), 1, 2, 3, dtype=torch.uint8)
    images.read(index, out)
    assert torch.equal(out, whole[rows[index]])
    assert torch.equal(images.to("cpu"), whole[rows])
    assert torch.equal(images[index].to("cpu"), out)
    assert images.shape == (len(rows), 1, 2, 3)


@needs_extra("cifar")
def test_binary_files_are_read_when_an_image_is_asked_for_and_not_before(tmp_path):
    cifar_files(tmp_path)
    splits = DATASETS["cifar"](tmp_path)
    for path in (tmp_path / "cifar-10-batches-bin").iterdir():
        with path.open("r+b") as file:
            file.seek(1)
            file.write(bytes([77]))
    pixels = torch.cat([part.to("cpu").inputs for part in (splits.train, splits.validation)])
    assert int((pixels[:, 0, 0, 0] == 77).sum()) >= 5


DIGITS_GIB = 1797 * (64 + 8) / 2**30  # images of 64 bytes, labels of 8


@pytest.mark.parametrize(
    ("placement", "limit", "found"),
    [
        ("auto", DIGITS_GIB, "resident"),
        ("auto", DIGITS_GIB * 0.999, "streamed"),
        ("resident", DIGITS_GIB, "resident"),
        ("streamed", DIGITS_GIB * 0.999, "streamed"),
    ],
)
def test_data_is_resident_up_to_the_limit(placement, limit, found):
    spec = DataSpec(placement=placement, resident_limit_gib=limit, val_samples=None)
    dataset = open_dataset(TASKS["digits"], spec, TASKS["digits"].host, "cpu")
    assert dataset.placement == found
    assert torch.equal(as_stored(dataset.train.inputs).to("cpu"), read_digits().train.inputs)


def test_data_that_is_to_be_resident_and_is_too_large_is_refused():
    with pytest.raises(
        ConfigError,
        match=r"data.placement: expected .*, got resident: the data needs 0.00012 GiB.* is 0.0001",
    ):
        open_dataset(
            TASKS["digits"],
            DataSpec(placement="resident", resident_limit_gib=1e-4),
            TASKS["digits"].host,
            "cpu",
        )


class Lost(Exception):
    """Error of the thread."""


def failing_at(monkeypatch, number):
    """From the read of this number on, images cannot be read."""
    real, reads = StoredInputs.read, []

    def read(self, index, out):
        reads.append(index)
        if threading.current_thread().name.startswith("batches") and len(reads) > number:
            raise Lost(f"read {len(reads)}")
        real(self, index, out)

    monkeypatch.setattr(StoredInputs, "read", read)


@pytest.mark.parametrize("number", [0, 4])
def test_an_error_in_the_thread_is_raised_at_the_batch_that_it_spoils_with_where_it_happened(
    number, monkeypatch
):
    setup = setup_of("streamed", rounds=3)
    failing_at(monkeypatch, number)
    scheduler = Scheduler(setup)
    with pytest.raises(Lost, match=f"read {number + 1}") as caught, torch.no_grad():
        scheduler.run()
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-1] == "read"
    assert {"run_round", "fetch", "_fill"} <= set(names)
    assert scheduler.transfers.ledger["batch"] == number
    assert not readers()


def test_an_error_in_a_run_ends_its_thread():
    def stop(round, epoch):
        if (round, epoch) == (0, 2):
            assert readers(), "nothing was read ahead"
            raise Lost("in the middle of an episode")

    scheduler = Scheduler(setup_of("streamed", rounds=2), Parts(hooks=Hooks(on_epoch=stop)))
    with pytest.raises(Lost), torch.no_grad():
        scheduler.run()
    assert not readers()
    scheduler.env.close()


def test_an_error_in_an_evaluation_ends_its_thread(monkeypatch):
    real = Environment.read_plan

    def read_plan(self, counts, state):
        if self.split == HELD_OUT_INSTANCES:
            raise Lost("in the closing comparison")
        return real(self, counts, state)

    monkeypatch.setattr(Environment, "read_plan", read_plan)
    with pytest.raises(Lost) as caught:  # its traceback holds on to the world
        train_ppo_vectorized(tiny(final_episodes=4, data=DataSpec(**SMALL, placement="streamed")))
    assert not readers()
    assert caught.value.args == ("in the closing comparison",)


def test_a_new_episode_leaves_the_old_one_behind():
    world = world_of(setup_of("streamed"))
    state, _ = world.reset(0)
    first = [batch.inputs for batch in batches(world.feed, state, 0)]
    world.reset(1)
    assert len(readers()) == 1
    again = [batch.inputs for batch in batches(world.feed, world.reset(0)[0], 0)]
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    world.close()
    assert not readers()


def test_a_world_without_an_episode_has_no_batch_and_none_after_its_last_epoch():
    world = world_of(setup_of("streamed", episode_length=2))
    state, _ = world.reset(0)
    for epoch in range(2):
        list(batches(world.feed, state, epoch))
    with pytest.raises(RuntimeError, match="all minibatches of the episode are read"):
        next(batches(world.feed, state, 2))
    world.close()
    with pytest.raises(RuntimeError, match="call seek before an epoch"):
        next(batches(world.feed, state, 0))


@pytest.mark.parametrize("prefetch", [1, 3])
def test_a_ring_of_one_more_than_the_prefetch_is_filled_ahead_and_no_further(prefetch, monkeypatch):
    setup = setup_of("streamed", data={"prefetch": prefetch})
    world, ahead = world_of(setup), []
    real, lanes = Transfers.fill, set()

    def refill(self, lane, fill):
        real(self, lane, fill)
        lanes.add(id(lane))
        ahead.append(1 + len(ahead) - self.ledger["batch"])

    monkeypatch.setattr(Transfers, "fill", refill)
    state, _ = world.reset(0)
    wait_until(lambda: len(ahead) == prefetch + 1)
    for epoch in range(6):
        list(batches(world.feed, state, epoch))
    assert len(ahead) == 6 * SMALL["minibatches"]
    assert max(ahead) == prefetch + 1
    assert len(lanes) == prefetch + 1


class Point:
    """An event that notes what is done with it."""

    def __init__(self, name, log):
        self.name, self.log = name, log

    def record(self, stream=None):
        self.log.append(f"{self.name} is reached")

    def synchronize(self):
        self.log.append(f"the thread waits until {self.name}")


def test_a_lane_is_filled_after_the_device_has_read_it_and_read_after_its_copy(monkeypatch):
    log = []
    compute = SimpleNamespace(
        wait_event=lambda point: log.append(f"the device waits until {point.name}")
    )
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: compute)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    fences = Transfers(torch.device("cpu"), time.perf_counter)
    fences._accelerator = torch.cuda
    (lane,) = fences.prefetch_buffers((2,), torch.uint8, 1)
    lane.ready_event, lane.done_event = Point("copied", log), Point("read", log)
    fences.fill(lane, lambda pinned: log.append("filled") or pinned.fill_(7))
    with fences.receive_batch(lambda: lane) as found:
        log.append(f"used: {found.device_bytes.tolist()}")
    assert log == [
        *("the thread waits until read", "filled", "copied is reached"),
        *("the device waits until copied", "used: [7, 7]", "read is reached"),
    ]


@pytest.mark.slow
def test_no_epoch_asks_the_host_for_streamed_data():
    setup = setup_of("streamed")
    scheduler = Scheduler(setup)
    with HostReadMode() as seen, torch.no_grad():
        scheduler.run()
    assert scheduler.transfers.ledger["batch"] > 0
    assert seen.reads == []


@pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason="copies to a device need one; this machine has no CUDA device",
)
@pytest.mark.parametrize(
    "form", [form for form in ("all at once", "crops and mirrors") if form in FORMS]
)
def test_on_cuda_every_batch_is_the_one_of_the_cpu(form, cifar):
    found = []
    for device in ("cpu", "cuda"):
        world = world_of(pair(form, cifar, engine=EngineSpec(devices=(device,)))[1])
        state, _ = world.reset(1)
        rows = [list(batches(world.feed, state, epoch)) for epoch in range(6)]
        found.append([(one.inputs.cpu(), one.labels.cpu()) for row in rows for one in row])
    for (images, labels), (others, same) in zip(*found, strict=True):
        torch.testing.assert_close(images, others, rtol=0, atol=1e-6)
        assert torch.equal(labels, same)
