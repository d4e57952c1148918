"""Worth of growing on training instances, at any price: `python -m bench.studies.landscape
[--preset NAME] [--on N]`.

Every schedule that grows one seed from the first epoch on, or no seed, plays the same training
instances in two worlds. A price changes nothing in an episode, so the accuracies give the values
under any range of prices: the host alone, the best fixed schedule, and the best one of each
instance, picked in one world and judged in the other.  Held-out instances are not looked at.

Beside them: the accuracy of a host of twice the width that grows nothing, and of always giving the
commonest label.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.harness.machine import machine_facts
from morphogen.config.config_files import build_spec
from morphogen.config.spec import RunSpec, resolve
from morphogen.data.instances import draw_instances
from morphogen.device.transfers import Transfers
from morphogen.env.setup import Setup, build_setup
from morphogen.evaluation.arms import PlayContext
from morphogen.extras.search.candidates import Candidate, build_schedule, initial_candidates
from morphogen.extras.search.instance_sets import score_schedules, training_instances
from morphogen.vocab.blueprint import Blueprint

RESULTS = Path(__file__).parents[1] / "results"
FILE = RESULTS / "landscape.json"  # of digits
PRESETS = ("digits", "pydoc")  # whose hosts have a width
RANGES = ((0.001, 0.1), (0.005, 0.25), (0.005, 0.5), (0.01, 0.5), (0.01, 1.0))
Array = np.ndarray[Any, Any]
TRAITS = ("width", "data_share", "label_noise", "classes", "reach")
DRAWS = 500  # prices of an instance
WORLDS = 2  # siblings


def landscape_spec(preset: str, **settings: Any) -> RunSpec:
    """The preset, with parameters for nothing: what is delivered is worth its accuracy."""
    return resolve(
        build_spec({"preset": preset, "instance": {"param_price": [0.0, 0.0]}}, settings)
    )


def single_seed_candidates(spec: RunSpec) -> list[Candidate]:
    """Nothing, and each blueprint in each slot from the first epoch on."""
    return [one for one in initial_candidates(spec) if not one or one[0].epoch == 0]


def measure_landscape(spec: RunSpec, count: int) -> dict[str, Any]:
    """Accuracies, a share of 1, and parameters of all schedules, and what the instances are."""
    setup = build_setup(spec)
    candidates = single_seed_candidates(spec)
    instances = training_instances(spec, count)
    rows = zip(candidates, _accuracies(setup, candidates, count), strict=True)
    return {
        "commonest_label": commonest_label_rate(setup),
        "instances": _instance_traits(setup, instances.tasks, instances.episode),
        "schedules": [
            {**_candidate_row(candidate, setup), "accuracy": np.round(accuracy, 4).tolist()}
            for candidate, accuracy in rows
        ],
    }


def measure_wider(preset: str, width: int, count: int) -> dict[str, Any]:
    """Accuracy, a share of 1, of a host of this width that grows nothing, on the same instances."""
    setup = build_setup(landscape_spec(preset, host={"width": width}))
    return {"width": width, "accuracy": np.round(_accuracies(setup, [()], count)[0], 4).tolist()}


def _accuracies(setup: Setup, candidates: Sequence[Candidate], count: int) -> Array:
    """Network values without a price, [K, W, n]."""
    schedules = [build_schedule(candidate, setup.spec) for candidate in candidates]
    context = PlayContext(setup, Transfers(setup.device, time.perf_counter))
    return score_schedules(
        context, schedules, training_instances(setup.spec, count), worlds=range(WORLDS)
    )


def commonest_label_rate(setup: Setup) -> float:
    """Share of the commonest label of the validation split: what knowing nothing of an input is
    worth.
    """
    counts = torch.bincount(setup.dataset.validation.labels.flatten())
    return float(counts.max() / counts.sum())


def _candidate_row(candidate: Candidate, setup: Setup) -> dict[str, Any]:
    if not candidate:
        return {"grows": "nothing", "params": 0}
    slot = setup.spec.slots.index(candidate[0].slot)
    blueprint = Blueprint(candidate[0].blueprint)
    return {
        "grows": f"{blueprint.label} in {candidate[0].slot}",
        "params": setup.net.counts[slot][blueprint],
    }


def _instance_traits(setup: Setup, tasks: torch.Tensor, episode: int) -> dict[str, list[float]]:
    when = torch.full_like(tasks[:, 0], episode)
    labels, purpose = setup.dataset.labels, training_instances(setup.spec, 1).split.purpose
    found = draw_instances(
        tasks, when, torch.zeros_like(when), spec=setup.spec, labels=labels, purpose=purpose
    )
    return {name: getattr(found, name).tolist() for name in TRAITS}


def value_at_prices(
    landscape: dict[str, Any], ends: tuple[float, float], *, budget: int
) -> dict[str, Any]:
    """Value of growing with prices drawn log-uniformly from a range: means over instances and
    prices.
    """
    rows = landscape["schedules"]
    accuracy = np.array([row["accuracy"] for row in rows])  # [K, W, n]
    params = np.array([row["params"] for row in rows]) / budget
    ratio = np.log(ends[1] / ends[0])
    price = ends[0] * np.exp(
        np.random.default_rng(0).uniform(0.0, ratio, (DRAWS, accuracy.shape[2]))
    )
    # [DRAWS, K, W, n]
    worth = (accuracy - params[:, None, None] * price[:, None, None]).clip(-1.0, 1.0)
    alone, fixed = worth[:, 0].mean(), worth.mean(axis=(0, 2, 3))
    elsewhere = worth.sum(axis=2, keepdims=True) - worth
    each = float(np.take_along_axis(worth, elsewhere.argmax(axis=1)[:, None], axis=1).mean())
    best = int(fixed.argmax())
    return {
        "param_price": list(ends),
        "nothing": float(alone),
        "best_fixed": {"grows": rows[best]["grows"], "value": float(fixed[best])},
        "best_of_each": each,
        "closed_by_fixed": float((fixed[best] - alone) / (each - alone)) if each > alone else None,
    }


def gains(landscape: dict[str, Any]) -> list[dict[str, Any]]:
    """Points of accuracy that each schedule adds: mean, and by the reach of the host."""
    reach = np.array(landscape["instances"]["reach"])
    accuracy = 100 * np.array([row["accuracy"] for row in landscape["schedules"]]).mean(axis=1)
    more = accuracy - accuracy[0]
    return [
        {
            "grows": row["grows"],
            "params": row["params"],
            "points": float(one.mean()),
            **{
                f"points at reach {at}": float(one[reach == at].mean())
                for at in sorted(set(reach.tolist()))
            },
        }
        for row, one in zip(landscape["schedules"], more, strict=True)
    ]


def build_results(spec: RunSpec, values: dict[str, Any], budget: int) -> dict[str, Any]:
    """Everything that the file holds, of a spec with a preset."""
    prices = dict.fromkeys(
        (*RANGES, resolve(build_spec({"preset": spec.preset})).instance.param_price)
    )
    return {
        "machine": machine_facts(device="cpu", threads=torch.get_num_threads()),
        "command": f"python -m bench.studies.landscape --preset {spec.preset}",
        "preset": spec.preset,
        "seed": spec.seed,
        "prices": [value_at_prices(values, ends, budget=budget) for ends in prices],
        "gains": gains(values),
        **values,
    }


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", choices=PRESETS, default=PRESETS[0], help="default %(default)s")
    parser.add_argument(
        "--on", type=int, default=64, metavar="N", help="training instances (default %(default)s)"
    )
    parser.add_argument(
        "--json", type=Path, help=f"default {FILE.name}, with the name of another preset behind it"
    )
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    spec = landscape_spec(given.preset)
    values = measure_landscape(spec, given.on)
    values["wider"] = measure_wider(given.preset, 2 * (spec.host.width or 0), given.on)
    found = build_results(spec, values, build_setup(spec).budget)
    for row in found["gains"]:
        print(f"{row['grows']:24}{row['params']:8} parameters  {row['points']:+.2f} points")
    for row in found["prices"]:
        low, high = row["param_price"]
        shown = [row["nothing"], row["best_fixed"]["value"], row["best_of_each"]]
        print(
            f"prices {low} .. {high}: nothing, best fixed, best of each: "
            f"{', '.join(f'{v:.4f}' for v in shown)}"
        )
    alone, wider = (
        100 * np.mean(row["accuracy"]) for row in (found["schedules"][0], found["wider"])
    )
    print(
        f"commonest label {100 * found['commonest_label']:.1f} %, host {alone:.1f} %, of "
        f"twice the width {wider:.1f} %"
    )
    file = given.json or (
        FILE if given.preset == "digits" else RESULTS / f"landscape_{given.preset}.json"
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
