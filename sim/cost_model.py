"""Prices an iteration in whole nanoseconds by the transparent formula of a profile, or by a table in its place.

t = host + encode + gemm(T) + prefill_attention + decode_attention
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sim.cost_tables import NO_TABLES, EncodeTable, Tables
from sim.decode_run import QUANTUM, SHIFT, DecodeRun, run_until
from sim.profiles import Profile

NS_PER_MS = 1e6
MOST_ENCODES = 2**16  # prices of encoder calls that are remembered; images of every size would fill the memory


def _quanta(nanoseconds: float) -> int:
    return round(nanoseconds * QUANTUM)


@dataclass(frozen=True, slots=True)
class CostModel:
    """The formula with its coefficients in nanoseconds; the letters are those of the profile."""

    host: int  # once per iteration
    encode_fixed: float  # e0 + E0
    encode_token: float  # E1
    encode_square: float  # E2
    gemm_floor: float  # G0: reading the weights
    gemm_token: float  # G1: computing on them
    gemm_slope: float  # G2
    gemm_power: float  # p: how sharply the one turns into the other
    prefill_fixed: float  # P0
    prefill_token: float  # P1
    prefill_half_pair: float  # P2 / 2, so that pairs are counted in whole numbers
    decode_fixed: float  # D0
    decode_sequence: float  # D1
    decode_context: float  # D2
    tables: Tables = NO_TABLES  # in the place of E0 + ... or gemm, in nanoseconds
    encode_offset: float = 0.0  # e0, beside a table
    _encodes: dict[tuple[int, int], float] = field(default_factory=dict, init=False, repr=False, compare=False)
    _gemms: dict[int, float] = field(default_factory=dict, init=False, repr=False, compare=False)
    _context_quanta: int = field(init=False, repr=False, compare=False)
    _decodes: dict[int, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_context_quanta", _quanta(self.decode_context))

    @classmethod
    def from_profile(cls, profile: Profile, corrected: bool = True) -> "CostModel":
        """The profile's formula; `corrected=False` leaves out what stands under its corrections."""
        c, fix = profile.coefficients, profile.corrections
        model = NS_PER_MS * (fix.language_model_factor.value if corrected else 1.0)
        return cls(
            host=round(NS_PER_MS * fix.host.value) if corrected else 0,
            encode_fixed=NS_PER_MS * (c.E0.value + (fix.encoder_offset.value if corrected else 0.0)),
            encode_token=NS_PER_MS * c.E1.value,
            encode_square=NS_PER_MS * c.E2.value,
            gemm_floor=model * c.G0.value,
            gemm_token=model * c.G1.value,
            gemm_slope=model * c.G2.value,
            gemm_power=c.p.value,
            prefill_fixed=model * c.P0.value,
            prefill_token=model * c.P1.value,
            prefill_half_pair=model * c.P2.value / 2,
            decode_fixed=model * c.D0.value,
            decode_sequence=model * c.D1.value,
            decode_context=model * c.D2.value,
            tables=profile.tables.scaled(encode=NS_PER_MS, gemm=model),
            encode_offset=NS_PER_MS * fix.encoder_offset.value if corrected else 0.0,
        )

    def encode(self, tokens: int, squares: int) -> int:
        """The encoder over frames of s pre-merger tokens: `tokens` = sum(s), `squares` = sum(s^2)."""
        if not tokens:
            return 0
        if self.tables.encode is not None:
            return round(self.encode_offset + self._table_encode(self.tables.encode, tokens, squares))
        return round(self.encode_fixed + self.encode_token * tokens + self.encode_square * squares)

    def compute(self, prefill: Sequence[tuple[int, int]], num_decodes: int, context_tokens: int) -> int:
        """The language model over prefill chunks (tokens, tokens already cached) and decodes (summed context)."""
        if not prefill:
            return self.decodes_alone(num_decodes, context_tokens) if num_decodes else 0
        tokens = double_pairs = 0
        for chunk, cached in prefill:
            tokens += chunk
            double_pairs += chunk * (cached + cached + chunk)  # of a query with a key: 2 * chunk * (cached + chunk / 2)
        gemm = self._gemms.get(tokens + num_decodes)
        elapsed = (self._gemm(tokens + num_decodes) if gemm is None else gemm) + self.prefill_fixed
        elapsed += self.prefill_token * tokens + self.prefill_half_pair * double_pairs
        if num_decodes:
            elapsed += self.decode_fixed + self.decode_sequence * num_decodes + self.decode_context * context_tokens
        return round(elapsed)

    def parts(
        self, prefill: Sequence[tuple[int, int]], num_decodes: int, context_tokens: int
    ) -> tuple[float, float, float]:
        """What `compute` consists of, not rounded: matrix products, prefill attention, decode attention."""
        tokens = sum(chunk for chunk, _ in prefill)
        double_pairs = sum(chunk * (2 * cached + chunk) for chunk, cached in prefill)
        attention = self.prefill_fixed + self.prefill_token * tokens + self.prefill_half_pair * double_pairs
        decode = self.decode_fixed + self.decode_sequence * num_decodes + self.decode_context * context_tokens
        gemm = self._gemm(tokens + num_decodes) if tokens + num_decodes else 0.0
        return gemm, attention if prefill else 0.0, decode if num_decodes else 0.0

    def decode_run(self, num_decodes: int, context_tokens: int, n: int, horizon: int) -> tuple[DecodeRun, int]:
        """Successive decode-only iterations, host time included, each context growing by one token in each.

        `n` of them, or fewer: the last is the first one that ends `horizon` ns from now or later. Exactly
        `host + compute([], num_decodes, context_tokens + k * num_decodes)` for k = 0, 1, ... With it, their sum.
        """
        context, fixed = self._context_quanta, self._decodes.get(num_decodes) or self._decode(num_decodes)
        first = fixed + context * context_tokens
        before = context_tokens * (fixed + first - context * num_decodes) // (2 * num_decodes)
        return run_until(horizon, n, first + (self.host << SHIFT), context * num_decodes, before % QUANTUM)

    def decodes_alone(self, num_decodes: int, context_tokens: int) -> int:
        """One iteration of at least one decode and nothing else, in whole nanoseconds.

        Time passes in whole nanoseconds of a sum, which makes any number of iterations as easy to add up as one: of all
        that iterations of so many decodes would have taken until their contexts summed to so much, `before`. Each takes
        `fixed + context * context_tokens` more of it, and adds `num_decodes` tokens.
        """
        context, fixed = self._context_quanta, self._decodes.get(num_decodes) or self._decode(num_decodes)
        first = fixed + context * context_tokens
        before = context_tokens * (fixed + first - context * num_decodes) // (2 * num_decodes)
        return before % QUANTUM + first >> SHIFT

    def _table_encode(self, table: EncodeTable, tokens: int, squares: int) -> float:
        """Frames of several sizes are priced as so many of their mean size, each token's own."""
        elapsed = self._encodes.get((tokens, squares))
        if elapsed is None:
            fixed = self.encode_fixed - self.encode_offset

            def formula(frames: float, size: float) -> float:
                return fixed + frames * size * (self.encode_token + self.encode_square * size)

            if len(self._encodes) == MOST_ENCODES:
                self._encodes.clear()
            elapsed = self._encodes[tokens, squares] = table.at(tokens * tokens / squares, squares / tokens, formula)
        return elapsed

    def _gemm(self, tokens: int) -> float:
        elapsed = self._gemms.get(tokens)
        if elapsed is None:
            table = self.tables.gemm
            elapsed = self._formula_gemm(tokens) if table is None else table.at(tokens, self._formula_gemm)
            self._gemms[tokens] = elapsed
        return elapsed

    def _formula_gemm(self, tokens: float) -> float:
        """Weights-bound turning compute-bound; the greater is factored out, since (G1 * T)**p would overflow."""
        low, high = sorted((self.gemm_floor, self.gemm_token * tokens))
        bend = (1 + (low / high) ** self.gemm_power) ** (1 / self.gemm_power) if high else 1.0
        return high * bend + self.gemm_slope * tokens

    def _decode(self, num_decodes: int) -> int:
        """All of a decode-only iteration but its context, in quanta."""
        elapsed = self._decodes.get(num_decodes)
        if elapsed is None:
            attention = self.decode_fixed + self.decode_sequence * num_decodes
            elapsed = self._decodes[num_decodes] = _quanta(self._gemm(num_decodes) + attention)
        return elapsed
