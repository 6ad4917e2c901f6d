"""Rows of results: their verdicts, the table, results.json."""

import dataclasses
import json

from .env import MAYFLY, REDIS
from .stats import median, spread_pct

RATIO, AT_LEAST, LIMIT, INFO = "ratio", "at least", "limit", "info"
NEVER_S = 999               # a time in s that was waited for in vain


@dataclasses.dataclass
class Row:
    scenario: str
    name: str
    unit: str
    samples: dict               # side -> [value per round]
    kind: str = INFO            # RATIO, AT_LEAST: mayfly/redis <= (>=) bar; LIMIT: mayfly <= bar
    bar: float = None
    beside: str = REDIS         # whose the samples of REDIS are

    def value(self, side):
        values = self.samples.get(side)
        return median(values) if values else None

    def ratio(self):
        """Median of the rounds' own ratios: a drift of the machine cancels out."""
        pairs = zip(self.samples.get(MAYFLY) or [], self.samples.get(REDIS) or [])
        ratios = [m / r for m, r in pairs if r > 0]
        return median(ratios) if ratios else None

    def judged(self):
        return {RATIO: self.ratio, AT_LEAST: self.ratio, LIMIT: lambda: self.value(MAYFLY),
                INFO: lambda: None}[self.kind]()

    def verdict(self):
        if self.kind == INFO:
            return ""
        value = self.judged()
        if value is None:
            return "ERROR"
        met = value >= self.bar if self.kind == AT_LEAST else value <= self.bar
        return "PASS" if met else "FAIL"


def rows_from(scenario, got, specs, beside=REDIS):
    """specs: (metric, name, unit[, kind, bar]). A metric that was not measured still
    makes a row, so that a scenario that broke can't pass by silence."""
    empty = {MAYFLY: [], REDIS: []}
    return [Row(scenario, name, unit, got.get(metric, empty), *judge, beside=beside)
            for metric, name, unit, *judge in specs]


FORMATS = {"us": "{:.3f} us", "ms": "{:.3f} ms", "s": "{:.2f} s", "B": "{:.1f} B", "MB": "{:.1f} MB", "KB": "{:.1f} KB",
           "%": "{:.2f} %", "x": "{:.2f} x", "/s": "{:,.0f} /s", "": "{:g}"}


def show(value, unit):
    if value is None:
        return "-"
    if unit == "s" and value >= NEVER_S:
        return "never"
    return FORMATS[unit].format(value)


def cell(row, side):
    values = row.samples.get(side)
    if not values:
        return "-"
    text = show(median(values), row.unit)
    if len(values) > 1:
        if row.unit == "%":
            text += f" ({min(values):.2f}..{max(values):.2f})"
        else:
            text += f" ±{spread_pct(values):.0f}%"
    return text if side == MAYFLY or row.beside == REDIS else f"{row.beside} {text}"


def bar_text(row):
    if row.kind == RATIO:
        return f"<= {row.bar:.2f} x {row.beside}"
    if row.kind == AT_LEAST:
        return f">= {row.bar:.2f} x {row.beside}"
    if row.kind == LIMIT:
        return "<= " + show(row.bar, row.unit)
    return ""


def print_table(rows):
    head = ("scenario", "what", "mayfly", "redis", "ratio", "bar", "")
    lines = [head]
    last = None
    for row in rows:
        ratio = row.ratio() if row.unit != "%" else None    # of shares: says little
        lines.append((row.scenario if row.scenario != last else "", row.name,
                      cell(row, MAYFLY), cell(row, REDIS),
                      "-" if ratio is None else f"{ratio:.2f}", bar_text(row), row.verdict()))
        last = row.scenario
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for n, line in enumerate(lines):
        if n and line[0]:
            print()
        print("  ".join(text.rjust(w) if 2 <= i <= 4 else text.ljust(w)
                        for i, (text, w) in enumerate(zip(line, widths))).rstrip())
        if n == 0:
            print("-" * (sum(widths) + 2 * len(widths)))


def write_json(path, rows, env, about):
    doc = {
        "about": about,
        "errors": [{"scenario": s, "side": side, "message": m} for s, side, m in env.errors],
        "warnings": env.warnings,
        "rows": [{**dataclasses.asdict(row), "mayfly": row.value(MAYFLY), "redis": row.value(REDIS),
                  "ratio": row.ratio(), "verdict": row.verdict()} for row in rows],
        "series": env.series,
    }
    with open(path, "w") as f:
        json.dump(doc, f, indent=1)
        f.write("\n")
