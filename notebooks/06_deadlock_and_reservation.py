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
# # Deadlock and reservation
#
# Three requests, seven images, and an encoder cache of 2,304 rows: enough for each request, not for any two of the last
# ones. Whoever encodes a part of its images keeps the rows until it has prefilled, and it prefills once all are there.

# %%
import pandas as pd

from policies import POLICIES
from sim import run

SCENARIO = "../scenarios/deadlock.yaml"


def under(policy: str):
    return run(SCENARIO, set={"policy.kind": policy})


# %% [markdown]
# ## First come, first served
#
# Under `fcfs` all three take rows, and nobody gets the rest.

# %%
stalled = under("fcfs")
assert stalled.verdict == "stalled" and stalled.summary["completed"] == 0
for request, reason in stalled.blockers.items():
    print(f"request {request} {reason}")

# %% [markdown]
# ## A reservation for the first
#
# `head_of_line` reserves the rows that the first incomplete request still needs. That serves request 0, but request 2
# was given rows meanwhile, and the next head cannot take them back.

# %%
reserved = under("head_of_line")
assert reserved.verdict == "stalled" and reserved.summary["completed"] == 1
assert set(reserved.blockers) == {1, 2} and "request 2 (512)" in reserved.blockers[1]
reserved

# %%
reserved.plot.gantt()

# %% [markdown]
# ## The whole footprint or nothing
#
# Under `footprint` a request takes all its rows at once. Then whoever holds rows can finish, and gives them back.

# %%
whole = under("footprint")
assert whole.verdict == "finished" and whole.summary["completed"] == 3
assert whole.iterations["encoder_rows_held"].max() <= 2304
whole.plot.gantt()

# %% [markdown]
# ## Who else stalls here?
#
# Of all policies only those that hand out rows item by item without taking any back.

# %%
runs = {kind: under(kind) for kind in (policy.model_fields["kind"].default for policy in POLICIES)}
verdicts = pd.DataFrame(
    {kind: {"verdict": r.verdict, "finished": r.summary["completed"]} for kind, r in runs.items()}
).T
assert set(verdicts.index[verdicts["verdict"] == "stalled"]) == {"fcfs", "head_of_line", "eager"}
verdicts
