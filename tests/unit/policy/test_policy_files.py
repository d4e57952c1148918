"""Policy files: a saved policy comes back, and another file is refused by name."""

import pytest
import torch
from support import run_comparison
from tensordict import TensorDict

from morphogen.errors import CheckpointError
from morphogen.policy.policy_files import load_policy, save_policy
from morphogen.state.tensor_trees import save_tree, to_nested_dict

PARAMS = {"trunk": {"weight": torch.ones(2, 3)}, "head": torch.zeros(4)}
NORMALISERS = TensorDict(
    {"mean": torch.zeros(5, dtype=torch.float64), "count": torch.tensor(3)}, batch_size=[]
)


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "policy.safetensors"
    config = '{"task": "digits"}'
    save_policy(path, params=PARAMS, normalisers=NORMALISERS, config=config, facts={"round": 4})
    return path


def equal(one, other):
    return not list(run_comparison.tree_differences(one, other, ""))


def test_a_policy_comes_back_with_normalisers_and_config(policy):
    loaded = load_policy(policy)
    assert equal(loaded["params"], PARAMS)
    assert equal(loaded["normalisers"], to_nested_dict(NORMALISERS))
    assert loaded["config"] == '{"task": "digits"}'
    assert loaded["facts"] == {"round": 4}
    assert [entry.name for entry in policy.parent.iterdir()] == ["policy.safetensors"]
    for path in (policy.parent, str(policy.parent), str(policy)):
        assert equal(load_policy(path)["params"], PARAMS)


def test_a_place_that_cannot_be_written_is_a_checkpoint_error(tmp_path):
    path = tmp_path / "no" / "policy.safetensors"
    with pytest.raises(CheckpointError, match="cannot be written"):
        save_policy(path, params={}, normalisers={}, config="{}", facts={})


def test_files_that_are_no_policy_are_refused(policy, tmp_path):
    (tmp_path / "cut").write_bytes(policy.read_bytes()[:50])
    torch.save({"format": 3}, tmp_path / "older")
    save_tree([1, 2], tmp_path / "list")
    save_tree({**load_policy(policy), "format": 9}, tmp_path / "newer")
    save_tree({**load_policy(policy), "params": 3}, tmp_path / "odd")
    reasons = {
        "absent": "is missing",
        "cut": "cannot be read",
        "older": "cannot be read: expected a safetensors file, .* older format$",
        "list": "is not a policy file",
        "newer": "expected format 5, got 9",
        "odd": "params: expected a dict, got a int",
    }
    for name, reason in reasons.items():
        with pytest.raises(CheckpointError, match=rf"{name}:? {reason}"):
            load_policy(tmp_path / name)
