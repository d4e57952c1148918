"""Whatever stands in a file or on the command line is read or refused by name;
`tests/tools/fuzz.py` tries far more.
"""

import pytest
from support.fuzz_inputs import KINDS
from tools.fuzz import Trial

EXAMPLES = {
    "commands": 30,
    "events": 20,
    "runs": 15,
    "config": 20,
    "schedules": 20,
}  # those that take longest; of the others
MANY = 50


@pytest.mark.parametrize("kind", KINDS)
def test_every_input_is_read_or_refused_by_name(kind, tmp_path):
    trial = Trial(kind, tmp_path)
    trial.run(EXAMPLES.get(kind, MANY), 0)
    assert trial.seen["accepted"] > 0
    assert trial.seen["refused"] > trial.seen.total() / 4
