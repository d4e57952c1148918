"""Installed packages that offer parts by entry points, as pip would leave them."""

from collections.abc import Mapping
from pathlib import Path


def write_package(
    folder: Path,
    source: str,
    points: Mapping[str, Mapping[str, str]],
    *,
    name: str,
    version: str = "0.1",
) -> None:
    """Write a package of one module with entry points: group -> name -> attribute of the module."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(source)
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines: list[str] = []
    for group, rows in points.items():
        lines += [f"[{group}]", *(f"{part} = {name}:{target}" for part, target in rows.items())]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
