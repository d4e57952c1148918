"""The default run: digits in a world that changes."""

from morphogen.config.spec import RunSpec, find_host, resolve


def test_the_task_has_its_sizes():
    spec = resolve(RunSpec(task="digits_regimes"))
    assert find_host(spec).params() == 1_090
    assert (spec.slots, spec.data.batch, spec.episode_length) == (("r0c0", "r0c1", "r1c0"), 16, 90)
