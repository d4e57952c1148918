"""Batches: uniform draws from the env's own samples, label noise as a property of the sample,
shifts and mirrors.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.small_runs import plain

from morphogen.config.groups import DataSpec
from morphogen.config.instance_spec import InstanceSpec
from morphogen.config.spec import resolve
from morphogen.config.task import TASKS
from morphogen.data import feed as feeds
from morphogen.data.dataset import open_dataset
from morphogen.data.feed import ResidentFeed, crops
from morphogen.data.instances import draw_instances
from morphogen.state import rng
from morphogen.vocab.purpose import Purpose

TASK = TASKS["digits"]
DATA = DataSpec(batch=16, minibatches=3, val_samples=None)
DATASET = open_dataset(TASK, DATA, TASK.host, "cpu")
NOISY = InstanceSpec(label_noise=(0.0, 0.5))


def feed_of(data=DATA, *, dataset=DATASET, **task):
    """A feed of noisy labels, under the task with other fields."""
    name = "-".join(["digits", *(f"{key}-{value}" for key, value in task.items())])
    name = TASKS.adopt(replace(TASK, name=name, **task)) if task else TASK.name
    return ResidentFeed(dataset, resolve(plain(task=name, data=data, instance=NOISY)))


BATCHES = feed_of()
LEAVES = ("index", "labels", "row", "column")


def world(envs=6, *, first=0, seed=0, episode=2, epoch=5, spec=None):
    """Parts of a state that a feed reads: keys, instances, clock."""
    key, when = rng.env_keys(seed, first, envs), torch.full((envs,), episode)
    spec = resolve(spec or plain(data=DATA))
    instance = draw_instances(
        key,
        when,
        torch.zeros_like(when),
        spec=spec,
        labels=DATASET.labels,
        purpose=Purpose.INSTANCE,
    )
    clock = SimpleNamespace(episode=when, epoch=torch.full((envs,), epoch))
    return SimpleNamespace(key=key, instance=instance, clock=clock)


def single(**ranges):
    fixed = {
        "width": (1.0, 1.0),
        "data_share": (1.0, 1.0),
        "classes": (10, 10),
        "label_noise": (0.0, 0.0),
    }
    return plain(data=DATA, instance=InstanceSpec(**{**fixed, **ranges}))


def test_a_batch_holds_normalised_images_and_labels_in_use():
    state = world()
    draws = BATCHES.epoch(state)
    batch = BATCHES.batch(draws, torch.tensor([1]))
    assert batch.inputs.shape == (6, 16, 1, 8, 8)
    assert batch.inputs.dtype == torch.float32
    assert batch.labels.shape == (6, 16)
    assert bool((batch.labels >= 0).all())
    assert bool((batch.labels < state.instance.classes[:, None]).all())


@given(envs=st.integers(1, 12), data=st.data())
def test_an_env_alone_gets_the_same_batches_bit_for_bit(envs, data):
    env = data.draw(st.integers(0, envs - 1))
    many, alone = (BATCHES.epoch(state) for state in (world(envs), world(1, first=env)))
    for leaf in LEAVES:
        assert torch.equal(getattr(many, leaf)[:, env : env + 1], getattr(alone, leaf)), leaf
    one, other = (BATCHES.batch(draws, torch.tensor([2])).inputs for draws in (many, alone))
    assert torch.equal(one[env : env + 1], other)


def test_samples_come_from_the_usable_ones_of_their_env():
    state = world(20)
    index = BATCHES.epoch(state).index
    for env in range(20):
        usable = set(state.instance.usable[env, : int(state.instance.samples[env])].tolist())
        assert set(index[:, env].flatten().tolist()) <= usable


def test_each_env_epoch_minibatch_episode_and_seed_draws_its_own():
    base = BATCHES.epoch(world(spec=single())).index
    others = [
        BATCHES.epoch(world(spec=single(), **{name: 9})).index
        for name in ("epoch", "episode", "seed")
    ]
    rows = [base[0], base[1], base[2], base[0].roll(1, 0), *(other[0] for other in others)]
    for i, one in enumerate(rows):
        for other in rows[i + 1 :]:
            assert float((one == other).float().mean()) < 0.05


@pytest.mark.parametrize("count", [1, 2, 3, 1000])
def test_draws_are_uniform_over_the_usable_samples(count):
    words = rng.random_bits(rng.stream(rng.env_keys(1, 0, 1), Purpose.DATA), 100_000).unsqueeze(0)
    instance = SimpleNamespace(
        samples=torch.tensor([count]), usable=torch.zeros(1, 0, dtype=torch.int32)
    )
    counts = torch.bincount(feeds.sample_index(words, instance).flatten(), minlength=count).double()
    assert counts.numel() == count
    statistic = float(((counts - 100_000 / count) ** 2).sum() / (100_000 / count))
    assert abs(statistic - (count - 1)) <= 5 * math.sqrt(2 * (count - 1))


def test_a_sample_keeps_its_noisy_label_for_the_whole_episode():
    spec = single(label_noise=(0.5, 0.5))
    seen: dict[tuple[int, int], int] = {}
    changed = 0
    for epoch in range(20):
        draws = BATCHES.epoch(world(4, epoch=epoch, spec=spec))
        for env, index, label in zip(
            torch.arange(4).expand(3, 16, 4).permute(0, 2, 1).flatten().tolist(),
            draws.index.flatten().tolist(),
            draws.labels.flatten().tolist(),
            strict=True,
        ):
            assert seen.setdefault((env, index), label) == label
            changed += label != int(DATASET.labels[index])
    assert changed > 0
    other = BATCHES.epoch(world(4, episode=3, spec=spec))
    pairs = zip(
        other.index[:, 0].flatten().tolist(), other.labels[:, 0].flatten().tolist(), strict=True
    )
    assert any(seen.get((0, index), label) != label for index, label in pairs)


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5, 1.0])
def test_the_share_of_changed_labels_is_the_instance_s_and_all_other_classes_are_equally_likely(
    noise,
):
    state = world(40, spec=single(label_noise=(noise, noise)))
    words = rng.random_bits(rng.stream(state.key, Purpose.LABEL_NOISE, round=2), 1197).unsqueeze(0)
    true = DATASET.labels.expand(1, 40, -1)
    found = feeds.add_label_noise(true, words, state.instance)
    changed = found != true
    total = changed.numel()
    assert (
        abs(float(changed.float().mean()) - noise)
        <= 3 * math.sqrt(noise * (1 - noise) / total) + 1e-9
    )
    assert bool(((found >= 0) & (found < 10)).all())
    if noise:
        distance = torch.bincount(((found - true) % 10)[changed], minlength=10)[1:].double()
        expected = float(distance.sum()) / 9
        assert float(((distance - expected) ** 2 / expected).sum()) < 8 + 5 * math.sqrt(16)


@given(shift=st.integers(0, 3), row=st.integers(0, 6), column=st.integers(0, 6))
def test_a_crop_is_the_image_moved_over_black(shift, row, column):
    row, column = row % (2 * shift + 1), column % (2 * shift + 1)
    image = torch.arange(1, 31, dtype=torch.uint8).view(1, 1, 5, 6)
    found = crops(image, shift)[0, 0, row, column]
    for y in range(5):
        for x in range(6):
            from_y, from_x = y + row - shift, x + column - shift
            inside = 0 <= from_y < 5 and 0 <= from_x < 6
            assert int(found[y, x]) == (int(image[0, 0, from_y, from_x]) if inside else 0)


def by_hand(draws, m, env, sample, *, shift):
    """One image of a batch, made one step after the other."""
    pixels = DATASET.train.inputs[draws.index[m, env, sample]]
    padded = torch.nn.functional.pad(pixels, (shift,) * 4)
    row, column = int(draws.row[m, env, sample]), int(draws.column[m, env, sample])
    pixels = padded[:, row : row + 8, column : column + 8]
    if draws.mirror is not None and bool(draws.mirror[m, env, sample]):
        pixels = pixels.flip(-1)
    return DATASET.preparation(pixels)


@pytest.mark.parametrize("flip", [False, True])
def test_each_image_of_a_batch_is_its_sample_cropped_mirrored_and_normalised(flip):
    feed = feed_of(shift=2, flip=flip)
    draws = feed.epoch(world(3))
    images = feed.batch(draws, torch.tensor([2])).inputs
    for env in range(3):
        for sample in range(16):
            assert torch.equal(images[env, sample], by_hand(draws, 2, env, sample, shift=2))


def test_shifts_and_mirrors_are_uniform():
    data = replace(DATA, batch=1000, minibatches=10)
    draws = feed_of(data, shift=1, flip=True).epoch(world(4))
    assert draws.mirror is not None
    kind = (draws.row * 3 + draws.column) * 2 + draws.mirror
    counts = torch.bincount(kind.flatten(), minlength=18).double()
    expected = 40_000 / 18
    assert float(((counts - expected) ** 2 / expected).sum()) < 17 + 5 * math.sqrt(34)


def test_without_augmentation_images_are_the_stored_ones():
    feed = feed_of(replace(DATA, augment=False))
    draws = feed.epoch(world(2))
    batch = feed.batch(draws, torch.tensor([0]))
    assert torch.equal(batch.inputs, DATASET.preparation(DATASET.train.inputs[draws.index[0]]))


def test_difference_14_every_env_draws_from_the_whole_training_set():
    index = feed_of(replace(DATA, batch=64, minibatches=100)).epoch(world(2, spec=single())).index
    for env in range(2):
        assert len(set(index[:, env].flatten().tolist())) > 1100


def test_the_draws_of_an_epoch_never_ask_the_host():
    dataset = SimpleNamespace(
        labels=DATASET.labels.to("meta"),
        preparation=DATASET.preparation,
        criterion=DATASET.criterion,
        train=SimpleNamespace(inputs=DATASET.train.inputs.to("meta")),
    )
    feed = feed_of(dataset=dataset, flip=True)
    state = world(3)
    there = SimpleNamespace(
        key=state.key.to("meta"),
        instance=state.instance.to("meta"),
        clock=SimpleNamespace(
            episode=state.clock.episode.to("meta"), epoch=state.clock.epoch.to("meta")
        ),
    )
    assert feed.batch(feed.epoch(there), torch.tensor([1])).inputs.shape == (3, 16, 1, 8, 8)
