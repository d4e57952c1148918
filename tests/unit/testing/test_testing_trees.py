"""Trees of tensors, scenes by hand, and what is importable without Hypothesis."""

import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest
import torch

from morphogen import testing
from morphogen.rules.rewards.example_inputs import make_reward_inputs
from morphogen.testing.builders import scenes, tree_equality
from morphogen.testing.builders.reward_inputs import replace_invalid

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(testing.__path__, "morphogen.testing.")
)

EXAMPLES = [
    name
    for name in MODULES
    if name.count(".") == (3 if ".builders." in name else 2)
    and name.split(".")[-1] not in ("extra", "builders")
]


def test_trees_are_the_same_with_nan_and_differ_by_name():
    a, b = scenes.make_slot(alpha=float("nan")), scenes.make_slot(alpha=float("nan"), age=1)
    assert tree_equality.trees_equal(a, a.clone())
    assert tree_equality.differing_leaves(a, b) == {"age"}
    assert tree_equality.differing_leaves((a, a), (a,)) == {
        f"1.{name}" for name in scenes.SLOT_LEAVES
    }
    near = torch.tensor([1.0, 1000.0])
    assert tree_equality.tensors_equal(near, near * (1 + 1e-6), 1e-5)
    assert not tree_equality.tensors_equal(near, near * (1 + 1e-4), 1e-5)
    assert not tree_equality.tensors_equal(near, near.double())


# scenes


def test_what_is_not_valid_is_what_is_spoiled():
    row = make_reward_inputs(2, clean_improvement=[1.0, 2.0], clean_valid=[True, False])
    assert tree_equality.differing_leaves(replace_invalid(row, 9.0), row) == {
        "clean_improvement",
        "slots.contribution",
        "slots.next_contribution",
    }
    assert replace_invalid(row, 9.0).clean_improvement.tolist() == [1.0, 9.0]


# the package


def example_of(module) -> str:
    """The indented example in the docstring of a module."""
    text = module.__doc__ or ""
    lines = [line for line in text.splitlines() if line.startswith("    ") or not line]
    return inspect.cleandoc("\n".join(lines))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_module_shows_its_use_in_an_example_that_runs(name):
    text = example_of(importlib.import_module(name))
    assert 3 <= len(text.splitlines()) <= 20, (
        f"{name} has an example of {len(text.splitlines())} lines"
    )
    scope: dict = {}
    exec(compile(text, name, "exec"), scope)
    for test in [made for made in scope.values() if hasattr(made, "hypothesis")]:
        test()


BLOCKED = """
import sys
class NoHypothesis:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "hypothesis":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NoHypothesis())
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "hypothesis" else real(name, *rest)
"""


@pytest.mark.parametrize("name", ["strategies", "laws.check"])
def test_without_hypothesis_the_extra_is_named(name):
    code = f"{BLOCKED}\nimport morphogen.testing.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert 'pip install "morphogen[test]"' in last


@pytest.mark.slow
def test_the_rest_needs_the_package_alone_and_importing_it_loads_no_hypothesis():
    rest = [name for name in MODULES if name.split(".")[2] not in ("strategies", "laws", "extra")]
    code = f"{BLOCKED}\nimport morphogen, importlib\n[importlib.import_module(n) for n in {rest}]\n"
    code += "print('hypothesis' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("False", "")
