"""Extras: no file of the core contains the words of an extra, other than its declared hooks."""

import ast
import re
from pathlib import Path

import pytest
from tools.without_extra import BUILDS_ON

SRC = Path(__file__).parents[2] / "src" / "morphogen"
SEQUENCES = (  # a host may take sequences of integers
    "config/groups.py",
    "config/host.py",
    "config/spec.py",
    "env/part_check.py",
    "hosts/forward_pass.py",
    "hosts/seed_module.py",
)
VERSIONS_OF_TORCHRL = ("log/run_directory.py",)
REGIMES = (
    "config/keywords.py",
    "config/spec.py",
    "data/instance_process.py",
    "data/instances.py",
    "state/env.py",
    "state/schema.py",
    "vocab/purpose.py",
)
EVENTS_OF_REGIMES = ("train/reporter.py",)
RANKS = (
    "config/execution_spec.py",  # the settings
    "config/spec.py",  # their check
)
EXTRAS = {  # name: words, and the files of the core that contain them, its hooks
    "text": (
        r"(?i)\btokens?\b|transformer|causal|vocabulary|pydoc|tinystories|shakespeare",
        SEQUENCES,
    ),
    "cifar": (r"(?i)cifar", ()),
    "fashion": (r"(?i)fashion", ("config/task.py",)),  # the default
    "mnist": (r"(?i)mnist", ()),
    "streaming": (r"StreamedFeed|as_stored|ThreadPool", ()),
    "compiler": (r"CompiledUnits|compiler_options|warm_up\b", ()),
    "targets": (r"(?i)\bbce_|\bhuber|label_accuracy|FunctionCriterion", ()),
    "arrays": (r"from_arrays|from_torch|ArrayData", ()),
    "modules": (r"host_from_module|ModuleHost|[Mm]odule_?[Ss]tage|DrawRecorder", ()),
    "legacy_rewards": (r"(?i)legacy|escrow|basic_plus", ()),
    "whitebox": (r"(?i)white[-_]?box|by_formula", ()),
    "regimes": (r"(?i)regime|hazard", (*REGIMES, *EVENTS_OF_REGIMES)),
    "schedules": (r"(?i)schedule_?(control|file|policy)|germinate_one|full_cycle|on_illegal", ()),
    "archetypes": (r"(?i)archetype", ()),
    "export": (r"GrownSlot|grow_command|plain_images|onnx|save_network|KeepSpec|list_networks", ()),
    "search": (r"clairvoyant|successive_halving|schedule_search|play_oracle", ()),
    "ranks": (r"(?i)\branks?\b|collective|torchrun|world_size", RANKS),
    "loggers": (r"(?i)tensor_?board|wandb|mlflow", ()),
    "details": (
        r"ActionsTaken|SlotsMeasured|AttributionMissing|RewardsPaid|GateEvaluated|"
        r"AnomalySeen|SnapshotTaken|HostStabilized|TopologyRecorded",
        (),
    ),
    "scoreboard": (r"(?i)scoreboard|BlueprintScores", ()),
    "statistics": (r"MaskHitRates|ObservationStats|HiddenHealth|RewardSummary", ()),
    "inspection": (r"inspect_path|build_views|hypervolume|[Pp]areto", ()),
    "alarms": (r"(?i)\balarms?\b", ()),
    "torchrl": (r"(?i)torchrl", ("__init__.py", *VERSIONS_OF_TORCHRL)),
    "gymnasium": (r"(?i)gymnasium", ()),
    "pictures": (r"(?i)matplotlib|\bPlot\b", ()),
    "compare": (r"verdict\(|ComparisonSide|--seeds", ()),
    "cpu_graphs": (r"(?i)cpu_?graphs", ()),
    "profile": (r"thread_time|perf_counter_ns|enable_timing", ()),
    "completion": (r"shtab", ()),
    "evaluate": (r"mg\.evaluate|select_split", ()),
    "catalogue": (r"settings_command|tasks_command|def explain", ()),
    "watch": (r"rounds_table|live table", ()),
    "sb3": (r"(?i)\bsb3|stable.?baselines", ()),
}
each_extra = pytest.mark.parametrize(
    "extra", [name for name in EXTRAS if (SRC / "extras" / name).exists()]
)


def test_every_extra_has_its_words():
    assert {path.parent.name for path in (SRC / "extras").glob("*/__init__.py")} <= EXTRAS.keys()


@each_extra
def test_the_core_does_not_know_the_words_of_an_extra(extra):
    words, hooks = EXTRAS[extra]
    files = {
        str(path.relative_to(SRC))
        for path in SRC.rglob("*.py")
        if re.search(words, path.read_text())
    }
    assert {file for file in files if not file.startswith("extras/")} == set(hooks)


@each_extra
def test_an_extra_says_what_it_holds_and_where_it_plugs_in(extra):
    text = ast.get_docstring(ast.parse((SRC / "extras" / extra / "__init__.py").read_text())) or ""
    assert 15 <= len(text.splitlines()) <= 30
    assert "torch" in text
    assert "lugs in" in text


@each_extra
def test_an_extra_imports_no_other_extra(extra):
    for path in (SRC / "extras" / extra).glob("*.py"):
        named = set(re.findall(r"morphogen\.extras\.(\w+)", path.read_text()))
        assert named <= {extra, *BUILDS_ON.get(extra, ())}, path.name
