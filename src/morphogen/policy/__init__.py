"""Policies: the network, its distribution over actions, and rules that act without learning.

For readers who ask "how is an action chosen?".  Entry points:

    policy                `NetworkPolicy`, a policy around a network, and the protocol `Policy`
    policy_network        `PolicyNetwork`, `LstmNetwork`, `ModuleNetwork`; `controller`: parameters
                          and layers
    distribution          the factored distribution over the heads of an action
    observation_scaling   running statistics of observations
    heuristic             policy of threshold rules
    baselines             policies that do not learn: random, `wait`
    policy_files          `save_policy`, `load_policy`: a policy in a safetensors file, which holds
                          no code

A policy is a pure function of parameters, observation, masks, memory and noise; `ppo` trains it,
`env` calls it.

Imports `hosts`, `rules`, `state`, `config`, `kernels` and `vocab`.
Loads torch and tensordict; only `policy_files` reads and writes files.
"""

from morphogen.policy.baselines import RandomPolicy
from morphogen.policy.distribution import LogitTables, build_tables
from morphogen.policy.heuristic import HeuristicPolicy
from morphogen.policy.observation_scaling import init_stats, normalise
from morphogen.policy.policy import NetworkPolicy, Policy
from morphogen.policy.policy_network import (
    LstmNetwork,
    ModuleNetwork,
    NetworkInputs,
    NetworkOutput,
    PolicyNetwork,
)

__all__ = [
    "HeuristicPolicy",
    "LogitTables",
    "LstmNetwork",
    "ModuleNetwork",
    "NetworkInputs",
    "NetworkOutput",
    "NetworkPolicy",
    "Policy",
    "PolicyNetwork",
    "RandomPolicy",
    "build_tables",
    "init_stats",
    "normalise",
]
