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
# # A production trace
#
# Synthetic loads are smooth; real ones have clients who each send in bursts of their own. `production_mix` has five
# kinds of them, and its marginals follow those published with ServeGen (Alibaba, arXiv 2505.09999): most requests
# bring one small image, a few bring a dozen.

# %%
import pandas as pd

from sim import run, side_by_side

MIX = "../scenarios/production_mix.yaml"
r = run(MIX)
r

# %%
images = r.requests["num_items"]
assert 0.75 < (images == 1).mean() < 0.9 and images.max() >= 12
r.plot.occupancy()

# %% [markdown]
# ## Whose doing is the tail?
#
# Requests with six and more images are one in fifty. They are slow themselves, and they make others wait.

# %%
kinds = pd.cut(images, [0, 1, 5, 99], labels=["1 image", "2 to 5", "6 and more"])
by_kind = r.requests.groupby(kinds, observed=True)["ttft"]
table = pd.DataFrame(
    {"requests": by_kind.size(), "p50 (ms)": by_kind.median() * 1e3, "p99 (ms)": by_kind.quantile(0.99) * 1e3}
)
assert table["requests"]["6 and more"] / len(r.requests) < 0.04
assert table["p50 (ms)"].is_monotonic_increasing
table.round(0)

# %% [markdown]
# Do policies help? At this load, the SLOs are kept by all; what differs is who pays. Putting small requests first
# (`modality_classes`) gives a better median and a worse tail than order of arrival.

# %%
KINDS = ("unbudgeted", "head_of_line", "modality_classes")
runs = {kind: run(MIX, set={"policy.kind": kind}) for kind in KINDS}
assert all(r.summary["slo_attainment"] > 0.97 for r in runs.values())
assert runs["modality_classes"].summary["median_ttft_ms"] < runs["head_of_line"].summary["median_ttft_ms"]
assert runs["modality_classes"].summary["p99_ttft_ms"] > runs["head_of_line"].summary["p99_ttft_ms"]
side_by_side(runs)

# %% [markdown]
# ## A recorded trace, faster
#
# Traces of Azure, Mooncake and ServeGen, and JSON lines of one's own, are replayed with a speed-up. Twenty requests of
# forty seconds, as recorded, and sixteen times as fast:

# %%
TRACE = "../scenarios/trace_replay.yaml"
replayed = {f"{speed} x": run(TRACE, set={"workload.speedup": speed}) for speed in (1, 4, 16)}
spans = {label: r.requests["arrival"].max() for label, r in replayed.items()}
assert abs(spans["1 x"] / spans["16 x"] - 16) < 0.01
side_by_side(replayed)

# %% [markdown]
# Content keys repeat in the trace, so four images are found in the encoder cache however fast it is replayed.

# %%
assert {r.summary["encoder_cache_hits"] for r in replayed.values()} == {4}

# %% [markdown]
# Azure's trace of multimodal requests has counts of images and no sizes, so a scenario draws them. A file of three
# lines in its format:

# %%
CHANGES = {
    "workload.kind": "azure",
    "workload.path": "../tests/data/azure_images.csv",
    "workload.image_size": {"kind": "fixed", "value": "640x480"},
}
azure = run(TRACE, set=CHANGES)
assert azure.requests["num_items"].tolist() == [0, 2, 1]
azure.requests[["arrival", "prompt_tokens", "num_items", "encoder_tokens", "ttft"]].round(3)
