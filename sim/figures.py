"""The parts of a profile: figures, each with its unit and its source."""

from typing import Annotated, Generic, TypeVar

from pydantic import Field, NonNegativeInt, PositiveInt

from workloads.frozen import Frozen, NonNegative, Positive

T = TypeVar("T")
Span = tuple[NonNegativeInt, NonNegativeInt]  # least and greatest value in the timings
Great = Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]  # operations, bytes and the like, a second or not


class Stated(Frozen, Generic[T]):
    """One figure as it is stated in a profile."""

    value: T
    unit: str
    source: str


class Device(Frozen):
    """The accelerator that was timed."""

    name: str
    memory: Stated[PositiveInt]  # what CUDA reports, less than what is printed on the box


class Source(Frozen):
    """Where the timings come from."""

    package: str
    version: str
    licence: str
    system: str
    backend: str
    backend_version: str | None = None
    dtype: str
    gpus: PositiveInt  # over which the model is split, each with a rank of it
    queried: str  # year and month
    clock: str | None = None  # of timings of one's own, as `tandem replay --clock` names them


class Coefficients(Frozen):
    """The formula's coefficients, in milliseconds; fitted, never negative."""

    E0: Stated[NonNegative]
    E1: Stated[NonNegative]
    E2: Stated[NonNegative]
    G0: Stated[NonNegative]
    G1: Stated[NonNegative]
    G2: Stated[NonNegative]
    p: Stated[Annotated[float, Field(ge=1, le=64)]]
    P0: Stated[NonNegative]
    P1: Stated[NonNegative]
    P2: Stated[NonNegative]
    D0: Stated[NonNegative]
    D1: Stated[NonNegative]
    D2: Stated[NonNegative]


class Corrections(Frozen):
    """What kernel timings leave out, measured elsewhere: kept apart, so that it can be left off or replaced."""

    label: str
    encoder_offset: Stated[NonNegative]  # e0, once per iteration that encodes
    language_model_factor: Stated[Positive]
    host: Stated[NonNegative]  # once per iteration


class Range(Frozen):
    """Where the timings lie; the formula is extrapolated outside."""

    images: Span
    encoder_tokens_per_image: Span
    encoder_tokens: Span | None = None  # in a call
    chunk: Span
    cached: Span
    decodes: Span
    context_per_decode: Span


class StageErrors(Frozen):
    """One figure per stage, in percent of the measured time."""

    encoder: float
    prefill: float
    decode: float
    mixed: float


class Compared(Frozen):
    """The errors by which a part got its form: the formula, or a table in its place."""

    formula: float
    table: float


class HeldOut(Frozen):
    """How well the profile predicts what it was not fitted to, without corrections."""

    method: str
    unit: str
    mape: StageErrors
    bias: StageErrors  # of the summed time of all rows, with every row fitted; published mixed rows never are
    encode: Compared | None = None
    gemm: Compared | None = None


class StageSpread(Frozen):
    """How far a stage's times lie from its predictions: relative standard deviations, 0.02 for 2 %."""

    bias: Stated[NonNegative]  # of what a kind of shape is off by as a whole, however often it runs
    noise: Stated[NonNegative]  # of single iterations about that


class Spread(Frozen):
    """The uncertainty that the fit leaves, by stage: of timings over predictions, without corrections."""

    encode: StageSpread
    prefill: StageSpread
    decode: StageSpread
    mixed: StageSpread


class Roofline(Frozen):
    """The floor below every time: what a rank has to compute and to read, at the device's best."""

    peak: Stated[Great]  # operations a second
    bandwidth: Stated[Great]  # of its memory
    encoder_weights: Stated[Great]
    encoder_token: Stated[Great]  # operations for a pre-merger token
    encoder_pair: Stated[Great]  # for two of them in one frame
    language_weights: Stated[Great]
    language_token: Stated[Great]  # operations for a token, attention apart
    attention_pair: Stated[Great]  # for a query with a key
    kv_token: Stated[Great]  # keys and values


class Memory(Frozen):
    """What the memory ledger needs of a rank of a model: its weights and the widths of its vision tower."""

    weights: Stated[PositiveInt]
    dtype: Stated[PositiveInt]
    vision_hidden: Stated[PositiveInt]
    vision_mlp: Stated[PositiveInt]
    patch: Stated[PositiveInt]
    temporal_patch: Stated[PositiveInt]
    channels: Stated[PositiveInt]
