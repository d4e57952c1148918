"""Views of images: what each shows, selected per env, and the noise of a sample."""

import pytest
import torch

from morphogen.extras.regimes.image_view import View
from morphogen.extras.regimes.image_views import show_views

ALL = tuple(View)
IMAGES = torch.arange(2 * 3 * 2 * 4 * 4, dtype=torch.float32).view(2, 3, 2, 4, 4) - 40.0
SAMPLE = torch.tensor([[0, 5, 9], [9, 0, 2]])


def shown(*codes, images=IMAGES, sample=SAMPLE, views=ALL, noise=1.0):
    return show_views(images, torch.tensor(codes), sample, views=views, noise=noise)


def test_every_env_sees_its_own_view():
    found = shown(View.INVERTED, View.TURNED)
    assert torch.equal(found[0], -IMAGES[0])
    # the first row becomes the first column
    assert torch.equal(found[1, 0, 0, :, 0], IMAGES[1, 0, 0, 0].flip(0))
    found = shown(View.PLAIN, View.HALF)
    assert torch.equal(found[0], IMAGES[0])
    assert torch.equal(found[1, ..., :2], IMAGES[1, ..., :2])
    assert not found[1, ..., 2:].any()


def test_the_noise_of_a_sample_is_the_same_wherever_the_sample_is():
    noise = shown(View.NOISY, View.NOISY) - IMAGES
    assert torch.allclose(noise[0, 0], noise[1, 1], atol=1e-4)
    assert torch.allclose(noise[0, 2], noise[1, 0], atol=1e-4)
    assert not torch.allclose(noise[0, 0], noise[0, 1], atol=0.1)


@pytest.mark.parametrize("deviation", [1.0, 3.0])
def test_noise_has_mean_0_and_its_deviation(deviation):
    blank = torch.zeros(1, 500, 1, 8, 8)
    sample = torch.arange(500).unsqueeze(0)
    noise = shown(View.NOISY, images=blank, sample=sample, noise=deviation)
    assert float(noise.mean()) == pytest.approx(0, abs=0.02 * deviation)
    assert float(noise.std()) == pytest.approx(deviation, rel=0.02)


def test_shared_images_are_shown_as_own_ones_of_each_env():
    view, sample = torch.tensor([int(v) for v in View]), torch.tensor([4, 0, 7])
    together = show_views(IMAGES[0], view, sample, views=ALL, noise=1.0)
    own = show_views(
        IMAGES[:1].expand(5, -1, -1, -1, -1), view, sample.expand(5, -1), views=ALL, noise=1.0
    )
    assert torch.equal(together, own)


def test_plain_images_are_not_copied():
    assert shown(View.PLAIN, View.PLAIN, views=(View.PLAIN,)) is IMAGES
