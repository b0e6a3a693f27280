# SPDX-License-Identifier: Apache-2.0
"""Draws the series of a soak as an SVG page of small curves, each with its smallest and largest value."""
import html

WIDTH, HEIGHT, COLUMNS, MARGIN = 300, 110, 3, 12


def curve(points, left, top, end):
    """Returns (points, smallest value, largest value), where `points` is the text of a polyline.

    `left` and `top` are the corner of the box in pixels, and `end` is the length of the run in seconds. A flat series
    is drawn in the middle of its box.
    """
    low = min(value for _, value in points)
    high = max(value for _, value in points)
    span = high - low
    places = []
    for seconds, value in points:
        x = left + MARGIN + (WIDTH - 2 * MARGIN) * seconds / max(end, 1e-9)
        y = top + HEIGHT - MARGIN - (HEIGHT - 44) * ((value - low) / span if span > 0 else 0.5)
        places.append(f"{x:.1f},{y:.1f}")
    return " ".join(places), low, high


def page(series, judged, end):
    """Returns the SVG page as text.

    `series` is the result of verdict.series_of(), and `judged` is the result of verdict.verdict(). `end` is the length
    of the run in seconds. Series that grow are drawn in red.
    """
    names = sorted(series)
    rows = -(-len(names) // COLUMNS)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{COLUMNS * WIDTH}" '
             f'height="{max(rows, 1) * HEIGHT}" font-family="sans-serif" font-size="10">',
             '<rect width="100%" height="100%" fill="white"/>']
    for i, name in enumerate(names):
        left, top = i % COLUMNS * WIDTH, i // COLUMNS * HEIGHT
        step = max(1, len(series[name]) // 500)
        line, low, high = curve(series[name][::step], left, top, end)
        colour = "#c00000" if name in judged and judged[name]["grows"] else "#205080"
        parts.append(f'<text x="{left + MARGIN}" y="{top + 14}">{html.escape(name)}</text>')
        parts.append(f'<text x="{left + MARGIN}" y="{top + 26}" fill="#707070">'
                     f'{low:,.6g} to {high:,.6g}</text>')
        parts.append(f'<polyline fill="none" stroke="{colour}" points="{line}"/>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"
