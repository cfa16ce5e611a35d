"""Figures in the header of a CSV of timings: each with its unit and its source, on one line."""

from __future__ import annotations

from typing import Any

import yaml

from executor.models import LoadedModel


def memory_of(loaded: LoadedModel) -> dict[str, Any]:
    """What the memory ledger needs of a model, from the model itself."""
    vision, source = loaded.config.vision_config, f"configuration of {loaded.name}"
    return {
        "weights": stated(loaded.weight_bytes, "bytes", f"parameters in {loaded.dtype_name}"),
        "dtype": stated(loaded.dtype.itemsize, "bytes", loaded.dtype_name),
        "vision_hidden": stated(vision.embed_dim, "elements", source),
        "vision_mlp": stated(int(vision.embed_dim * vision.mlp_ratio), "elements", source),
        "patch": stated(vision.patch_size, "pixels", source),
        "temporal_patch": stated(vision.temporal_patch_size, "frames", source),
        "channels": stated(vision.in_channels, "channels", source),
    }


class _Stated(dict[str, Any]):
    """A figure, which stands on one line."""


class HeaderDumper(yaml.SafeDumper):
    """Figures as `{value: 4, unit: bytes, source: float32}`."""


def _represent(dumper: yaml.SafeDumper, figure: _Stated) -> yaml.Node:
    return dumper.represent_mapping("tag:yaml.org,2002:map", figure.items(), flow_style=True)


HeaderDumper.add_representer(_Stated, _represent)


def stated(value: float, unit: str, source: str) -> _Stated:
    return _Stated(value=value, unit=unit, source=source)
