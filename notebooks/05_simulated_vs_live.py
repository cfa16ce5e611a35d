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
# # Simulated and live
#
# The policy object that runs in the simulator also runs a real model. Here it is `tiny`, a Qwen2-VL of two layers with
# random weights, on one thread of a CPU; on a GPU it is the same code.

# %%
import pandas as pd
from IPython.display import display

from executor.live import LiveRun, replay
from executor.options import Options
from executor.prepare import load_for, prepare
from sim import Scenario, run, side_by_side
from sim.plan_log import parsed
from sim.twin import twin

SCENARIO = "../scenarios/tiny_live.yaml"


def live(policy: str, clock: str) -> LiveRun:
    """The scenario for real; `clock` says whose time it is."""
    scenario, options = Scenario.load(SCENARIO, {"policy.kind": policy}), Options(clock=clock)
    model = load_for(scenario, options)
    return replay(prepare(scenario, model, options).checked, model, options)


# %% [markdown]
# ## Told the time by the cost model
#
# Under `clock="model"` every token is really computed, and the cost model says how long it took. Then nothing may
# differ from the simulation: every request's times, to the nanosecond, under each policy.

# %%
POLICIES = ("unbudgeted", "head_of_line", "footprint", "vllm")
rows = {}
for policy in POLICIES:
    executed, simulated = live(policy, "model").run, run(SCENARIO, set={"policy.kind": policy})
    pd.testing.assert_frame_equal(executed.requests, simulated.requests, check_exact=True)
    pd.testing.assert_frame_equal(executed.iterations, simulated.iterations, check_exact=True)
    figures = {"TTFT p50 (ms)": "median_ttft_ms", "ITL p99 (ms)": "p99_itl_ms"}
    rows[policy] = {"iterations": executed.num_iterations, "equal": True}
    rows[policy] |= {words: round(executed.summary[key], 2) for words, key in figures.items()}
pd.DataFrame(rows).T

# %% [markdown]
# So one line covers the other, here those of the last policy:

# %%
side_by_side({"simulated": simulated, "executed": executed}).plot.itl()

# %% [markdown]
# ## Told the time by the processor
#
# Under `clock="thread_time"` it is what the computation took. The times are this machine's, so they are not printed
# here (`SHOW = True` does). But a policy that is given them once more decides the same again, iteration by iteration:
# that is the twin.

# %%
SHOW = False
measured = live("head_of_line", "thread_time")
world = measured.world
resolved = prepare(world.scenario, world.loaded, world.options).checked
again = twin(resolved, parsed(measured.plans, "plans"))
assert again.difference is None and not again.ran_out
pd.testing.assert_frame_equal(again.run.requests, measured.run.requests, check_exact=True)
assert again.run.decisions == measured.run.decisions
print("the twin decided the same")

# %% [markdown]
# The answers are those of the model, not of the clock: token for token the same in both live runs of a policy.

# %%
assert measured.tokens.equals(live("head_of_line", "model").tokens)
print(measured.tokens.num_rows, "answers, token for token the same")

# %%
if SHOW:
    display(side_by_side({"simulated": run(SCENARIO), "measured": measured.run}))

# %% [markdown]
# From a shell, with the errors of cost model and simulation and how much of them is noise:
#
# ```
# tandem run scenarios/tiny_live.yaml
# tandem replay scenarios/tiny_live.yaml
# tandem compare runs/tiny_live runs/tiny_live.live
# ```
#
# `make demo` calibrates for this machine first.
