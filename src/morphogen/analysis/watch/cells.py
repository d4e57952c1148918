"""Small pieces of a screen: sparklines, and one cell per slot.  Letters and words say what colours say."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from morphogen.analysis.watch.view import ActionView, SlotView
from morphogen.vocab.action import Op
from morphogen.vocab.stage import BLENDED, OCCUPIED, Stage

RAMP_CHARACTERS, ASCII_RAMP_CHARACTERS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
# stage -> word, letter, colour
STAGE_STYLES: dict[str, tuple[str, str, str]] = {
    Stage.DORMANT.name: ("empty", ".", "dim"),
    Stage.GERMINATED.name: ("germinated", "g", "cyan"),
    Stage.TRAINING.name: ("training", "t", "bright_blue"),
    Stage.BLENDING.name: ("blending", "b", "yellow"),
    Stage.HOLDING.name: ("holding", "h", "magenta"),
    Stage.FOSSILIZED.name: ("fossilized", "F", "bold green"),
    Stage.PRUNED.name: ("pruned", "x", "red"),
    Stage.EMBARGOED.name: ("embargoed", "-", "dim"),
    Stage.RESETTING.name: ("resetting", "-", "dim"),
}
# op -> letter; in small letters what was not executed
OP_LETTERS: dict[str, str] = {
    Op.WAIT.name: ".",
    Op.GERMINATE.name: "G",
    Op.SET_ALPHA_TARGET.name: "T",
    Op.PRUNE.name: "P",
    Op.FOSSILIZE.name: "F",
    Op.ADVANCE.name: "A",
}
LEGEND = (
    "slots: . empty, g germinated, t training, b blending, h holding, F fossilized, x pruned, - cooling; "
    "actions: . wait, G germinate, T set alpha target, P prune, F fossilize, A advance, in small letters: not executed"
)
SLOT_WIDTHS = (
    28,
    18,
    4,
)  # columns that a slot may have: with the word for its stage, with the letter, without blueprint
_OCCUPIED_NAMES = frozenset(stage.name for stage in OCCUPIED)
_BLENDED_NAMES = frozenset(stage.name for stage in BLENDED)


@dataclass(frozen=True, slots=True)
class ScreenFrame:
    """Cells of a screen."""

    width: int = 120  # columns
    height: int | None = None  # lines; None = as many as it takes
    ascii: bool = False  # the terminal knows no other characters

    @property
    def ramp(self) -> str:
        """The characters of curves and bars, from low to high."""
        return ASCII_RAMP_CHARACTERS if self.ascii else RAMP_CHARACTERS


def ramp_character(share: float, ramp: str = RAMP_CHARACTERS) -> str:
    """One character, the higher the larger the share of 1."""
    return ramp[min(len(ramp) - 1, max(0, int(share * len(ramp))))]


def sparkline(values: Sequence[float | None], width: int, ramp: str = RAMP_CHARACTERS) -> str:
    """The newest `width` values as a line, between the least and the largest of them; a blank was not measured."""
    shown = values[-width:]
    known = [value for value in shown if value is not None]
    low, span = (min(known), max(known) - min(known)) if known else (0.0, 0.0)
    return "".join(" " if one is None else ramp_character((one - low) / span if span else 0.5, ramp) for one in shown)


def format_amount(value: float | None, form: str = ".1f") -> str:
    """A number; a dash where there is none."""
    return "-" if value is None else format(value, form)


def stage_style(stage: str) -> tuple[str, str, str]:
    """Word, letter and colour of a stage; one that is not known here is its own word."""
    return STAGE_STYLES.get(stage, (stage, "?", ""))


def slot_cell(found: SlotView, width: int, ramp: str = RAMP_CHARACTERS) -> Text:
    """A slot in so many columns (one of WIDTHS)."""
    word, letter, style = stage_style(found.stage)
    alpha = found.alpha if found.stage in _BLENDED_NAMES else None
    if width == SLOT_WIDTHS[2]:
        return Text(letter + ("" if alpha is None else ramp_character(alpha, ramp)), style)
    if found.stage not in _OCCUPIED_NAMES:
        return Text(word, style)
    name = f"{f'{word:<10}' if width == SLOT_WIDTHS[0] else letter} {found.blueprint or '?'}"
    return Text(f"{name:<{width - 5}}{'' if alpha is None else ramp_character(alpha, ramp) + f'{alpha:.2f}'}", style)


def action_letters(found: Sequence[ActionView], width: int) -> str:
    """The newest actions, a letter each, the newest last; in small letters what was not executed."""
    letters = ((OP_LETTERS.get(one.op, "?"), one.success) for one in found[-width:])
    return "".join(letter if success else letter.lower() for letter, success in letters)
