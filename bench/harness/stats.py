import math
import statistics

median = statistics.median


def percentile(ordered, p):
    """Nearest rank on an already sorted list: the smallest value that at least
    p per cent of the values don't exceed."""
    return ordered[max(0, math.ceil(len(ordered) * p / 100) - 1)]


def spread_pct(values):
    """Half the range, in per cent of the median."""
    m = median(values)
    return (max(values) - min(values)) / 2 / m * 100 if m else 0.0
