"""Laws of blueprints and hosts: parts that keep them pass, and each law finds the fault that is
planted for it.
"""

from dataclasses import dataclass, replace

import pytest
import torch
from support.extras import needs_extra
from support.own_parts import Perceptron, Shift
from support.single_laws import keep_law
from torch import Tensor

import morphogen as mg
from morphogen.testing import laws
from morphogen.testing.laws.part_laws import BLUEPRINT_LAWS, HOST_LAWS

CNN = mg.CnnSpec(base=4, blocks=2, kernel=3, pools=1, channels_in=1, size=8, classes=10)
OWN = [mg.BLUEPRINTS[name] for name in CNN.blueprints]


@pytest.mark.slow
@pytest.mark.parametrize("module", OWN, ids=lambda module: module.name)
def test_the_blueprints_of_the_package_keep_the_laws(module):
    laws.check_blueprint(module)


@pytest.mark.slow
def test_parts_of_users_keep_the_laws():
    laws.check_blueprint(Shift())
    laws.check_blueprint(Shift(), size=())
    laws.check_host(Perceptron())


@pytest.mark.slow
def test_the_host_of_the_package_keeps_the_laws():
    laws.check_host(replace(CNN, norm="batch"))


class Miscounted(Shift):
    def params(self, channels):
        return channels


class Doubled(Shift):
    def delta(self, params, x):
        return super().delta(params, x).double()


class Loud(Shift):
    def leaves(self, channels):
        weight, bias = super().leaves(channels)
        return weight, replace(bias, fill=1e-20)


class Deaf(Shift):
    """Its bias gets no gradient."""

    def delta(self, params, x):
        return super().delta({**params, "bias": params["bias"].detach()}, x)


class Curious(Shift):
    """Every row sees the mean of all rows."""

    def delta(self, params, x):
        return super().delta(params, x + 0.1 * x.mean(-2, keepdim=True))


class Leaky(Shift):
    """Rows are apart as long as their parameters are finite."""

    def delta(self, params, x):
        return super().delta(params, x) + 0.0 * params["weight"].sum()


class Reader(Shift):
    def delta(self, params, x):
        if float(params["bias"].detach().sum()) > 1e6:
            return 2.0 * super().delta(params, x)
        return super().delta(params, x)


class Writer(Shift):
    def delta(self, params, x):
        out = super().delta(params, x)
        params["bias"].detach().add_(1.0)
        return out


class Noisy(Shift):
    def delta(self, params, x):
        return super().delta(params, x) * torch.rand(())


class Broken(Shift):
    """Leaves the graph in the middle."""

    def delta(self, params, x):
        torch._dynamo.graph_break()
        return super().delta(params, x)


SEEDS = {
    "declares_params": (Miscounted, "shift has 72 parameters, declares 8"),
    "keeps_form": (
        Doubled,
        r"delta at r0c0: expected torch.float32 \[4, 4, 4, 3, 8\], got torch.float64",
    ),
    "is_identity": (Loud, "shift is not the identity at birth"),
    "gets_gradients": (Deaf, "gets no gradient within 3 steps: bias"),
    "host": (Reader, "asks the host: aten._local_scalar_dense at .*test_part_laws.py"),
    "writes": (Writer, "shift writes to its input: params has changed"),
    "repeats": (Noisy, "draws from a global random generator"),
    "neighbours": (Curious, "sees its neighbours"),
    "isolates": (Leaky, "lets NaN of a row into another one"),
    "graph": (Broken, "is not one graph: "),
}


def test_a_fault_is_planted_for_every_law():
    assert set(SEEDS) == set(BLUEPRINT_LAWS)
    assert set(HOSTS) == set(HOST_LAWS)


@pytest.mark.parametrize("law", list(SEEDS))
def test_a_broken_blueprint_is_found_by_its_law(monkeypatch, law):
    keep_law(monkeypatch, "BLUEPRINT_LAWS", law)
    kind, said = SEEDS[law]
    with pytest.raises(laws.BrokenLaw, match=said) as caught:
        laws.check_blueprint(kind())
    assert caught.value.law == law


class Unordered(Perceptron):
    @property
    def all_slots(self):
        return tuple(replace(slot, execution=0) for slot in super().all_slots)


class PooledVector(Perceptron):
    @property
    def all_slots(self):
        return tuple(replace(slot, pooled=True) for slot in super().all_slots)


class MiscountedHost(Perceptron):
    def params(self, width=1.0, classes=None):
        return 3


class MiscountedUse(Perceptron):
    def params_in_use(self, instance):
        return 0.5 * instance.classes


class Wider(Perceptron):
    @property
    def all_slots(self):
        return tuple(replace(slot, channels=9) for slot in super().all_slots)


class HeadShort(Perceptron):
    def head(self, x, rows):
        return super().head(x, rows)[..., :-1]


class Different(Perceptron):
    """Inputs that are shared are halved."""

    def embed(self, inputs):
        return super().embed(inputs) * (1.0 if inputs.dim() == 3 else 0.5)


class Social(Perceptron):
    def head(self, x, rows):
        logits = super().head(x, rows)
        return logits + 0.1 * logits.mean(0)


class LeakyHost(Perceptron):
    def head(self, x, rows):
        return super().head(x, rows) + 0.0 * rows.leaves["w0"].sum()


class Frozen(Perceptron):
    def stage(self, i, x, rows):
        leaves = rows.leaves if i else {**rows.leaves, "w0": rows.leaves["w0"].detach()}
        return super().stage(i, x, rows._replace(leaves=leaves))


