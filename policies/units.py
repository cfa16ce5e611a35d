"""Amounts of memory in words."""

UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def in_bytes(count: int) -> str:
    """`128 MiB`, `3.1 GiB`: in the largest unit of which there is at least one, to a tenth."""
    amount, unit = float(count), 0
    while amount >= 1024 and unit < len(UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:,.0f} {UNITS[unit]}" if amount == round(amount) else f"{amount:,.1f} {UNITS[unit]}"
