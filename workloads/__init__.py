"""What clients ask for: requests, the images in them, and the loads that they come in.

A workload is described in YAML by its `kind` (`AnyWorkload`), and gives requests lazily in arrival order. Nothing here
knows a clock, a scheduler or a device.
"""

from typing import Annotated

from pydantic import Field

from workloads.arrivals import Arrivals, Concurrency, OpenArrivals
from workloads.distributions import Lengths
from workloads.errors import InputError
from workloads.geometry import Geometry, image_geometry
from workloads.images import ImageGroup
from workloads.mix import Mix
from workloads.models import MODELS, Model, VisionLanguageModel, model_named
from workloads.request import Modality, MultimodalItem, Request
from workloads.servegen import ServeGen
from workloads.shared_prefix import SharedPrefix
from workloads.sizes import Sizes
from workloads.synthetic import Synthetic
from workloads.traces import Azure, Jsonl, Mooncake, write_jsonl
from workloads.workload import Workload

AnyWorkload = Annotated[Synthetic | Mix | Azure | Mooncake | ServeGen | Jsonl, Field(discriminator="kind")]

__all__ = [
    "MODELS",
    "AnyWorkload",
    "Arrivals",
    "Azure",
    "Concurrency",
    "Geometry",
    "ImageGroup",
    "InputError",
    "Jsonl",
    "Lengths",
    "Mix",
    "Modality",
    "Model",
    "Mooncake",
    "MultimodalItem",
    "OpenArrivals",
    "Request",
    "ServeGen",
    "SharedPrefix",
    "Sizes",
    "Synthetic",
    "VisionLanguageModel",
    "Workload",
    "image_geometry",
    "model_named",
    "write_jsonl",
]