class ReaderHost(Perceptron):
    def stage(self, i, x, rows):
        return super().stage(i, x, rows) * float(rows.leaves["w0"].detach().isfinite().any())


class WriterHost(Perceptron):
    def head(self, x, rows):
        logits = super().head(x, rows)
        rows.leaves["w0"].add_(1.0)
        return logits


class NoisyHost(Perceptron):
    def head(self, x, rows):
        return super().head(x, rows) * torch.rand(())


class BrokenHost(Perceptron):
    def head(self, x, rows):
        torch._dynamo.graph_break()
        return super().head(x, rows)


HOSTS = {
    "orders_slots": (Unordered, r"expected `execution` 0 .. 1 in order, got \[0, 0\]"),
    "declares_params": (MiscountedHost, "has 136 parameters, declares 3"),
    "uses_params": (MiscountedUse, r"params_in_use: expected \[136, 136, 136\], int64"),
    "keeps_form": (
        Wider,
        r"features at r0c0: expected torch.float32 \[4, 3, 9\], got torch.float32 \[4, 3, 8\]",
    ),
    "shares_inputs": (Different, "other logits for inputs that all rows share"),
    "host": (ReaderHost, "asks the host: aten._local_scalar_dense at .*test_part_laws.py"),
    "writes": (WriterHost, "WriterHost writes to its input: params has changed"),
    "repeats": (NoisyHost, "draws from a global random generator"),
    "neighbours": (Social, "sees its neighbours"),
    "isolates": (LeakyHost, "lets NaN of a row into another one"),
    "gets_gradients": (Frozen, "gets no gradient within 3 steps: w0"),
    "graph": (BrokenHost, "is not one graph"),
}
MORE_HOSTS = [
    (
        PooledVector,
        r"expected height and width where features are pooled, got none at \['r0c0', 'r0c1'\]",
    ),
    (HeadShort, r"logits: expected torch.float32 \[3, 4, 3\], got torch.float32 \[3, 4, 2\]"),
]


@pytest.mark.parametrize("law", list(HOSTS))
def test_a_broken_host_is_found_by_its_law(monkeypatch, law):
    keep_law(monkeypatch, "HOST_LAWS", law)
    kind, said = HOSTS[law]
    with pytest.raises(laws.BrokenLaw, match=said) as caught:
        laws.check_host(kind())
    assert caught.value.law == law


@pytest.mark.parametrize(("kind", "said"), MORE_HOSTS)
def test_further_faults_of_hosts_are_found(kind, said):
    with pytest.raises(laws.BrokenLaw, match=said):
        laws.check_host(kind())


@pytest.mark.slow
def test_the_parts_of_an_environment_are_checked_together():
    laws.check_environment(mg.make("digits", envs=2, blueprints=(Shift(), "norm")))
    quick = Curious()
    object.__setattr__(quick, "name", "curious")
    env = mg.make("digits", envs=2, blueprints=(quick,))
    with pytest.raises(laws.BrokenLaw, match="curious sees its neighbours"):
        laws.check_environment(env)


@dataclass(frozen=True)
class Loop(Perceptron):
    """A host whose blueprints nobody has registered."""

    blueprints = ("unknown",)


def test_a_host_whose_blueprints_are_unknown_is_refused():
    task = mg.TaskSpec(name="loop", dataset="digits", host=Loop())
    with pytest.raises(
        mg.ConfigError, match=r"blueprints of host Loop: expected parts, .*, got 'unknown'"
    ):
        mg.make(task)


@needs_extra("arrays")
def test_the_check_of_a_data_set_reads_it_twice(tmp_path):
    inputs = torch.rand(60, 6, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(60) % 3
    good = mg.from_arrays("points", inputs, labels)
    laws.check_dataset(good, Perceptron(), folder=tmp_path)
    with pytest.raises(
        laws.BrokenLaw, match=r"samples of shape \(6,\), as the host takes"
    ) as caught:
        laws.check_dataset(
            mg.from_arrays("points", inputs[:, :5], labels), Perceptron(), folder=tmp_path
        )
    assert caught.value.law == "fits_host"
    calls: list[Tensor] = []

    def drifting(folder):
        calls.append(folder)
        return mg.from_arrays("points", inputs + len(calls), labels)(folder)

    with pytest.raises(laws.BrokenLaw, match="drifting gives other samples the second time"):
        laws.check_dataset(drifting, Perceptron(), folder=tmp_path)


class Unbuildable(Perceptron):
    def pick_slots(self, names):
        raise KeyError("no slots")


def unreadable(folder):
    raise FileNotFoundError("no such file")


@pytest.mark.parametrize(
    ("check", "sentence"),
    [
        (
            lambda: laws.check_host(Unbuildable()),
            "Unbuildable raises KeyError: 'no slots' (law: can_be_built)",
        ),
        (
            lambda: laws.check_dataset(unreadable, Perceptron()),
            "unreadable raises FileNotFoundError: no such file (law: can_be_read)",
        ),
        (lambda: laws.check_blueprint(unreadable), "unreadable raises AttributeError: "),
        (lambda: laws.check_host(3), "int raises AttributeError: "),
    ],
)
def test_an_error_of_a_part_breaks_a_law(check, sentence):
    with pytest.raises(laws.BrokenLaw) as broken:
        check()
    assert str(broken.value).startswith(sentence)
