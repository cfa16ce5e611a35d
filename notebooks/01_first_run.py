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
# # A first run
#
# A scenario is a few lines of YAML: who asks for what, on which server, under which policy. `run` simulates it and
# gives back its tables, its figures and its plots. `bursty_images` has bursts of requests with up to four images, on
# a server whose encoder cache and KV cache are both tight.

# %%
from sim import run

r = run("../scenarios/bursty_images.yaml")
r

# %% [markdown]
# The last line of a cell is shown: the table that `tandem run` prints, the distributions of TTFT and ITL with the
# SLOs as dashed lines, and where the time to first token goes.
#
# All 400 requests were answered, and five in six kept their objectives.

# %%
assert r.verdict == "finished" and r.summary["completed"] == 400
assert 0.80 < r.summary["slo_attainment"] < 0.85

# %% [markdown]
# ## Tables
#
# `r.requests` has a row a request, `r.iterations` a row an iteration, times in seconds.

# %%
r.requests[["arrival", "first_token", "finish", "prompt_tokens", "num_items", "ttft", "tpot"]].head(5).round(3)

# %% [markdown]
# Every nanosecond of a TTFT is labelled, so its eight parts add up to it.

# %%
from sim.metrics import TTFT_PARTS

parts = r.requests[list(TTFT_PARTS)]
assert (parts.sum(axis=1) - r.requests["ttft"]).abs().max() < 1e-9
(parts.mean() * 1e3).round(1).rename("mean (ms)").to_frame()

# %% [markdown]
# Most of it is the queue: the encoder's budgets are spent on whoever came before in the burst, and the admission gate
# is shut.

# %%
assert parts.mean().idxmax() == "queue_wait"
r.plot.ttft()

# %% [markdown]
# ## Why was this token late?
#
# A decode gets one token an iteration, so an iteration that also encodes images makes all who decode wait. The gaps
# above 80 ms, by what shared their iteration:

# %%
from sim.attribution import blame, stall_attribution

stalled = stall_attribution(r.iterations, threshold=0.080)
blame(stalled)

# %%
assert blame(stalled)["decodes alone"] == 0  # decoding by itself never takes that long
assert (stalled["encoder_tokens"] > 0).all()  # each of them encoded images
stalled.head(3).round(4)

# %% [markdown]
# The longest of them, with two seconds around it. The encoder's budget is 8,192 tokens an iteration, and that iteration
# used all of it.

# %%
worst = r.iterations.loc[int(stalled["iteration"][0])]
assert worst["encoder_tokens"] == r.limits.encoder_max_num_tokens == 8192
r.plot.timeline(worst["start"] - 1, worst["end"] + 1)

# %% [markdown]
# The same from a shell, with all plots as files:
#
# ```
# tandem run scenarios/bursty_images.yaml
# tandem report runs/bursty_images
# ```
