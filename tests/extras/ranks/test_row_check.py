"""`find_row_dependence` names what differs between all envs at once and shards of them."""

import pytest
import torch
from support.small_runs import tiny_setup

from morphogen import kernels
from morphogen.config.policy_spec import PolicySpec
from morphogen.env.policies import build_arm, build_network_policy
from morphogen.extras.ranks.row_check import find_row_dependence
from morphogen.policy import policy as policies

SETUP = tiny_setup(envs=24)


@pytest.mark.skipif(
    not kernels.CAN_CONVOLVE, reason="other processors multiply matrices in other orders"
)
@pytest.mark.parametrize("ranks", [1, 2, 3, 12])
def test_a_policy_acts_alike_in_shards_of_two_envs_and_more(ranks):
    setup = tiny_setup(envs=24, policy=PolicySpec(hidden=32))
    assert find_row_dependence(build_network_policy(setup.spec), setup, ranks) is None


def test_a_policy_without_parameters_depends_on_nothing():
    assert find_row_dependence(build_arm("heuristic", SETUP).policy, SETUP, 24) is None


def test_a_difference_in_the_last_bit_is_named(monkeypatch):
    whole = policies.NetworkPolicy.act

    def act(self, params, obs, *rest):
        out = whole(self, params, obs, *rest)
        return out.replace(value=torch.nextafter(out.value, out.value + obs.batch_size[0] - 12))

    monkeypatch.setattr(policies.NetworkPolicy, "act", act)
    wrong = find_row_dependence(build_network_policy(SETUP.spec), SETUP, 2)
    assert wrong == "value of the policy differ in bits between 24 envs at once and 12 of them"
