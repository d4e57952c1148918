"""Reward rules of other packages: found by name, imported when a run names them, refused with one
clear line.
"""

import json
import sys
from dataclasses import asdict, dataclass, replace

import pytest
import torch
from support.offered_packages import write_package
from tensordict import TensorDict

from morphogen.cli import main
from morphogen.config.groups import RewardSpec
from morphogen.config.parts import RULES
from morphogen.env.part_check import build_rule
from morphogen.errors import ConfigError
from morphogen.rules.rewards.protocol import Terms
from morphogen.rules.rewards.table import FunctionRule, rule_from_function

TERMS = Terms(param_budget=20_000, episode_length=75, gamma=0.995)

SOURCE = '''"""Rules of a little package."""

import torch

from morphogen.rules.rewards.table import rule_from_function


@rule_from_function
def thrift(inputs):
    """Accuracy that is delivered, less a little for every living parameter in every step."""
    gain = torch.where(inputs.horizon, inputs.committed_acc, 0.0) / 100
    return {"gain": gain, "size": -1e-6 * inputs.live_params}


number = 3


def failing(spec, terms):
    """Cannot be built."""
    raise KeyError("no such price")
'''


def offer(folder, monkeypatch, *, points, source=SOURCE, name="thrift_rules", version="0.1"):
    """Install a package that offers rules where this process finds it."""
    write_package(folder, source, {RULES.group: points}, name=name, version=version)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.fixture(autouse=True)
def no_traces(monkeypatch):
    """No signal handler is set, and importing a package writes no cache."""
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


def tried(capsys, monkeypatch, folder, *words):
    """Exit code, stdout and lines on stderr of a command that writes nothing."""
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    code = main.main(list(words))
    shown = capsys.readouterr()
    assert sorted(folder.iterdir()) == before
    return code, shown.out, shown.err.splitlines()


def dry(rule):
    return ("train", "--preset", "smoke", "--reward", rule, "--dry-run")


def test_an_offered_name_is_known_before_anything_is_imported(tmp_path, monkeypatch, capsys):
    offer(
        tmp_path, monkeypatch, points={"thrift": "thrift"}, source="raise RuntimeError('imported')"
    )
    code, out, _ = tried(
        capsys, monkeypatch, tmp_path, "train", "--reward", "thrift", "--print-config"
    )
    assert (code, json.loads(out)["reward"]["rule"]) == (0, "thrift")
    assert "thrift_rules" not in sys.modules
    code, _, lines = tried(capsys, monkeypatch, tmp_path, *dry("greed"))
    assert (code, len(lines)) == (2, 1)
    assert lines[0].startswith("morphogen: error: reward.rule: expected one of sparse, delta, ")
    assert lines[0].endswith(', thrift, got "greed"')


def test_an_offered_rule_is_used_by_flag_and_by_file(tmp_path, monkeypatch, capsys):
    offer(tmp_path, monkeypatch, points={"thrift": "thrift"})
    file = tmp_path / "my.json"
    file.write_text('{"preset": "smoke", "reward": {"rule": "thrift"}}')
    for words in (dry("thrift"), ("train", "--config", str(file), "--dry-run")):
        code, out, lines = tried(capsys, monkeypatch, tmp_path, *words)
        assert (code, lines) == (0, [])
        assert "thrift" in out
    assert RULES.origin("thrift") == "thrift_rules 0.1"


