"""Policy files: parameters and normalisers of a policy, verified when loaded."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from typing_extensions import TypedDict

from morphogen.config.files import error_line
from morphogen.errors import CheckpointError
from morphogen.state.tensor_trees import Tree, load_tree, save_tree, to_nested_dict
from morphogen.vocab.paths import POLICY_FILE, expand_path

POLICY_FORMAT = 5


class PolicyFile(TypedDict):
    """Content of a policy file."""

    format: int
    params: Tree  # tensors by name
    normalisers: Tree  # tensors by name
    config: str  # JSON
    facts: Tree  # plain values


def save_policy(
    path: Path, *, params: Any, normalisers: Any, config: str, facts: Mapping[str, Any]
) -> None:
    """Write a policy file: parameters, normalisers, the config as JSON text, facts as plain values.

    Raises: CheckpointError if the file cannot be written.
    """
    trees = {"params": to_nested_dict(params), "normalisers": to_nested_dict(normalisers)}
    try:
        save_tree({"format": POLICY_FORMAT, **trees, "config": config, "facts": dict(facts)}, path)
    except OSError as error:
        raise CheckpointError(
            f"policy file {path} cannot be written: {error_line(error)}"
        ) from error


def load_policy(path: Path | str) -> PolicyFile:
    """Return `{"format", "params", "normalisers", "config", "facts"}` of a policy file.

    Args:
        path: policy file, or run directory.

    Returns: parameters and normalisers as nested dicts of tensors on the CPU, the config as JSON,
    and facts: the name of the policy and more.
    Raises: CheckpointError if the file is missing, damaged or no policy file.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> import torch
        >>> import morphogen as mg
        >>> save = mg.policy.policy_files.save_policy
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "mine.safetensors"
        ...     save(
        ...         path,
        ...         params={"net": torch.ones(2)},
        ...         normalisers={},
        ...         config="{}",
        ...         facts={"policy": "ppo"},
        ...     )
        ...     policy = mg.load_policy(path)
        >>> policy["facts"]["policy"], policy["params"]["net"].tolist()
        ('ppo', [1.0, 1.0])
    """
    path = expand_path(path)
    if os.path.isdir(path):
        old = path / "policy.pt"  # of formats 1 to 3; refused by `load_tree`
        path = old if old.is_file() and not (path / POLICY_FILE).exists() else path / POLICY_FILE
    loaded: object = load_tree(path, label="policy file")
    tree = cast(Tree, loaded)
    kinds = {"format": int, "params": dict, "normalisers": dict, "config": str, "facts": dict}
    if not isinstance(loaded, dict) or set(tree) != set(kinds):
        raise CheckpointError(
            f"{path} is not a policy file: expected the entries {', '.join(kinds)}"
        )
    if tree["format"] != POLICY_FORMAT:
        raise CheckpointError(f"{path}: expected format {POLICY_FORMAT}, got {tree['format']!r}")
    for key, kind in kinds.items():
        entry: object = tree[key]
        if not isinstance(entry, kind):
            raise CheckpointError(
                f"{path}: {key}: expected a {kind.__name__}, got a {type(entry).__name__}"
            )
    return cast(PolicyFile, tree)
