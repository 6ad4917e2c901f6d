"""bench.png: the ratios with their bars, and the storm as the probe saw it."""

from .env import MAYFLY, REDIS
from .report import RATIO

STALL_LIMIT_MS = 5
COLOURS = {"PASS": "#2a9d5c", "FAIL": "#c8442f"}


def write(path, rows, series):
    """Returns None, or why there is no picture."""
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot as plt
    except ImportError as e:
        return f"no picture: {e} (python3-matplotlib)"
    ratios = [r for r in rows if r.kind == RATIO and r.ratio() is not None]
    storm = series.get("storm", {})
    fig, (left, right) = plt.subplots(1, 2, figsize=(16, max(4.5, 0.42 * len(ratios) + 1.5)),
                                      constrained_layout=True)
    _ratios(left, ratios)
    _storm(right, storm)
    fig.savefig(path, dpi=110)
    plt.close(fig)
    return None


def _ratios(ax, rows):
    for y, row in enumerate(rows):
        ax.barh(y, row.ratio(), color=COLOURS[row.verdict()], height=0.6)
        ax.plot([row.bar, row.bar], [y - 0.42, y + 0.42], color="black", lw=2)
        ax.text(row.ratio() + 0.01, y, f"{row.ratio():.2f}", va="center", fontsize=8)
    ax.set_yticks(range(len(rows)), [f"{r.scenario}: {r.name}" for r in rows], fontsize=8)
    ax.invert_yaxis()
    ax.axvline(1, color="grey", ls=":", lw=1)
    ax.set_xlabel("Mayfly / Redis (less is better; black: the bar)")
    ax.set_title("Ratios to redis-server in the same run")


def _storm(ax, storm):
    for side, colour in ((REDIS, "#c8442f"), (MAYFLY, "#2a6fb0")):
        points = storm.get(side)
        if points:
            ax.plot([t for t, _ in points], [ms for _, ms in points], color=colour, lw=0.8, label=side)
    ax.axhline(STALL_LIMIT_MS, color="black", ls="--", lw=1, label=f"{STALL_LIMIT_MS} ms: stall limit")
    ax.axvline(0, color="grey", ls=":", lw=1)
    ax.set_yscale("log")
    ax.set_xlabel("seconds from the deadline of 1,000,000 keys")
    ax.set_ylabel("longest probe latency per 10 ms, in ms")
    ax.set_title("Expiry storm")
    ax.legend(loc="upper right", fontsize=8)