BROKEN = {
    "missing": (
        "nowhere",
        "cannot be imported: AttributeError: module 'thrift_rules' has no attribute 'nowhere'",
    ),
    "number": (
        "number",
        "reward.rule: number of thrift_rules 0.1: expected a function (spec, terms) -> rule, got 3",
    ),
    "failing": ("failing", "reward.rule: failing of thrift_rules 0.1: KeyError: 'no such price'"),
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_a_rule_that_cannot_be_used_stops_its_own_runs_with_one_line_and_no_other(
    tmp_path, monkeypatch, capsys, name
):
    target, said = BROKEN[name]
    offer(tmp_path, monkeypatch, points={name: target, "thrift": "thrift"})
    code, out, lines = tried(capsys, monkeypatch, tmp_path, *dry(name))
    assert (code, out, len(lines)) == (2, "", 1)
    assert said in lines[0]
    for other in ("delta", "thrift"):
        assert tried(capsys, monkeypatch, tmp_path, *dry(other))[::2] == (0, [])


def test_two_packages_with_one_name_stop_the_runs_that_want_it(tmp_path, monkeypatch, capsys):
    for name in ("thrift_rules", "other_rules"):
        folder = tmp_path / name
        folder.mkdir()
        offer(folder, monkeypatch, points={"thrift": "thrift"}, name=name)
    code, _, lines = tried(capsys, monkeypatch, tmp_path, *dry("thrift"))
    assert code == 2
    assert lines == [
        "morphogen: error: reward.rule: expected one package with thrift, got other_rules "
        "0.1 and thrift_rules 0.1; "
        "uninstall one"
    ]
    assert tried(capsys, monkeypatch, tmp_path, *dry("delta"))[::2] == (0, [])


def test_no_package_takes_the_name_of_a_rule_from_here(tmp_path, monkeypatch, capsys):
    offer(tmp_path, monkeypatch, points={"delta": "thrift"})
    own = RULES["delta"]
    assert tried(capsys, monkeypatch, tmp_path, *dry("delta"))[::2] == (0, [])
    assert RULES["delta"] is own


# what a rule that is not from here must keep


@dataclass(frozen=True)
class Crooked:
    """A rule that keeps its contract but for what is changed about it."""

    components: object = ("gain", "governor")
    paid: object = staticmethod(lambda step, parts: parts)
    total: object = staticmethod(lambda step, total: total)
    slot_scale: float = 0.0

    def init(self, envs, slots, device="cpu"):
        return TensorDict(
            {"seen": torch.zeros(envs, device=device)}, batch_size=[envs], device=device
        )

    def potential(self, inputs, ledger):
        return torch.zeros_like(inputs.committed_acc), torch.ones_like(inputs.horizon)

    def __call__(self, inputs, ledger):
        zero = torch.zeros_like(inputs.committed_acc)
        parts = {
            "gain": inputs.clean_improvement / 100,
            "governor": torch.where(inputs.rolled_back, -1.0, zero),
        }
        reward = self.total(inputs, sum(parts.values()))
        return reward, self.paid(inputs, parts), ledger.replace({"seen": ledger["seen"] + 1})


CROOKED = {
    "step 3: reward: expected finite numbers": Crooked(
        total=lambda step, total: total / ~step.rolled_back
    ),
    r"reward: expected torch.float32 \[3\], got torch.float32 \[3, 3\]": Crooked(
        total=lambda step, total: step.slots.alpha
    ),
    r"gain: expected .*, got torch.float64 \[3\]": Crooked(
        paid=lambda step, parts: {**parts, "gain": parts["gain"].double()}
    ),
    "components: expected gain, governor, got gain, governor, tip": Crooked(
        paid=lambda step, parts: {**parts, "tip": parts["gain"] * 0}
    ),
    "components: expected gain, governor, got gain": Crooked(
        paid=lambda step, parts: {"gain": parts["gain"]}
    ),
    r"components: expected a tuple of distinct names, got \['gain', 'governor'\]": Crooked(
        components=["gain", "governor"]
    ),
    r"components: expected a tuple of distinct names, got \('gain', 'gain'\)": Crooked(
        components=("gain", "gain")
    ),
}


@pytest.mark.parametrize("said", list(CROOKED))
def test_a_rule_whose_numbers_have_another_form_is_refused_before_the_run(said):
    RULES.register("crooked", lambda spec, terms: CROOKED[said])
    with pytest.raises(ConfigError, match=f"reward.rule: crooked of this program: .*({said})"):
        build_rule(RewardSpec(rule="crooked"), **asdict(TERMS))


def test_a_rule_that_keeps_its_contract_is_used_as_it_is():
    straight = Crooked()
    RULES.register("straight", lambda spec, terms: replace(straight))
    RULES.register(
        "plain", rule_from_function(lambda inputs: {"gain": inputs.clean_improvement / 100})
    )
    assert build_rule(RewardSpec(rule="straight"), **asdict(TERMS)) == straight
    assert isinstance(build_rule(RewardSpec(rule="plain"), **asdict(TERMS)), FunctionRule)


@pytest.mark.parametrize(
    ("builder", "said"),
    [
        (
            lambda inputs: {"gain": inputs.clean_improvement},
            "expected the builder of a rule, got a function: wrap",
        ),
        (
            rule_from_function(lambda inputs: inputs.clean_improvement),
            "expected a dict of named parts of the reward, got",
        ),
        (
            rule_from_function(lambda inputs: {}),
            "expected a dict of named parts of the reward, got {}",
        ),
    ],
)
def test_a_function_that_is_no_rule_is_refused_with_the_remedy(builder, said):
    RULES.register("bare", builder)
    with pytest.raises(ConfigError, match=f"reward.rule: bare of this program: {said}"):
        build_rule(RewardSpec(rule="bare"), **asdict(TERMS))
