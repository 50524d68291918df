"""Moments of a Gaussian times a log-concave factor, to many digits."""

import itertools

import mpmath as mp
from mpmath.calculus.quadrature import GaussLegendre

NODES = GaussLegendre(mp.mp).calc_nodes(4, 120)
SHARES = (0.01, 0.06, 0.2, 0.5, 1)  # of the distance from the peak to where nothing is left


def tilted_by_mpmath(log_factor, mean, variance, knots):
    """Return the log normaliser, mean and variance of f; between the knots the factor is smooth."""
    mean, variance, golden = mp.mpf(mean), mp.mpf(variance), (mp.sqrt(5) - 1) / 2

    def log_product(f):
        return log_factor(f) - (f - mean) ** 2 / (2 * variance)

    left, right = min([mean, *knots]) - 1, max([mean, *knots]) + 1
    for _ in range(90):
        p, q = right - golden * (right - left), left + golden * (right - left)
        left, right = (p, right) if log_product(p) < log_product(q) else (left, q)
    peak = (left + right) / 2
    top = log_product(peak)

    def reach(sign):
        distance = mp.mpf(10) ** -25
        while log_product(peak + sign * distance) > top - 75:
            distance *= 2
        return sign * distance

    start, end = reach(-1), reach(1)
    cuts = {mp.mpf(0), *(knot - peak for knot in knots), *(side * q for side in (start, end) for q in SHARES)}
    sums = [mp.mpf(0)] * 3
    for p, q in itertools.pairwise(sorted(cut for cut in cuts if start <= cut <= end)):
        for x, weight in NODES:
            s = (q + p) / 2 + (q - p) / 2 * x
            value = weight * (q - p) / 2 * mp.exp(log_product(peak + s) - top)
            sums = [total + value * s**k for k, total in enumerate(sums)]
    shift = sums[1] / sums[0]
    log_z = mp.log(sums[0]) + top - mp.log(2 * mp.pi * variance) / 2
    return log_z, peak + shift, sums[2] / sums[0] - shift**2
