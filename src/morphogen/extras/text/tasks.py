"""Tasks of language models: data, host and defaults of their runs."""

from morphogen.config.instance_spec import InstanceSpec
from morphogen.config.task import TaskSpec
from morphogen.config.task_defaults import read_defaults
from morphogen.extras.text.host import TransformerSpec

TINYSTORIES = TaskSpec(
    name="tinystories",
    question="can seeds add to a language model of stories?",
    dataset="tinystories",
    host=TransformerSpec(vocabulary=257, width=384, heads=6, layers=6, block=256, dropout=0.1),
    instance=InstanceSpec(param_price=(0.03, 0.3)),
    minibatches=32,
    episode_length=150,
    lr=0.1,
    success=60.0,
    target_loss=3.5,
    val_samples=512,
    plateau_threshold=0.3,
    improvement_threshold=1.5,
    defaults=read_defaults(__file__, "tinystories"),
)
PYDOC = TaskSpec(
    name="pydoc",
    question="which language models of documentation lack attention, and is it worth its price?",
    dataset="pydoc",
    host=TransformerSpec(vocabulary=97, width=24, heads=4, layers=3, block=32, reach=31),
    instance=InstanceSpec(reach=(0, 1), param_price=(0.03, 0.3)),
    batch=8,
    minibatches=94,
    lr=0.04,
    seed_lr=0.12,
    success=40.0,
    target_loss=2.0,
    val_samples=256,
    plateau_threshold=0.3,
    improvement_threshold=1.5,
    param_budget=25_000,
    # As in digits.  Half of the hosts see no token back, because then attention is worth its price.
    defaults=read_defaults(__file__, "pydoc"),
)
