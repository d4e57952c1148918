"""From a validated config to everything that a scheduler needs; nothing is written here."""

from dataclasses import dataclass

import torch

from morphogen.config.action_schedule import Schedule
from morphogen.config.groups import COMPILE_REDUCE_OVERHEAD, RESIDENT
from morphogen.config.spec import RunSpec, build_limits, cnn_spec, param_budget
from morphogen.config.task import TASKS, TaskSpec
from morphogen.data.dataset import Dataset, open_dataset
from morphogen.data.feed import ResidentFeed
from morphogen.engine.action_control import load_schedule
from morphogen.engine.reward_rule import build_rule
from morphogen.errors import DeviceError
from morphogen.nets.net import Net
from morphogen.rules.rewards.protocol import Rule
from morphogen.vocab.limits import Limits


@dataclass(frozen=True, slots=True)
class Setup:
    """The fixed parts of one run."""

    spec: RunSpec  # resolved: every field has a value
    task: TaskSpec
    net: Net
    limits: Limits
    budget: int  # parameters that cost the whole price
    rule: Rule
    dataset: Dataset
    feed: ResidentFeed | None  # None where the data is streamed: every world reads its own
    schedule: Schedule | None  # what the policy of the spec has to follow
    device: torch.device


def resolve_device(name: str) -> torch.device:
    """The device behind `auto`, `cpu`, `cuda` or `cuda:N`; a DeviceError where there is none."""
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    device = torch.device("cuda:0" if name == "cuda" else name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise DeviceError(f"engine.devices is {name!r}; this machine has {torch.cuda.device_count()} CUDA devices")
    return device


def check_compile_mode(mode: str, device: torch.device) -> None:
    """A DeviceError where a compile mode cannot run on the device."""
    if mode == COMPILE_REDUCE_OVERHEAD and device.type != "cuda":
        raise DeviceError(f"engine.compile is {mode!r}, which needs a CUDA device; the run is on {device}")


def build_setup(spec: RunSpec) -> Setup:
    """Open the data and lay out the networks of a resolved spec."""
    device = resolve_device(spec.engine.devices[0])
    check_compile_mode(spec.engine.compile, device)
    task = TASKS[spec.task]
    host = cnn_spec(spec)
    net = Net(host=host, slots=host.pick_slots(spec.slots))
    budget, schedule = param_budget(spec), load_schedule(spec.policy_name, spec)
    dataset = open_dataset(task, spec.data, device)
    resident, noisy = dataset.placement == RESIDENT, spec.instance.label_noise[1] > 0
    return Setup(
        spec=spec,
        task=task,
        net=net,
        limits=build_limits(spec),
        budget=budget,
        rule=build_rule(spec.reward, param_budget=budget, episode_length=spec.episode_length, gamma=spec.ppo.gamma),
        dataset=dataset,
        feed=ResidentFeed(dataset, task, spec.data, label_noise=noisy) if resident else None,
        schedule=schedule,
        device=device,
    )
