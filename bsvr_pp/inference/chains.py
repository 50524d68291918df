"""Draws of a sampler as one data set per chain, and the combination of chains of unequal length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

__all__ = ["Chain", "by_chain", "joined", "together", "without"]

Chain = dict[str, xr.Dataset]  # posterior and sample_stats over draw


def by_chain(samples: xr.DataTree) -> list[Chain]:
    """Return the complete draws of each chain; an interrupted sampler leaves NaN for the others."""
    posterior = samples["posterior"].to_dataset()
    missing = np.zeros((posterior.sizes["chain"], posterior.sizes["draw"]), dtype=bool)
    for values in posterior.data_vars.values():
        ordered = values.transpose("chain", "draw", ...).values
        missing |= np.isnan(ordered).any(axis=tuple(range(2, ordered.ndim)))
    chains = []
    for number, gone in enumerate(missing):
        n = int(np.argmax(gone)) if gone.any() else gone.size
        groups = [group for group in ("posterior", "sample_stats") if group in samples.children]
        data = {group: samples[group].to_dataset().isel(chain=number, draw=slice(n)) for group in groups}
        chains.append({group: found.drop_vars(["chain", "draw"], errors="ignore") for group, found in data.items()})
    return chains


def joined(parts: list[Chain]) -> Chain:
    """Concatenate the parts of one chain."""
    return {group: xr.concat([part[group] for part in parts], dim="draw") for group in parts[0]}


def without(chains: list[Chain], names: Sequence[str]) -> list[Chain]:
    """Leave variables out of the draws of each chain."""
    return [chain | {"posterior": chain["posterior"].drop_vars(names, errors="ignore")} for chain in chains]


def together(chains: list[Chain], draws: int) -> xr.DataTree:
    """Combine chains to a common length of at most ``draws``, so that the total number of draws is largest.

    After an interruption chains have different lengths, and some may have no draws.

    Raises
    ------
    KeyboardInterrupt
        If there is no draw at all.
    """
    lengths = [min(chain["posterior"].sizes["draw"], draws) for chain in chains]
    longest = np.sort(lengths)[::-1]
    kept = int(np.argmax(longest * np.arange(1, len(chains) + 1))) + 1 if chains else 0
    length = int(longest[kept - 1]) if kept else 0
    if length == 0:
        raise KeyboardInterrupt
    chosen = [chain for chain, n in zip(chains, lengths, strict=True) if n >= length]
    coords = {"chain": np.arange(len(chosen)), "draw": np.arange(length)}
    return xr.DataTree.from_dict(
        {
            group: xr.concat([chain[group].isel(draw=slice(length)) for chain in chosen], dim="chain").assign_coords(
                coords
            )
            for group in chosen[0]
        }
    )
