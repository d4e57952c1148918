"""Tasks of CIFAR-10, and a preset: hosts, slots and defaults of their runs."""

from dataclasses import replace

from morphogen.config.fields import Settings
from morphogen.config.host import CnnSpec
from morphogen.config.instance_spec import InstanceSpec
from morphogen.config.task import TaskSpec

_SMALL_STEPS: Settings = {"rounds": 200, "ppo": {"max_grad_norm": 0.5}}
_HIGH_ENTROPY: Settings = {"rounds": 100, "ppo": {"entropy_coef": 0.1}}
_DEEP: Settings = {
    "rounds": 100,
    "ppo": {"entropy_coef": 0.08},
    "telemetry": {"plateau_threshold": 0.35},
    "engine": {"amp": "auto"},
}
_THREE_SEEDS: Settings = {"max_seeds": 3, **_SMALL_STEPS}
_SIX_SEEDS: Settings = {"max_seeds": 6, **_SMALL_STEPS}
_WHICH_SLOT = "which place in the host is the best?"
_MANY_SLOTS = "how does a controller use many slots?"
_ROW_0 = tuple(f"r0c{column}" for column in range(5))
_ROW_1 = tuple(f"r1c{column}" for column in range(5))
_HOST = CnnSpec(base=8, blocks=3, kernel=3, pools=3, channels_in=3, size=32, classes=10)
_DEEP_HOST = replace(_HOST, blocks=5, pools=5)

BASELINE = TaskSpec(
    name="cifar_baseline",
    question="can seeds add to a capable host?",
    dataset="cifar",
    host=_HOST,
    slots=_ROW_0[:3],
    instance=InstanceSpec(data_share=(0.5, 1.0), label_noise=(0.0, 0.1), param_price=(0.03, 0.3)),
    batch=128,
    minibatches=32,
    episode_length=150,
    lr=0.01,
    seed_lr=0.01,
    success=80.0,
    target_loss=0.3,
    scale=255.0,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    shift=4,
    flip=True,
    val_samples=2000,
    plateau_threshold=0.4,
    defaults=_HIGH_ENTROPY,
)
SCALE = replace(
    BASELINE,
    name="cifar_scale",
    question="can seeds add to a deep host?",
    host=_DEEP_HOST,
    slots=_ROW_0,
    defaults=_DEEP,
)
IMPAIRED = replace(
    BASELINE,
    name="cifar_impaired",
    question="can seeds rescue a host that sees almost nothing?",
    host=replace(_HOST, base=1, kernel=1),
)
MINIMAL = replace(
    BASELINE,
    name="cifar_minimal",
    question="can seeds rescue a host without pooling?",
    host=replace(_HOST, base=2, kernel=1, pools=0),
)
MULTICHANNEL = replace(
    BASELINE,
    name="cifar_multichannel",
    question=_WHICH_SLOT,
    slots=(*_ROW_0[:3], *_ROW_1[:3]),
    defaults=_THREE_SEEDS,
)
POSTPOOL = replace(
    BASELINE,
    name="cifar_postpool",
    question=_WHICH_SLOT,
    host=replace(_HOST, base=16),
    slots=_ROW_1[:3],
    defaults=_THREE_SEEDS,
)
HIGHRES = replace(POSTPOOL, name="cifar_highres", slots=_ROW_0[:3])
DEEP_MULTICHANNEL = replace(
    BASELINE,
    name="cifar_deep_multichannel",
    question=_MANY_SLOTS,
    host=_DEEP_HOST,
    slots=(*_ROW_0, *_ROW_1),
    defaults=_SIX_SEEDS,
)
DEEP_IMPAIRED = replace(
    DEEP_MULTICHANNEL, name="cifar_deep_impaired", host=replace(_DEEP_HOST, base=2, kernel=1)
)
STABLE: Settings = {  # a preset
    "task": "cifar_baseline",
    "rounds": 200,
    "ppo": {
        "clip": 0.1,
        "entropy_coef": 0.06,
        "entropy_coef_end": 0.03,
        "entropy_anneal_rounds": 50,
    },
}
