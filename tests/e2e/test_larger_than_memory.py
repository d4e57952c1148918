"""Streamed data, larger than the memory it may take: ten times the data takes no more memory."""

import os
import subprocess
import sys

import pytest
from support.extras import needs_extra
from support.small_runs import cifar_files, story_files
from support.subprocess_env import OURS

MIB = 2**20
LIMIT_MIB = 3  # data.resident_limit_gib of the runs
DATA_MIB = (4, 40)
STORY = 872  # bytes of a story of `story_files` on average, with its separator
# of 36 that the larger data has more: draws over all rows of images take some, texts 2
TOLERANCE_MIB = 20
RUN = """
import sys, threading, time
import torch
import morphogen as mg

def anonymous():  # memory of the process without pages of files, which the system drops when it needs them
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

def sample():
    while not done:
        peak[0] = max(peak[0], anonymous())
        time.sleep(0.002)

def run(folder):
    if kind == "text":
        host = mg.TransformerSpec(vocabulary=257, width=8, heads=2, layers=3, block=64)
        task = mg.TaskSpec(name="stories", dataset="tinystories", host=host)
    else:
        task = "cifar_impaired"
    data = {"dir": folder, "batch": 32, "minibatches": 4, "val_samples": 16, "resident_limit_gib": limit}
    spec = mg.RunSpec(task=task, envs=2, rounds=1, episode_length=2, final_episodes=0, data=data, policy_name="wait")
    peak[0] = 0
    setup = mg.build_setup(spec)
    assert setup.dataset.placement == "streamed"
    mg.Scheduler(setup).run()
    print(setup.dataset.sizes["train"], peak[0] // 1024)

kind, limit, *folders = sys.argv[1:]
limit, done, peak = float(limit), [], [0]
thread = threading.Thread(target=sample)
thread.start()
torch.set_grad_enabled(False)
for folder in folders:
    run(folder)
done.append(True)
thread.join()
"""


def write_files(kind, folder, mib):
    if kind == "text":
        story_files(folder, mib * MIB // STORY)
    else:
        cifar_files(folder, mib * MIB // 3073 // 6)


@needs_extra("streaming")
@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc")
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("text", marks=needs_extra("text")),
        pytest.param("images", marks=needs_extra("cifar")),
    ],
)
def test_ten_times_the_data_takes_no_more_memory(kind, tmp_path):
    folders = [tmp_path / str(mib) for mib in DATA_MIB]
    for mib, folder in zip(DATA_MIB, folders, strict=True):
        folder.mkdir()
        write_files(kind, folder, mib)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        assert size > 0.95 * mib * MIB
    command = [sys.executable, "-c", RUN, kind, str(LIMIT_MIB / 1024), *map(str, folders)]
    done = subprocess.run(command, env=OURS, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    small, large = (map(int, line.split()) for line in done.stdout.splitlines())
    samples, peaks = zip(small, large, strict=True)
    assert 9 < samples[1] / samples[0] < 11
    assert peaks[1] - peaks[0] < TOLERANCE_MIB, peaks
