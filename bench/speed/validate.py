"""Validation over the number of live seeds: `python -m bench.speed.validate [--json FILE]`.

`validate_8_over_1`: all coalitions of three seeds against the network as it is.
`validate_rows_over_shared`: an env for every coalition, the seeds that are off taken out, against
the tree that shares what coalitions have in common.
"""

import torch

from bench.harness.bench_scenes import BenchScene, build_scene
from bench.harness.timing import Bench, Measure, ms_measure, ratio_measure, run_bench
from morphogen.vocab.stage import Stage

COALITIONS = (1, 2, 4, 8)


def unshare_coalitions(scene: BenchScene) -> BenchScene:
    """One env per coalition that holds only what is on.  `scene` asks for all coalitions."""
    coalition, _ = scene.requested_coalitions
    envs = torch.arange(coalition.shape[0], device=coalition.device)
    rows = envs.repeat_interleave(coalition.shape[1])
    places = torch.arange(len(scene.net.slots), device=coalition.device)
    on = (coalition.flatten().unsqueeze(-1) >> places) & 1 == 1
    state, before = scene.state[rows], scene.state[rows].slots
    slots = before.replace(stage=torch.where(on, before.stage, int(Stage.DORMANT)))
    return scene.with_state(state.replace(slots=slots), coalitions=1)


def measures(bench: Bench, envs: int = 32, val_samples: int = 300) -> list[Measure]:
    """The rows on validation."""
    make = {"val_samples": val_samples, "device": bench.device}
    scenes = {str(k): build_scene("digits", envs, "kept", coalitions=k, **make) for k in COALITIONS}
    whole = scenes[str(COALITIONS[-1])]
    scenes["rows"] = unshare_coalitions(whole)
    accuracy = whole.validate().accuracy
    torch.testing.assert_close(
        scenes["rows"].validate().accuracy.view_as(accuracy), accuracy, rtol=0, atol=1.0
    )
    bench.record_checksum("validate_8_over_1", accuracy)
    seconds = bench.time_interleaved({name: one.validate for name, one in scenes.items()})
    found = [
        ratio_measure(f"validate_{k}_over_1", seconds[str(k)], seconds["1"]) for k in COALITIONS[1:]
    ]
    times = [ms_measure(f"validate_{k}_ms", seconds[str(k)]) for k in (1, 8)]
    return [
        *found,
        ratio_measure("validate_rows_over_shared", seconds["rows"], seconds["8"]),
        *times,
    ]


if __name__ == "__main__":
    run_bench(__doc__, measures)
