"""Networks of all envs at once: hosts, their seeds, and the plan of an epoch.

For authors of steps, hosts and blueprints.  Everything is a function of parameters and inputs.  The
networks of all envs are stacked in one axis; each blueprint is computed once, over exactly the rows
that hold it.

- `net.Net`: the host of a run, its enabled slots and `precision`; flat parameters and their layouts
- `plan`: sizes of an epoch; its docstring explains the way from a plan to logits, with a picture,
  and the terms
- `sites`: index lists of every slot on the device, parameters gathered and scattered by them
- `blocks`: parameters of all seeds as one flat buffer, statistics of its gradient
- `forward_pass`: the pass through hosts and seeds under a plan
- `host_networks.HostNetworks`, `seed_module.SeedModule`: protocols of hosts and blueprints
- `cnn`, `cnn_seeds`: the host and the blueprints of the package, with the parameters of each;
  `sequences`: layers on places of sequences
- `optim`: SGD and AdamW by rows, `grad_and_value`; `schedule`: their learning rates
- `layout`: leaves of flat parameters

Layers come from `kernels`; this package offers those that an author of a host needs.
Imports `rules`, `state`, `config`, `kernels` and `vocab`.
Loads torch and tensordict; never reads a value from the device.
"""

from morphogen.hosts.forward_pass import SlotSeeds, forward, used_classes
from morphogen.hosts.host_networks import HostNetworks, HostRows
from morphogen.hosts.layout import Leaves, ParamLayout, ParamLeaf, fan_in_leaf
from morphogen.hosts.net import Net
from morphogen.hosts.optim import adamw, clip_by_norm, grad_and_value, sgd
from morphogen.hosts.plan import EpochPlan, Plan, empty_plan, plan_counts, read_plan
from morphogen.hosts.precision import Precision
from morphogen.hosts.seed_module import SeedModule
from morphogen.kernels.conv import stacked_conv
from morphogen.kernels.linear import linear, rows_linear
from morphogen.kernels.norm import NormBlock, group_norm
from morphogen.kernels.pool import max_pool2d
from morphogen.kernels.sums import spatial_mean
from morphogen.kernels.take import images_innermost

__all__ = [
    "EpochPlan",
    "HostNetworks",
    "HostRows",
    "Leaves",
    "Net",
    "NormBlock",
    "ParamLayout",
    "ParamLeaf",
    "Plan",
    "Precision",
    "SeedModule",
    "SlotSeeds",
    "adamw",
    "clip_by_norm",
    "empty_plan",
    "fan_in_leaf",
    "forward",
    "grad_and_value",
    "group_norm",
    "images_innermost",
    "linear",
    "max_pool2d",
    "plan_counts",
    "read_plan",
    "rows_linear",
    "sgd",
    "spatial_mean",
    "stacked_conv",
    "used_classes",
]
