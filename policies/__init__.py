"""Who runs next: limits, plans, memory and the scheduling policies, without any knowledge of clocks or devices."""

from typing import Annotated

from pydantic import Field

from policies.bounded_bypass import BoundedBypass
from policies.decode_first import DecodeFirst
from policies.eager import Eager
from policies.fcfs import Fcfs
from policies.footprint import Footprint
from policies.head_of_line import HeadOfLine
from policies.hf_rows import HfRows
from policies.modality_classes import ModalityClasses
from policies.sglang import Sglang
from policies.shortest_encoder_first import ShortestEncoderFirst
from policies.slo_aware import SloAware
from policies.trt_chunk_demand import TrtChunkDemand
from policies.trt_main import TrtMain
from policies.unbudgeted import Unbudgeted
from policies.vllm import Vllm
from policies.vllm_priority import VllmPriority

AnyPolicy = Annotated[
    Unbudgeted
    | Fcfs
    | HeadOfLine
    | Eager
    | Footprint
    | Vllm
    | VllmPriority
    | HfRows
    | Sglang
    | TrtMain
    | TrtChunkDemand
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
    Vllm,
    VllmPriority,
    HfRows,
    Sglang,
    TrtMain,
    TrtChunkDemand,
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
    "HfRows",
    "ModalityClasses",
    "Sglang",
    "ShortestEncoderFirst",
    "SloAware",
    "TrtChunkDemand",
    "TrtMain",
    "Unbudgeted",
    "Vllm",
    "VllmPriority",
]
