"""Tasks of users: defaults, names and objects as parts, and all faults at once."""

import pytest
from support.own_parts import Perceptron, Shift

import morphogen as mg
from morphogen.config.instance_spec import reference_instance


def task(**fields):
    return mg.TaskSpec(**{"name": "mine", "dataset": "digits", "host": Perceptron()} | fields)


def test_a_task_needs_a_name_a_data_set_and_a_host():
    mine = task()
    assert mine.slots == ("r0c0", "r0c1")
    assert mine.instance == reference_instance(Perceptron())
    assert task(instance=mg.InstanceSpec(data_share=(0.5, 1.0))).instance.data_share == (0.5, 1.0)


def test_parts_are_given_as_objects_or_by_name():
    def squares(folder):
        """Samples that nobody reads here."""

    mg.HOSTS.register("perceptron", Perceptron())
    mine = task(dataset=squares, host="perceptron")
    assert (mine.dataset, mine.host) == ("squares", Perceptron())
    assert mg.DATASETS["squares"] is squares
    spec = mg.RunSpec(task=mine, blueprints=(Shift(),))
    assert (spec.task, spec.blueprints) == ("mine", ("shift",))
    assert mg.TASKS["mine"] is mine
    assert mg.TASKS.origin("mine") == "this program"


FAULTS = {
    'name: expected letters and digits, with . _ - between them, got "two words"': {
        "name": "two words"
    },
    f'dataset: expected one of {", ".join(mg.DATASETS)}, got "squares"': {"dataset": "squares"},
    'host: expected an object of a class that derives from Host, got "perceptron"': {
        "host": "perceptron"
    },
    'slots: expected names out of r0c0, r0c1, got ["r9c9"]': {"slots": ("r9c9",)},
    "success: expected a number greater than or equal to 0, got -1": {"success": -1},
    "mean: expected 6 numbers, one per input channel, got [0.5]": {"mean": (0.5,)},
    "objective: expected 'delivered' or 'anytime', got \"soon\"": {"objective": "soon"},
    "flip: expected false with samples that are no images, got true": {"flip": True},
}


@pytest.mark.parametrize("said", list(FAULTS))
def test_a_fault_is_named(said):
    with pytest.raises(mg.ConfigError) as caught:
        task(**FAULTS[said])
    assert str(caught.value) == f"task.{said}"


def test_all_faults_are_named_at_once():
    with pytest.raises(mg.ConfigError) as caught:
        task(success=-1, scale=0, shift=1.5)
    assert [line.split(": ")[0] for line in str(caught.value).splitlines()] == [
        "task.success",
        "task.scale",
        "task.shift",
    ]


class Seedless(Perceptron):
    blueprints = ()


def test_a_host_that_no_blueprint_fits_is_refused_in_one_line():
    task = mg.TaskSpec(name="seedless", dataset="digits", host=Seedless())
    with pytest.raises(
        mg.ConfigError, match="blueprints: expected at least one for hosts of task se"
    ):
        mg.make(task, envs=1)
