"""What `tandem policies` prints: each policy with what it does, its weaknesses, and where its rule comes from."""

import inspect
import textwrap
from collections.abc import Sequence

from policies.policy import Policy

READABLE = 100  # columns of running text


def policy_list(policies: Sequence[type[Policy]], width: int) -> str:
    """Every policy with what it does, what is to be known of it, and where its rule comes from."""
    return "\n\n".join(_described(policy, min(width, READABLE)) for policy in policies)


def _described(policy: type[Policy], width: int) -> str:
    paragraphs = [*inspect.cleandoc(policy.__doc__ or "").split("\n\n"), f"Source: {policy.source}"]
    lines = [line for words in paragraphs for line in textwrap.wrap(words, width - 2, break_on_hyphens=False)]
    return "\n".join([policy.model_fields["kind"].default, *(f"  {line}" for line in lines)])
