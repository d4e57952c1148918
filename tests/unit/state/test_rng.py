"""Counter-based streams: the published answers, no shared blocks, and the distributions built on
the bits.
"""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.launch_count import CountLaunches

from morphogen.kernels.philox import philox
from morphogen.state import rng
from morphogen.vocab.purpose import Purpose

# Random123's published vectors for Philox 4x32-10: counter, key, result.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
WORDS = st.integers(0, 2**32 - 1)
PLACES = st.tuples(
    st.integers(0, 2**16 - 1),  # env
    st.sampled_from(list(Purpose)),
    st.integers(0, 2**20 - 1),  # round
    st.integers(0, 9_999),  # epoch
    st.integers(0, 99_999),  # minibatch
)


def stream_at(place, seed=0):
    env, purpose, round, epoch, minibatch = place
    return rng.stream(
        rng.env_keys(seed, env, 1), purpose, round=round, epoch=epoch, minibatch=minibatch
    )


def chi_square(values, bins):
    counts = torch.bincount(values, minlength=bins).double()
    expected = values.numel() / bins
    return float(((counts - expected) ** 2 / expected).sum()), bins - 1


def plausible(values, bins):
    """The chi-square statistic lies within 5 standard deviations of its mean."""
    statistic, degrees = chi_square(values, bins)
    return abs(statistic - degrees) < 5 * math.sqrt(2 * degrees)


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_philox_gives_the_published_answers(counter, key, result):
    assert tuple(philox(torch.tensor(counter), torch.tensor(key)).tolist()) == result


def test_a_draw_takes_at_most_64_launches():
    stream = rng.stream(rng.env_keys(0, 0, 2), Purpose.ACTION)
    with CountLaunches() as launches:
        rng.random_bits(stream, 100)
    assert 1 < launches.count <= 64


def plain_philox(counter, key):
    """Written from the paper, in Python integers."""
    (a, b, c, d), (k, w) = counter, key
    for _ in range(10):
        p, q = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (q >> 32) ^ b ^ k, q & 0xFFFFFFFF, (p >> 32) ^ d ^ w, p & 0xFFFFFFFF
        k, w = (k + 0x9E3779B9) & 0xFFFFFFFF, (w + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d


@given(counter=st.tuples(*[WORDS] * 4), key=st.tuples(*[WORDS] * 2))
def test_philox_in_wrapped_arithmetic_equals_philox_in_whole_numbers(counter, key):
    assert tuple(philox(torch.tensor(counter), torch.tensor(key)).tolist()) == plain_philox(
        counter, key
    )


@given(place=PLACES, other=PLACES, which=st.integers(0, 4))
def test_one_coordinate_alone_makes_another_stream(place, other, which):
    changed = (*place[:which], other[which], *place[which + 1 :])
    assert torch.equal(stream_at(place), stream_at(changed)) == (place == changed)


@given(place=PLACES, seeds=st.lists(st.integers(0, 2**63 - 1), min_size=2, max_size=2, unique=True))
def test_different_seeds_never_share_a_stream(place, seeds):
    assert not torch.equal(stream_at(place, seeds[0]), stream_at(place, seeds[1]))


@given(place=PLACES)
def test_the_words_of_a_stream_fit_into_the_counter(place):
    stream = stream_at(place, seed=2**63 - 1)
    assert bool(((stream >= 0) & (stream < 2**32)).all())


@given(place=PLACES, first=st.integers(0, 50), lanes=st.integers(1, 50))
def test_a_lane_does_not_depend_on_which_lanes_are_drawn_with_it(place, first, lanes):
    stream = stream_at(place)
    joint = rng.random_bits(stream, first + lanes)
    assert torch.equal(rng.random_bits(stream, lanes, first=first), joint[..., first:])


@given(place=PLACES, lanes=st.lists(st.integers(0, 200), min_size=1, max_size=20))
def test_lanes_picked_out_equal_lanes_drawn_in_order(place, lanes):
    stream = stream_at(place)
    picked = torch.tensor([lanes])
    assert torch.equal(
        rng.random_bits_at(stream, picked), rng.random_bits(stream, 201).gather(-1, picked)
    )


def test_coordinates_broadcast_like_single_positions():
    key, rounds = rng.env_keys(1, 0, 3), torch.tensor([4, 5, 6])
    minibatch = torch.arange(2).unsqueeze(-1)
    joint = rng.stream(key, Purpose.DATA, round=rounds, epoch=9, minibatch=minibatch)
    single = rng.stream(key[1:2], Purpose.DATA, round=5, epoch=9, minibatch=1)
    assert joint.shape == (2, 3, 5)
    assert torch.equal(joint[1, 1:2], single)


def test_bits_are_uniform_in_every_byte():
    words = rng.random_bits(rng.stream(rng.env_keys(3, 0, 10), Purpose.ACTION), 10_000).flatten()
    for shift in (0, 8, 16, 24):
        assert plausible((words >> shift) & 255, 256)


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 1000])
def test_whole_numbers_below_a_bound_are_uniform_and_in_range(bound):
    words = rng.random_bits(rng.stream(rng.env_keys(4, 0, 10), Purpose.DATA), 10_000).flatten()
    values = rng.bounded_ints(words, bound)
    assert int(values.min()) >= 0
    assert int(values.max()) < bound
    assert bound == 1 or plausible(values, bound)


@given(word=WORDS, bound=st.integers(1, 2**31 - 1))
def test_no_word_reaches_its_bound(word, bound):
    assert 0 <= int(rng.bounded_ints(torch.tensor([word]), bound)) == word * bound >> 32 < bound


@given(word=st.one_of(st.sampled_from([0, 255, 2**32 - 1]), WORDS))
def test_floats_stay_in_their_intervals(word):
    bits = torch.tensor([word])
    closed, openness = float(rng.unit_floats(bits)), float(rng.open_unit_floats(bits))
    assert 0.0 <= closed < 1.0
    assert 0.0 < openness < 1.0
    assert math.isfinite(math.log(openness))
    assert math.isfinite(math.log(-math.log(openness)))


def test_normal_and_gumbel_noise_have_their_moments():
    stream = rng.stream(rng.env_keys(5, 0, 10), Purpose.BASELINE)
    normal, gumbel = rng.normal(stream, 10_000), rng.gumbel(stream, 10_000)
    error = 1 / math.sqrt(100_000)
    assert abs(float(normal.mean())) < 5 * error
    assert abs(float(normal.var()) - 1) < 5 * error * math.sqrt(2)
    assert abs(float(gumbel.mean()) - 0.5772157) < 5 * error * math.pi / math.sqrt(6)
    assert bool(normal.isfinite().all() & gumbel.isfinite().all())


def test_difference_20_no_global_generator_is_read_or_seeded():
    state = torch.get_rng_state()
    rng.normal(rng.stream(rng.env_keys(0, 0, 2), Purpose.ACTION), 9)
    assert torch.equal(torch.get_rng_state(), state)
