"""Published figures that a scenario is shown beside: cited, labelled, and never tuned to."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, FiniteFloat, model_validator

from policies import POLICIES
from sim.complaints import nearest
from sim.memory_replay import MEMORY_METRICS
from sim.metrics import TTFT_PARTS
from workloads.errors import InputError
from workloads.frozen import Frozen, Positive

LATENCIES = ("ttft", "tpot", "itl", "e2el")
STATISTICS = ("mean", "median", "std", "p50", "p90", "p95", "p99")
METRICS = (
    *("completed", "failed", "rejected", "cancelled", "stalled", "unfinished", "duration", "concurrency"),
    *("total_input_tokens", "total_input_text_tokens", "total_input_vision_tokens", "total_output_tokens"),
    *("request_throughput", "request_goodput", "slo_attainment", "output_throughput", "total_token_throughput"),
    *("max_output_tokens_per_s", "max_concurrent_requests"),
    *(f"{statistic}_{latency}_ms" for latency in LATENCIES for statistic in STATISTICS),
    *(f"mean_{part}_ms" for part in TTFT_PARTS),
    *("num_encodes", "encoder_cache_hits", "encoder_cache_hit_rate", "num_preemptions", "num_iterations"),
    *("total_cached_tokens", "prefix_cache_hit_rate"),
    *("total_encoder_tokens", "encoder_busy_fraction", "engine_busy_fraction"),
    *("max_kv_blocks_used", "max_encoder_rows_held", "allocation_failures", "peak_encoder_bytes"),
    *("transferred_embedding_bytes", "transferred_kv_bytes", "link_busy_fraction"),
    *MEMORY_METRICS,
)


def _metric(value: str) -> str:
    if value not in METRICS:
        raise InputError(f"unknown metric {value!r}{nearest(value, [*METRICS])}")
    return value


Metric = Annotated[str, AfterValidator(_metric)]  # a key of `summary.json`


class PublishedFigure(Frozen):
    """One figure, or one change in percent, of a metric of `summary.json` under a policy."""

    metric: Metric
    policy: str = "head_of_line"
    value: FiniteFloat | None = None  # as published, in the metric's unit
    change_percent: FiniteFloat | None = None  # as published, from `against` to `policy`
    change_words: str | None = None  # in place of it: "parity", "within 3 %", where no figure was published
    within_percent: Positive | None = None  # what the words come to: the simulated change should stay within it
    against: str | None = None
    against_metric: Metric | None = None  # in place of it: another figure of that run
    note: str = ""  # what the publication calls it, and its spread

    @model_validator(mode="after")
    def _one_of_both(self) -> "PublishedFigure":
        if sum(given is not None for given in (self.value, self.change_percent, self.change_words)) != 1:
            raise InputError("needs one of value, change_percent and change_words")
        if (self.value is None) != ((self.against is None) != (self.against_metric is None)):
            raise InputError("a change needs one of against and against_metric, a value neither")
        if self.within_percent is not None and self.change_words is None:
            raise InputError("within_percent goes with change_words")
        kinds = [policy.model_fields["kind"].default for policy in POLICIES]
        for name in (self.policy, self.against):
            if name is not None and name not in kinds:
                raise InputError(f"unknown policy {name!r}; one of: {', '.join(kinds)}")
        return self


class Unstated(Frozen):
    """What is not published and was assumed: values that it may have had, of a dotted path."""

    path: str
    values: Annotated[tuple[FiniteFloat | int | str, ...], Field(min_length=2, max_length=20)]
    what: str  # in words, with the unit
    also: Annotated[
        dict[str, FiniteFloat | int | str], Field(default_factory=dict)
    ]  # paths that are set with any of them
    policy: str | None = None  # the only one to which it matters


class Published(Frozen):
    """What somebody measured on a real server in about this situation."""

    source: str
    label: Literal["published"] = "published"
    repetitions: Annotated[int, Field(ge=1, le=1000)] = 1  # of which the figures are means
    figures: list[PublishedFigure]
    unstated: Annotated[tuple[Unstated, ...], Field(max_length=3)] = ()
