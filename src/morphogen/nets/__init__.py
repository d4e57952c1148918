"""Networks of all envs at once: hosts, seeds, the plan of an epoch, and the policy.

For authors of steps and learners.  Everything is a function of parameters and inputs; networks of all envs are stacked
in one axis, and each blueprint is computed once, over exactly the rows that hold it.  Layers come from `kernels`.

- `net.Net`: what is fixed for a run, the host, its enabled slots and `precision`; flat parameters and their layouts
- `plan`: sizes of an epoch; its docstring explains the way from a
  plan to logits, with a picture, and the terms
- `sites`: index lists of every slot on the device, parameters gathered and scattered by them
- `blocks`: parameters of all seeds as one flat buffer, statistics of its gradient
- `forward_pass`: the pass through hosts and seeds under a plan
- `host_networks.HostNetworks`, `seed_module.SeedModule`: protocols of hosts and blueprints; `cnn`, `cnn_seeds`: those
  of the package
- `optim`: SGD and AdamW by rows, `grad_and_value`
- `layout`: leaves of flat parameters
- `policy.NetworkPolicy`: the trained policy around a `policy_network.PolicyNetwork`, and the protocol `Policy`;
  `distribution`: the factored distribution over actions; `observation_scaling`: running statistics

Imports `rules`, `state`, `kernels` and `vocab`.  Loads torch and tensordict; never reads a value from the device.
"""

from morphogen.kernels.conv import stacked_conv
from morphogen.kernels.linear import linear, rows_linear
from morphogen.kernels.norm import NormBlock, group_norm
from morphogen.kernels.pool import max_pool2d
from morphogen.kernels.sums import spatial_mean
from morphogen.kernels.take import images_innermost
from morphogen.nets.distribution import LogitTables, build_tables
from morphogen.nets.forward_pass import SlotSeeds, forward, used_classes
from morphogen.nets.host_networks import HostNetworks, HostRows
from morphogen.nets.layout import Leaves, ParamLayout, ParamLeaf, fan_in_leaf
from morphogen.nets.net import Net
from morphogen.nets.observation_scaling import init_stats, normalise
from morphogen.nets.optim import adamw, clip_by_norm, grad_and_value, sgd
from morphogen.nets.plan import EpochPlan, Plan, empty_plan, plan_counts, read_plan
from morphogen.nets.policy import NetworkPolicy, Policy
from morphogen.nets.policy_network import LstmNetwork, ModuleNetwork, NetworkInputs, NetworkOutput, PolicyNetwork
from morphogen.nets.precision import Precision
from morphogen.nets.seed_module import SeedModule

__all__ = [
    "EpochPlan",
    "HostNetworks",
    "HostRows",
    "Leaves",
    "LogitTables",
    "LstmNetwork",
    "ModuleNetwork",
    "Net",
    "NetworkInputs",
    "NetworkOutput",
    "NetworkPolicy",
    "NormBlock",
    "ParamLayout",
    "ParamLeaf",
    "Plan",
    "Policy",
    "PolicyNetwork",
    "Precision",
    "SeedModule",
    "SlotSeeds",
    "adamw",
    "build_tables",
    "clip_by_norm",
    "empty_plan",
    "fan_in_leaf",
    "forward",
    "grad_and_value",
    "group_norm",
    "images_innermost",
    "init_stats",
    "linear",
    "max_pool2d",
    "normalise",
    "plan_counts",
    "read_plan",
    "rows_linear",
    "sgd",
    "spatial_mean",
    "stacked_conv",
    "used_classes",
]
