"""Who runs next: limits, plans, memory and the scheduling policies, without any knowledge of clocks or devices."""

from typing import Annotated

from pydantic import Field

from policies.bounded_bypass import BoundedBypass
from policies.decode_first import DecodeFirst
from policies.eager import Eager
from policies.fcfs import Fcfs
from policies.footprint import Footprint
from policies.head_of_line import HeadOfLine
from policies.modality_classes import ModalityClasses
from policies.shortest_encoder_first import ShortestEncoderFirst
from policies.slo_aware import SloAware
from policies.unbudgeted import Unbudgeted

AnyPolicy = Annotated[
    Unbudgeted
    | Fcfs
    | HeadOfLine
    | Eager
    | Footprint
    | DecodeFirst
    | ShortestEncoderFirst
    | ModalityClasses
    | SloAware
    | BoundedBypass,
    Field(discriminator="kind"),
]
POLICIES = (
    Unbudgeted,
    Fcfs,
    HeadOfLine,
    Eager,
    Footprint,
    DecodeFirst,
    ShortestEncoderFirst,
    ModalityClasses,
    SloAware,
    BoundedBypass,
)

__all__ = [
    "POLICIES",
    "AnyPolicy",
    "BoundedBypass",
    "DecodeFirst",
    "Eager",
    "Fcfs",
    "Footprint",
    "HeadOfLine",
    "ModalityClasses",
    "ShortestEncoderFirst",
    "SloAware",
    "Unbudgeted",
]
