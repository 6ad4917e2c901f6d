#!/usr/bin/python3
"""Draws docs/storm.svg: the longest latency a probe saw, per 10 ms, while a million keys expire together.

    bench/run.py --only storm --out build/bench
    bench/storm_svg.py build/bench/results.json [MORE.json …] -o docs/storm.svg

Each results.json has Mayfly and one other server. Mayfly's curve is taken from the first file. Needs nothing but
Python's standard library."""

import argparse
import json
import math
import re

WIDTH, PANEL, LEFT, RIGHT, TOP, GAP = 820, 120, 64, 20, 54, 34
FROM_S, TO_S = -1.0, 4.0
MS_MIN, MS_MAX = 0.01, 100
COLORS = ("#0b7285", "#c92a2a", "#862e9c", "#5c940d")


def server_name(text):
    """The first line of --version: 'Valkey server v=8.1.1 …' -> 'Valkey 8.1.1'; '… mayfly=0.1.0' -> 'Mayfly 0.1.0'."""
    if own := re.search(r"mayfly=(\S+)", text):
        return f"Mayfly {own.group(1)}"
    number = re.search(r"v=(\S+)", text)
    return f"{text.split()[0]} {number.group(1) if number else ''}".strip()


def curves(paths):
    found = []
    for path in paths:
        with open(path) as f:
            doc = json.load(f)
        storm = doc["series"]["storm"]
        if not found:
            found.append((server_name(doc["about"]["mayfly_version"]), storm["mayfly"]))
        found.append((server_name(doc["about"]["redis_version"]), storm["redis"]))
    return found


def x_of(t):
    return LEFT + (t - FROM_S) / (TO_S - FROM_S) * (WIDTH - LEFT - RIGHT)


def y_of(top, ms):
    share = math.log10(min(max(ms, MS_MIN), MS_MAX) / MS_MIN) / math.log10(MS_MAX / MS_MIN)
    return top + PANEL * (1 - share)


def text(x, y, what, anchor="start", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{what}</text>'


def panel(top, name, points, color):
    out = [f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - RIGHT}" height="{PANEL}" fill="#fff" stroke="#ced4da"/>']
    for ms in (0.01, 0.1, 1, 10, 100):
        y = y_of(top, ms)
        out.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e9ecef"/>')
        out.append(text(LEFT - 6, y + 4, f"{ms:g} ms", "end"))
    shown = [(t, ms) for t, ms in points if FROM_S <= t <= TO_S]
    bars = "".join(f"M{x_of(t):.1f} {top + PANEL}V{y_of(top, ms):.1f}" for t, ms in shown)
    out.append(f'<path d="{bars}" stroke="{color}" stroke-width="1.3" fill="none"/>')
    longest = max(ms for t, ms in shown if t >= 0)
    out.append(text(LEFT + 8, top + 18, name, extra=f'font-weight="bold" fill="{color}"'))
    out.append(text(WIDTH - RIGHT - 8, top + 18, f"longest after the deadline: {longest:.1f} ms", "end"))
    x = x_of(0)
    out.append(f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{top + PANEL}" stroke="#495057" stroke-dasharray="4 3"/>')
    return out


def draw(found):
    height = TOP + len(found) * (PANEL + GAP) + 18
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
           'font-family="DejaVu Sans, Verdana, sans-serif" font-size="12" fill="#212529">',
           f'<rect width="{WIDTH}" height="{height}" fill="#f8f9fa"/>',
           text(LEFT, 22, "1,000,000 keys expire at second 0", extra='font-size="16" font-weight="bold"'),
           text(LEFT, 41, "Longest GET or SET latency of another client, per 10 ms (logarithmic)")]
    for i, (name, points) in enumerate(found):
        top = TOP + i * (PANEL + GAP)
        out += panel(top, name, points, COLORS[i % len(COLORS)])
        for second in range(math.ceil(FROM_S), int(TO_S) + 1):
            out.append(text(x_of(second), top + PANEL + 16, f"{second} s", "middle"))
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("results", nargs="+")
    p.add_argument("-o", "--out", default="docs/storm.svg")
    args = p.parse_args()
    with open(args.out, "w") as f:
        f.write(draw(curves(args.results)))


if __name__ == "__main__":
    main()
