"""A fingerprint of a sampled model, as names and numbers. Equal fingerprints mean equal log densities.

Values at fixed points distinguish models, and show what differs (a prior, the kernel, the noise, the data). The
checksum of the graph also covers differences that do not appear at these points. No entry depends on the process.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import toposort

from bsvr_pp.model.compiled import INTERPRETED
from bsvr_pp.model.problem import Problem

_POINTS = 3
_RELATIVE = 1e-9  # the last digits depend on the processor


def fingerprint(problem: Problem, model: pm.Model, settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Everything that the draws of a run depend on, in a form that JSON can store.

    ``problem`` is the model as it was read, ``model`` the one that is sampled, ``settings`` are those of the sampler.
    """
    ends = problem.given_ends()
    held = [problem.inputs, problem.targets, *([] if ends is None else [ends])]
    data = hashlib.sha256(b"".join(np.ascontiguousarray(values).tobytes() for values in held)).hexdigest()
    return {
        **settings,
        "hyperparameters": list(problem.hyperparameters),
        "noise": problem.loss.name,
        "data": data[:16],
        "jitter": problem.prior.jitter,
        **_values(problem, model),
        "graph": _graph(model.logp()),
        "seed": seed,
    }


def difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """Describe the first difference in words; None if there is no difference."""
    for key, value in wanted.items():
        there: Any = found.get(key)
        lists = isinstance(value, list) and isinstance(there, list) and len(value) == len(there)
        for pair in zip(there, value, strict=True) if lists else [(there, value)]:
            if not _same(*pair):
                old, new = (f"{one:.6g}" if isinstance(one, float) else str(one) for one in pair)
                return f"{key} ({old}, not {new})"
    return None


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, float) and isinstance(new, float):
        return bool(np.isclose(old, new, rtol=_RELATIVE, atol=1e-12, equal_nan=True))
    return bool(old == new)


def _values(problem: Problem, model: pm.Model) -> dict[str, list[float]]:
    """Compute log priors, prior of f, noise and log density at fixed points."""
    rng = np.random.default_rng(0)
    given, start = problem.model.initial_point(0), model.initial_point(0)  # the sampled model has other coordinates
    names = [value.name for value in problem.values]
    terms = problem.model.logp(vars=problem.variables, sum=False) if names else []
    priors_at = problem.model.compile_fn(
        terms, inputs=problem.values, on_unused_input="ignore", mode=INTERPRETED, point_fn=False
    )
    density_at = model.compile_logp(mode=INTERPRETED)
    out: dict[str, list[float]] = {}
    for _ in range(_POINTS):
        point = {name: value + 0.5 * rng.standard_normal(np.shape(value)) for name, value in start.items()}
        values = [given[name] + 0.5 * rng.standard_normal(np.shape(given[name])) for name in names]
        priors, density = priors_at(*values), density_at(point)
        hyperparameters = problem.to_constrained(values)
        moments = [_moments(part, hyperparameters) for part in problem.parts]
        noise = problem.noise_at(hyperparameters)
        found = {f"prior of {name}": p for name, p in zip(problem.hyperparameters, priors, strict=True)} | {
            "prior covariance": np.sum([moment[:3] for moment in moments], axis=0),
            "prior mean": np.sum([moment[3:] for moment in moments], axis=0),
            "noise parameters": [np.sum(p) for p in noise.parameters.values()],
            "log density": density,
        }
        for key, value in found.items():
            out.setdefault(key, []).extend(float(number) for number in np.ravel(value))
    return out


def _moments(part: Problem, point: Mapping[str, Any]) -> list[float]:
    """Sums over prior covariance and prior mean of the rows of one block."""
    direction = np.cos(np.arange(part.targets.size))
    K, diagonal, mean = part.cross(point, part.inputs)
    total = (K @ np.ones_like(direction)).sum()
    return [float(direction @ (K @ direction)), total, diagonal.sum(), float(direction @ mean), mean.sum()]


def _graph(root: Any) -> str:
    """Checksum of a graph with its constants and data."""
    numbers: dict[Any, int] = {}
    digest = hashlib.sha256()

    def number(variable: Any) -> int:
        if variable not in numbers:
            numbers[variable] = len(numbers)
            digest.update(f"{variable.type}".encode())
            if isinstance(variable, Constant | SharedVariable):
                value = variable.data if isinstance(variable, Constant) else variable.get_value()
                if isinstance(value, np.ndarray | np.generic):  # the operations cover others, as types and generators
                    digest.update(np.ascontiguousarray(value).tobytes())
        return numbers[variable]

    for node in toposort([root]):
        digest.update(re.sub("0x[0-9a-f]+", "", str(node.op)).encode())
        digest.update(repr([number(v) for v in (*node.inputs, *node.outputs)]).encode())
    return digest.hexdigest()[:16]
