"""The memory ledger: what a device's memory holds, what is left for the KV pool, and what no longer fits.

Counted are weights, KV pool, encoder activations and encoder outputs. The language model's activations, CUDA graphs
and fragmentation are not, and nothing can be tuned: every figure comes from the profile.
"""

from dataclasses import dataclass

from sim.profiles import Profile
from workloads.errors import InputError


@dataclass(frozen=True, slots=True)
class MemoryLedger:
    """The fixed part of the books, in bytes; who uses it keeps the counters."""

    device_bytes: int
    weight_bytes: int
    encoder_token_bytes: int  # transient, of one pre-merger token

    @classmethod
    def from_profile(cls, profile: Profile) -> "MemoryLedger":
        """Per pre-merger token: its pixels, and of one layer at a time input, output and the MLP before and after."""
        m = profile.memory
        patch = m.channels.value * m.temporal_patch.value * m.patch.value**2
        activations = 2 * m.vision_hidden.value + 2 * m.vision_mlp.value
        return cls(profile.device.memory.value, m.weights.value, m.dtype.value * (activations + patch))

    def encoder_activations(self, encoder_tokens: int) -> int:
        """Bytes held while a micro-batch of so many pre-merger tokens is encoded."""
        return encoder_tokens * self.encoder_token_bytes

    def num_kv_blocks(
        self,
        free_gpu_memory_fraction: float,
        block_size: int,
        kv_bytes_per_token: int,
        boundary_encoder_tokens: int = 0,
        encoder_cache_bytes: int = 0,
    ) -> int:
        """Blocks of the KV pool: its fraction of what weights, the boundary batch and the encoder cache leave.

        An engine that profiles no boundary batch and reserves no cache passes 0 for both. Raises InputError when
        not one block is left.
        """
        reserved = self.encoder_activations(boundary_encoder_tokens) + encoder_cache_bytes
        free = self.device_bytes - self.weight_bytes - reserved
        blocks = int(free_gpu_memory_fraction * free) // (block_size * kv_bytes_per_token)
        if blocks < 1:
            raise InputError(
                f"no memory left for KV blocks: device {self.device_bytes} bytes, weights {self.weight_bytes}, "
                f"encoder {reserved}, fraction {free_gpu_memory_fraction}"
            )
        return blocks

    def headroom(self, kv_bytes: int) -> int:
        """Bytes left at run time for encoder activations and outputs; negative when the pool itself is too large."""
        return self.device_bytes - self.weight_bytes - kv_bytes

    def overflow(self, kv_bytes: int, encoder_tokens: int, resident_rows: int, row_bytes: int) -> int:
        """Bytes past the device's memory while so many tokens are encoded and so many rows kept; 0 if all fits."""
        used = self.encoder_activations(encoder_tokens) + resident_rows * row_bytes
        return max(0, used - self.headroom(kv_bytes))
