"""Every built-in task builds, trains a round at its smallest sizes, and stays finite."""

import math

import pytest
from support.small_runs import cifar_files

import morphogen as mg
from morphogen.config.task import TASKS
from morphogen.data.dataset import read_splits
from morphogen.state.tree_ops import nested_leaves

PARAMETERS = {  # of the whole host, calculated by hand from the sizes of the task table
    438: "digits mnist5k",
    72: "digits_impaired",
    1_090: "digits_regimes fashion",
    150: "tiny whitebox whitebox_regimes negative",
    1_702: "fashion_full",
    898: "mnist1d",
    25_272: "shakespeare",
    6_418: "cifar_baseline cifar_multichannel",
    99_922: "cifar_scale cifar_deep_multichannel",
    77: "cifar_impaired",
    164: "cifar_minimal",
    24_346: "cifar_postpool cifar_highres",
    1_140: "cifar_deep_impaired",
    24_816: "pydoc",
    10_844_544: "tinystories",  # on text, whose bytes and end of a story are a vocabulary of 257
}
COUNTS = {name: count for count, names in PARAMETERS.items() for name in names.split()}
OF_OTHER_PACKAGES = ("fashion_full", "mnist5k", "mnist1d", "shakespeare")
SMALLEST = {
    "rounds": 1,
    "envs": 1,
    "episode_length": 2,
    "final_episodes": 0,
    "ppo": {"epochs": 1, "minibatches": 1, "imitation_rounds": 0},
    "policy": {"hidden": 16, "op_bias": {"WAIT": -10.0}},
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Data files of every task that needs some."""
    folder = tmp_path_factory.mktemp("files")
    cifar_files(folder)
    story = "Once upon a time a small net grew a seed. " * 10
    for name, count in (("train", 40), ("valid", 20)):
        text = "\n<|endoftext|>\n".join(f"{i}. {story}" for i in range(count))
        (folder / f"TinyStories-{name}.txt").write_text(text)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS.builtin())
def test_it_builds_trains_a_round_and_stays_finite(files, name):
    leaves, counts = [], []

    def look(summary, scheduler):
        counts.append(scheduler.setup.net.host_size)
        leaves.extend(
            nested_leaves(scheduler.state.to_tensordict()) + nested_leaves(scheduler.params)
        )

    if name in OF_OTHER_PACKAGES:
        try:
            read_splits(name, mg.DataSpec(dir=str(files)))
        except mg.DataError as error:
            pytest.skip(str(error))
    data = {"dir": str(files), "minibatches": 1, "batch": 1, "val_samples": 1}
    result = mg.train_ppo_vectorized(
        mg.RunSpec(task=name, data=data, **SMALLEST), parts=mg.Parts(hooks=mg.Hooks(on_round=look))
    )
    assert counts == [COUNTS[name]]
    (summary,) = result.history
    assert summary.live > 0  # seeds grow as well
    assert summary.rollbacks == 0
    assert all(
        map(math.isfinite, (summary.return_mean, summary.accuracy_mean, summary.network_value_mean))
    )
    assert len(leaves) > 50
    assert all(leaf.isfinite().all() for leaf in leaves)
