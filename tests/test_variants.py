"""`--set` options: what separates values, what a value means, and how variants are called."""

from pathlib import Path

import pytest

from sim.variants import expand, folder_names, numbered, option, split
from workloads.errors import InputError

A, B = Path("a.yaml"), Path("b.yaml")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("fcfs", ["fcfs"]),
        ("fcfs,eager", ["fcfs", "eager"]),
        ("fcfs, eager", ["fcfs", "eager"]),
        ("[1,2],[3,4]", ["[1,2]", "[3,4]"]),
        ("{kind: gamma, rate: 6},{kind: poisson, rate: 4}", ["{kind: gamma, rate: 6}", "{kind: poisson, rate: 4}"]),
        ("[{a: [1, 2]}, 3],4", ["[{a: [1, 2]}, 3]", "4"]),
        ("'a,b',c", ["'a,b'", "c"]),
        ('["a,b", c],d', ['["a,b", c]', "d"]),
        ("don't,do", ["don't", "do"]),
        ("a,,b", ["a", "", "b"]),
        ("", [""]),
    ],
)
def test_only_top_level_commas_separate_values(text: str, parts: list[str]) -> None:
    assert split(text) == parts


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("x=1", [1]),
        ("x=1.5,2", [1.5, 2]),
        ("x=1e6", [1_000_000]),
        ("x=1e-3", [0.001]),
        ("x='1e6'", ["1e6"]),
        ("x=null,true", [None, True]),
        ("x=512x512", ["512x512"]),
        ("x=[1,2]", [[1, 2]]),
        ("x={kind: fixed, value: 3}", [{"kind": "fixed", "value": 3}]),
        ("x=a=b", ["a=b"]),
    ],
)
def test_values_are_yaml(text: str, values: list[object]) -> None:
    assert [value for _, value in option(text).values] == values


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["policy.kind"], "--set policy.kind: reads like path=value, as in policy.kind=fcfs"),
        (["=fcfs"], "--set =fcfs: reads like path=value, as in policy.kind=fcfs"),
        (["seed="], "--set seed: a value is empty; null is written out"),
        (["seed=1,,2"], "--set seed: a value is empty; null is written out"),
        (["seed=1", "seed=2"], "--set seed: given twice; its values go into one option, separated by commas"),
        (["seed=[1"], "--set seed: [1: not YAML: line 1, column 3"),
        (["seed=1" + "0" * 5000], "--set seed: 1000"),
        (["seed={a: 1, a: 2}"], "--set seed: {a: 1, a: 2}: line 1: a stands twice"),
    ],
)
def test_an_option_that_is_wrong_is_one_line(sets: list[str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        expand([A], sets)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("files", "sets", "labels"),
    [
        ([A], [], [""]),
        ([A], ["seed=3"], [""]),
        ([A], ["policy.kind=fcfs,eager"], ["fcfs", "eager"]),
        ([A], ["x.rate=4,6", "policy.kind=fcfs,eager"], ["rate=4 fcfs", "rate=4 eager", "rate=6 fcfs", "rate=6 eager"]),
        ([A], ["seed=3", "policy.kind=fcfs,eager"], ["fcfs", "eager"]),
        ([A], ["a.max=1,2", "b.max=3"], ["max=1", "max=2"]),
        ([A], ["a.max=1,2", "b.max=3,4"], ["a.max=1 b.max=3", "a.max=1 b.max=4", "a.max=2 b.max=3", "a.max=2 b.max=4"]),
        ([A, B], [], ["a", "b"]),
        ([A, B], ["policy.kind=fcfs,eager"], ["a fcfs", "a eager", "b fcfs", "b eager"]),
        ([A, A], [], ["a.yaml", "a.yaml-2"]),
        ([Path("runs/x/fcfs/scenario.yaml"), Path("runs/x/eager/scenario.yaml")], [], ["fcfs", "eager"]),
        ([Path("x/a.yaml"), Path("a.yaml")], [], ["x", "a.yaml"]),
        ([A], ["seed=1,1"], ["seed=1", "seed=1-2"]),
        ([A], ["x.reuse=True,no,~"], ["reuse=true", "reuse=false", "reuse=null"]),
    ],
)
def test_labels_say_only_what_differs(files: list[Path], sets: list[str], labels: list[str]) -> None:
    assert [variant.label for variant in expand(files, sets)] == labels


def test_each_variant_has_its_own_changes() -> None:
    variants = expand([A], ["seed=7", "policy.kind=fcfs,eager"])
    assert [variant.changes for variant in variants] == [
        {"seed": 7, "policy.kind": "fcfs"},
        {"seed": 7, "policy.kind": "eager"},
    ]


def test_equal_names_are_numbered_past_names_that_exist() -> None:
    assert numbered(["a", "a", "a-2", "a"]) == ["a", "a-3", "a-2", "a-4"]


def test_folders_are_safe_and_differ() -> None:
    names = folder_names(["plots", "a/b c", "a_b_c", "..", "{kind: gamma, rate: 6}", "x" * 300, "rate=4 fcfs"])
    assert len(set(names)) == len(names)
    assert names[0] != "plots"
    assert all(name and "/" not in name and name not in (".", "..") and len(name) < 100 for name in names)
    assert names[-1] == "rate=4_fcfs"
