"""Curves over two logarithmic axes, as SVG."""

import math
from dataclasses import dataclass

WIDTH, HEIGHT, MARGIN = 720, 420, 60
COLOURS = ("#1f5fa8", "#c0532b", "#3c8d4f", "#8a5aa8")


@dataclass(frozen=True)
class ChartLine:
    """A named curve through points of positive numbers."""

    name: str
    points: list[tuple[float, float]]


def draw_chart(title: str, x_label: str, lines: list[ChartLine]) -> str:
    """One picture of all lines.  `across`: what the horizontal axis counts."""
    xs, ys = ([point[axis] for line in lines for point in line.points] for axis in (0, 1))
    right, low, high = (
        max(xs),
        10 ** math.floor(math.log10(min(ys))),
        10 ** math.ceil(math.log10(max(ys))),
    )
    wide, tall = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN

    def place(x: float, y: float) -> tuple[float, float]:
        across = math.log(x / min(xs)) / math.log(right / min(xs)) if right > min(xs) else 0.5
        up = math.log(y / low) / math.log(high / low) if high > low else 0.5
        return MARGIN + wide * across, HEIGHT - MARGIN - tall * up

    parts = [_svg_text(WIDTH / 2, 24, title), _svg_text(WIDTH / 2, HEIGHT - 14, x_label)]
    for x in sorted(set(xs)):
        at = place(x, low)
        parts.append(_svg_text(at[0], at[1] + 18, f"{x:g}"))
    for power in range(round(math.log10(low)), round(math.log10(high)) + 1):
        left, y = place(min(xs), 10.0**power)
        parts.append(f'<path d="M{left:.1f} {y:.1f}H{WIDTH - MARGIN}" stroke="#ddd"/>')
        parts.append(_svg_text(left - 24, y + 4, f"{10.0**power:g}"))
    for number, (line, colour) in enumerate(zip(lines, COLOURS, strict=False)):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line.points))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(_svg_text(WIDTH - 150, MARGIN + 18 * number, line.name, colour))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">\n{body}\n</svg>\n'
    )


def _svg_text(x: float, y: float, words: str, colour: str = "#333") -> str:
    style = f'font-family="sans-serif" font-size="12" text-anchor="middle" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{words}</text>'
