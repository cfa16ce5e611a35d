"""Every policy, with its defaults and with options that change what it does, and what some of them have in common."""

from __future__ import annotations

import policies
from policies import (
    BoundedBypass,
    DecodeFirst,
    HfRows,
    ModalityClasses,
    Sglang,
    ShortestEncoderFirst,
    SloAware,
    TrtChunkDemand,
    TrtMain,
)
from policies.modality_classes import Heavy, Light, Text
from policies.policy import Policy

POLICIES: dict[str, Policy] = {policy.kind: policy for policy in (policy() for policy in policies.POLICIES)}
HASTY = SloAware(short_ttft=0.002, long_ttft=0.0075, short_request_token_threshold=5, late="last")
VARIANTS: dict[str, Policy] = {
    "hf_rows, prompts first": HfRows(scheduler="prefill_first"),
    "hf_rows, inputs kept": HfRows(keep_inputs=True),
    "sglang, mixed": Sglang(enable_mixed_chunk=True, new_token_ratio=0),
    "sglang, skipping": Sglang(skip_blocked=True),
    "trt_main, eager": TrtMain(encoder_scheduling_policy="EAGER", chunk_unit_size=3),
    "trt_chunk_demand, eager": TrtChunkDemand(encoder_scheduling_policy="EAGER"),
    "trt_chunk_demand, in units": TrtChunkDemand(chunk_unit_size=3),
    "trt_chunk_demand, v2": TrtChunkDemand(use_kv_cache_manager_v2=True),
    "trt_chunk_demand, mended": TrtChunkDemand(chunk_unit_size=3, mended=True, use_kv_cache_manager_v2=True),
    "decode_first, token by token": DecodeFirst(chunk_size=1),
    "decode_first, small chunks": DecodeFirst(chunk_size=3),
    "shortest_encoder_first, not ageing": ShortestEncoderFirst(ageing=0),
    "shortest_encoder_first, ageing little": ShortestEncoderFirst(ageing=700),
    "modality_classes, restless": ModalityClasses(  # every class overtakes another one within milliseconds
        text=Text(weight=1, ageing=0),
        light=Light(weight=0, ageing=300),
        heavy=Heavy(weight=0, ageing=999),
        light_max_encoder_tokens=5,
    ),
    "modality_classes, upside down": ModalityClasses(  # the small overtake: only then there may be room for one that
        text=Text(weight=0, ageing=4),  # was not first before
        light=Light(weight=2, ageing=2),
        heavy=Heavy(weight=3, ageing=1),
        light_max_encoder_tokens=1500,
    ),
    "slo_aware, hasty": HASTY.model_copy(update={"late": "first"}),
    "slo_aware, hasty, late last": HASTY,
    "slo_aware, late last": SloAware(short_ttft=0.5, long_ttft=1.5, short_request_token_threshold=400, late="last"),
    "bounded_bypass, of one": BoundedBypass(max_bypasses=1),
    "bounded_bypass, for a while": BoundedBypass(max_wait=0.004),
}
EVERY = POLICIES | VARIANTS

BUDGETED = ("fcfs", "head_of_line", "eager", "footprint", "trt_main")  # whole requests, within the encoder's budgets
IN_ORDER = ("unbudgeted", *BUDGETED)  # of arrival: text is served alike
STARTING = ("shortest_encoder_first", "modality_classes", "slo_aware", "bounded_bypass")  # whole, as they admit
WHOLE = (*IN_ORDER, "decode_first", *STARTING)  # wait for all items of a request
APART = tuple(kind for kind, policy in POLICIES.items() if policy.apart)  # go with side streams and pools
VLLM = ("vllm", "vllm_priority")
ALIKE = tuple(kind for kind in POLICIES if kind not in ("sglang", "decode_first"))  # text alone, and room for all of it


def with_options(*kinds: str) -> list[str]:
    """These policies with their defaults and in all variants."""
    return [name for name, policy in EVERY.items() if policy.kind in kinds]


SAFE = with_options("footprint", "trt_main", "decode_first", *STARTING)  # can never stall


def acting(policy: str | Policy) -> Policy:
    """By its name, or itself."""
    return EVERY[policy] if isinstance(policy, str) else policy
