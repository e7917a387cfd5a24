"""An analysis as JSON: plain numbers, names of formats as in kernel headers, sizes as "16x8"."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from evo.analysis.job import Result
from fitness.analysis.blocks import Blocks
from fitness.analysis.ratios import Ratios
from fitness.analyze import Analysis


def as_data(result: Result) -> dict[str, Any]:
    """Everything measured of one matrix; the density map is a list of rows."""
    found = result.analysis
    data = {
        "file": str(result.path),
        "kind": result.kind,
        "name": result.name,
        "rows": found.shape[0],
        "columns": found.shape[1],
    }
    for field in dataclasses.fields(Analysis):
        if field.name not in ("shape", "rows", "columns", "blocks", "ratios", "map"):
            data[field.name] = _plain(getattr(found, field.name))
    return {
        **data,
        "row_lengths": _plain(found.rows),
        "column_lengths": _plain(found.columns),
        "ratios": _ratios(found.ratios),
        "blocks": _blocks(found.blocks),
        "density_map": [[round(float(cell), 6) for cell in row] for row in found.map.density],
    }


def _ratios(ratios: Ratios) -> dict[str, Any]:
    shares = {f"{n}:{m}": ratios.share(n, m) for m in ratios.along for n in _halves(m)}
    return {
        "share_of_groups": shares,
        "least_n": {str(m): ratios.exact(m) for m in ratios.along},
        "groups": {str(m): list(groups) for m, groups in ratios.along.items()},
        "share_of_groups_along_m": {"1:4": ratios.share_across(1), "2:4": ratios.share_across(2)},
    }


def _halves(m: int) -> list[int]:
    """m/2, m/4, ... 1."""
    return [m >> i for i in range(1, m.bit_length())]


def _blocks(blocks: Blocks) -> dict[str, Any]:
    whole = blocks.whole()
    return {
        "sampled": blocks.sampled,
        "largest_full": _name(whole) if whole else None,
        "sizes": {_name(size): {"stored": count, "fill": blocks.fill(size)} for size, count in blocks.stored.items()},
    }


def _name(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


def _plain(value: Any) -> Any:
    """Dataclasses, mappings and tuples as JSON has them."""
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {_name(key) if isinstance(key, tuple) else str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value
