"""Taking back what a draft has planned for somebody, as if it had not been asked."""

from __future__ import annotations

from policies.encoder_cache import Key
from policies.encoder_draft import EncoderDraft
from policies.request_state import RequestState


class Undo(EncoderDraft):
    """For policies that see only later that a request cannot run, or that another needs more what it was to get."""

    def blocks_needed(self, request: RequestState, num_tokens: int) -> int:
        """KV blocks to be had for the request's next tokens; a decode has one."""
        decodes = self.state.decodes
        if request in decodes.members:
            return int(decodes.crosses(request))
        blocks = -(-(request.num_computed_tokens + num_tokens) // self.state.pool.block_size)
        return max(0, blocks - len(request.blocks))

    def unschedule(self, request: RequestState) -> bool:
        """Take back the chunk and the items that the draft has for the request, as if it had not been asked.

        Its tokens, blocks, rows and encoder budget are free again, but another who needs an item it was to encode
        encodes that instead. Under `evict_at_once`, outputs that it found count as released just now.
        """
        chunk = next((chunk for chunk in self.plan.prefill if chunk[0] is request), None)
        if chunk is not None:
            self.plan.prefill.remove(chunk)
            self.plan.num_prefill_tokens -= chunk[1]
            self.tokens_left += chunk[1]
            self.free_blocks += self.blocks_needed(*chunk)
        found = self._unencode(request)
        self._refresh(found)
        return chunk is not None or bool(found)

    def refuse(self, request: RequestState, reason: str) -> bool:
        """Fail a request with this iteration, in which it gets nothing; what it has is free after it."""
        if request in self.plan.refused:
            return False
        self.unschedule(request)
        self.plan.set_back().refused = {**self.plan.refused, request: reason}
        return True

    def _found(self, request: RequestState) -> list[int]:
        """Items that this draft attaches or encodes for the request, in the order of a set as in vLLM."""
        attached = {index for owner, index in self.plan.attached if owner is request}
        return [*attached, *(index for owner, index in self.plan.encode if owner is request)]

    def _unencode(self, request: RequestState) -> list[Key]:
        """Take all of these back; returns their keys."""
        found = self._found(request)
        self.plan.attached = [owner for owner in self.plan.attached if owner[0] is not request]
        for index in found:
            if (request, index) in self.plan.encode:
                self._pass_on(request, index)
            if index not in request.holds:
                self._give_rows(request.keys[index], request.items[index].embeds)
        self._missing.pop(request, None)
        return [request.keys[index] for index in found]

    def _pass_on(self, request: RequestState, index: int) -> None:
        """Somebody else who waits for the same output encodes it; if there is nobody, the budget is free again."""
        plan, key = self.plan, request.keys[index]
        place = plan.encode.index((request, index))
        heir = next(((r, i) for r, i in plan.attached if r.keys[i] == key), None)
        if heir is not None:
            plan.attached.remove(heir)
            plan.encode[place] = heir
            return
        item = request.items[index]
        del plan.encode[place]
        plan.encoder_tokens -= item.encoder_tokens
        self.encoder_items_left += 1
        self.encoder_tokens_left += self.state.limits.encoder_cost(item)
        self._encoding.discard(key)
