# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Policies compared
#
# The same requests under five policies. `set` changes a value of the scenario; `side_by_side` shows several runs in one
# table and in the same plots.

# %%
from sim import run, side_by_side

KINDS = ("unbudgeted", "fcfs", "head_of_line", "eager", "footprint")
runs = {kind: run("../scenarios/bursty_images.yaml", set={"policy.kind": kind}) for kind in KINDS}
compared = side_by_side(runs)
compared

# %% [markdown]
# Everybody serves all requests at the same rate: the load is below capacity, and what policies change is who waits
# when.

# %%
rates = [r.summary["request_throughput"] for r in runs.values()]
assert all(r.verdict == "finished" for r in runs.values())
assert max(rates) / min(rates) < 1.01

# %% [markdown]
# `unbudgeted` encodes all images of whoever prefills in one go: the best TTFT in the tail, and the longest stalls of
# those who decode.

# %%
p99_ttft = {kind: r.summary["p99_ttft_ms"] for kind, r in runs.items()}
p99_itl = {kind: r.summary["p99_itl_ms"] for kind, r in runs.items()}
assert min(p99_ttft, key=p99_ttft.get) == "unbudgeted"
assert max(p99_itl, key=p99_itl.get) == "unbudgeted"
compared.plot.itl()

# %% [markdown]
# Below the budgets, requests wait in the queue; without them, they wait for each other (`other`: others' encoding, KV
# blocks). The mean TTFT hardly differs.

# %%
queue = {kind: r.summary["mean_queue_wait_ms"] for kind, r in runs.items()}
other = {kind: r.summary["mean_other_ms"] for kind, r in runs.items()}
mean = [r.summary["mean_ttft_ms"] for r in runs.values()]
assert min(queue, key=queue.get) == max(other, key=other.get) == "unbudgeted"
assert max(mean) / min(mean) < 1.06
compared.plot.breakdown()

# %% [markdown]
# A point is an iteration that carried decodes. Budgets bound how far to the right it can lie, and with it how long it
# takes: no budgeted iteration encodes more than 8,192 tokens.

# %%
most = {kind: int(r.iterations["encoder_tokens"].max()) for kind, r in runs.items()}
assert all(most[kind] <= 8192 for kind in KINDS[1:]) and most["unbudgeted"] > 8192
compared.plot.stalls()

# %% [markdown]
# Two policies that never decide differently would be marked in the table as "same decisions". Here all five do differ.

# %%
assert len({r.decisions for r in runs.values()}) == len(KINDS)

# %% [markdown]
# All policies, with their sources: `tandem policies` and [docs/policies.md](../docs/policies.md).
