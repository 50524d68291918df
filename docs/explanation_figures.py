"""Plot docs/losses.png and docs/normalisation.png for the explanation pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from bsvr_pp.losses import NoiseModel, absolute, epsilon_insensitive, gaussian, hinge, huber, soft_insensitive

HERE = Path(__file__).parent
COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa3377", "#777777")


def draw_losses() -> None:
    """Plot losses with the same width, and noise densities with the same standard deviation."""
    tube, beta, epsilon = 1.5, 0.3, 0.5
    shapes = {
        "soft insensitive": lambda C, e: soft_insensitive(C, e, beta),
        "ε-insensitive": epsilon_insensitive,
        "Huber": huber,
        "Laplace": lambda C, e: absolute(C),
        "Gaussian": lambda C, e: gaussian(C),
    }
    r = np.linspace(-3, 3, 601)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for (name, make), colour in zip(shapes.items(), COLOURS, strict=True):
        style = {"color": colour, "label": name, "ls": "--" if name == "soft insensitive" else "-"}
        style["zorder"] = 3 if name == "soft insensitive" else 2
        left.plot(r, make(1.0, epsilon).loss(r), **style)
        noise = _of_unit_variance(make, tube)
        right.plot(r, np.exp(noise.log_density(r)), **style)
        print(name, noise, noise.variance)
    left.set(xlabel="residual", title="loss", ylim=(-0.1, 2.6), xlim=(-2.5, 2.5))
    right.set(xlabel="residual", title="density, standard deviation 1")
    left.legend(fontsize=8)
    figure.savefig(HERE / "losses.png", dpi=120)


def _of_unit_variance(make: Callable[[float, float], NoiseModel], tube: float) -> NoiseModel:
    """Make the noise with variance 1: for fixed C·epsilon, C determines the scale."""
    sd = float(np.sqrt(make(1.0, tube).variance))
    return make(sd, tube / sd)


def draw_normalisation() -> None:
    """Plot the probability that a label is known, and the probability of +1 given that it is known."""
    f = np.linspace(-3, 3, 601)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for C, colour in zip((0.5, 1.5, 5.0), COLOURS, strict=False):
        above, below = (np.exp(hinge(C).log_density(1 - sign * f)) for sign in (1, -1))
        left.plot(f, above + below, color=colour, label=f"C = {C:g}")
        right.plot(f, above / (above + below), color=colour)
    left.set(xlabel="f", title="ν(f), the label is known", ylim=(0, 1.05))
    right.set(xlabel="f", title="P(+1 | f)", ylim=(0, 1.05))
    left.legend(fontsize=8)
    figure.savefig(HERE / "normalisation.png", dpi=120)


if __name__ == "__main__":
    draw_losses()
    draw_normalisation()
