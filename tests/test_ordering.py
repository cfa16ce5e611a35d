"""Policies that serve out of turn: who goes first and why, that nobody starves, and when waiting changes the order."""

from __future__ import annotations

import pytest
from acting import STARTING, acting, with_options
from rules import MS, Desk, Sized, limits, request
from servers import SmallBackend, serve
from test_fast_path import assert_paths_agree, scenario

from policies import BoundedBypass, DecodeFirst, ModalityClasses, ShortestEncoderFirst, SloAware
from policies.modality_classes import Heavy, Light, Text
from policies.policy import FOREVER, Policy
from workloads.request import Request

SECOND = 1000 * MS
KINDS = ("decode_first", *STARTING)
every_variant = pytest.mark.parametrize("policy", [name for name in with_options(*KINDS) if name not in KINDS])


def order(policy: str | Policy, *asked: Request, at: int = 0, **changes: object) -> list[int]:
    """Who starts, one at a time, when all of them wait."""
    desk = Desk(policy, limits(max_num_seqs=1, **changes), now=at)
    desk.submit(*asked)
    admitted = []
    while plan := desk.draft():
        admitted += [r.id for r in plan.admitted]
        desk.state.begin(plan)
        desk.state.complete(plan)
    return admitted


@pytest.mark.parametrize("policy", STARTING)
def test_whoever_starts_has_all_its_blocks_and_rows(policy: str) -> None:
    """Requests 1 and 2 would each fit what 0 leaves of one cache, but not of both; 3 fits."""
    desk = Desk(policy, limits(num_kv_blocks=4, block_size=10, encoder_cache_rows=6))
    asked = [request(0, [Sized(1, 4)], text=16, output=9), request(1, [Sized(1, 3)]), request(2, text=25)]
    desk.submit(*asked)
    admitted = desk.draft().admitted
    blocks = sum(r.max_blocks for r in admitted)
    rows = sum(item.embeds for r in admitted for item in r.items)
    assert admitted and blocks <= 4 and rows <= 6 and len(admitted) < 3


@pytest.mark.parametrize("policy", STARTING)
def test_nobody_starts_while_one_that_was_preempted_waits(policy: str) -> None:
    """The blocks that request 1 gives back are for 0's answer and then for itself; 2, which would fit, waits."""
    desk = Desk(policy, limits(capacity="max_utilization", block_size=1, num_kv_blocks=20))
    desk.submit(request(0, text=8, output=10), request(1, text=8, output=9), request(2, text=5, output=2))
    steps = desk.steps()
    preempting = next(index for index, step in enumerate(steps) if step.preempted)
    assert steps[preempting].preempted == (1,)
    again, last = (
        next(index for index, step in enumerate(steps) if index >= preempting and id in dict(step.prefill))
        for id in (1, 2)
    )
    assert last >= again > preempting


@every_variant
@pytest.mark.parametrize("arrivals", ["at_once", "gamma"])
def test_options_keep_the_fast_path_on_larger_loads(policy: str, arrivals: str) -> None:
    """Seconds long and short of KV blocks, not of seats: who waits changes places during runs of decodes."""
    for seed in range(3):
        asked = scenario("fcfs", arrivals, seed, engine={"max_num_seqs": 24, "num_kv_blocks": 70})
        assert_paths_agree(asked.model_copy(update={"policy": acting(policy)}))


OVERTAKING = {  # the second waiting request passes the first one after 20 ms of waiting, or of lateness
    "modality_classes": ModalityClasses(
        text=Text(weight=1, ageing=0), heavy=Heavy(weight=0, ageing=50), light_max_encoder_tokens=0
    ),
    "slo_aware": SloAware(short_ttft=0.0205, late="last"),
}


@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize("kind", OVERTAKING)
def test_waiting_changes_the_order_in_the_middle_of_a_run_of_decodes(kind: str, fast_path: bool) -> None:
    """While 0 answers there is no room for 1, and 2 would fit: it starts with the first iteration after that."""
    late = request(2, [Sized(1, 1)], arrival=MS // 2)
    asked = [request(0, text=40, output=60), request(1, text=60, arrival=MS // 4), late]
    run = serve(asked, OVERTAKING[kind], limits(num_kv_blocks=120, block_size=1), fast_path=fast_path)
    assert run.table.loc[2, "admitted"] == pytest.approx(0.021, abs=1e-9)
    assert run.table.loc[1, "admitted"] == run.table.loc[0, "finish"]


# Shortest encoder work first


def test_less_encoder_work_goes_first_and_text_before_all() -> None:
    asked = [request(0, [Sized(9, 1), Sized(9, 1)]), request(1, [Sized(10, 1)]), request(2)]
    assert order("shortest_encoder_first", *asked) == [2, 1, 0]


def test_cached_outputs_are_no_work() -> None:
    """Request 1's image is 0's, so it comes before 2, whose image is smaller."""
    desk = Desk("shortest_encoder_first", limits(max_num_seqs=1))
    desk.submit(request(0, [Sized(50, 1, "a")]))
    desk.step()
    desk.submit(request(2, [Sized(5, 1)]), request(1, [Sized(50, 1, "a")]))
    assert [r.id for r in desk.draft().admitted] == [1]


def test_work_ages_at_the_rate_that_is_set() -> None:
    """100 tokens more, a second earlier."""
    asked = [request(0, [Sized(101, 1)]), request(1, [Sized(1, 1)], arrival=SECOND)]
    for ageing, expected in ((0, [1, 0]), (99, [1, 0]), (101, [0, 1])):
        assert order(ShortestEncoderFirst(ageing=ageing), *asked, at=SECOND) == expected


def stream_of_small_ones(large: Request, count: int = 200) -> list[Request]:
    """A large request, and small ones that arrive as fast as one server serves them, two of them before it."""
    small = [request(id, [Sized(1, 1)], output=2, arrival=id * 2 * MS) for id in range(1, count)]
    return [request(1000, [Sized(1, 1)], output=4), *small, large]


@pytest.mark.parametrize(
    ("policy", "starves"),
    [
        (ShortestEncoderFirst(ageing=0), True),
        (ShortestEncoderFirst(ageing=1000), False),
        (ModalityClasses(light_max_encoder_tokens=10, heavy=Heavy(weight=0, ageing=0)), True),
        (
            ModalityClasses(
                light_max_encoder_tokens=10,
                light=Light(weight=1, ageing=10),
                heavy=Heavy(weight=0, ageing=20),
            ),
            False,
        ),
    ],
    ids=repr,
)
def test_ageing_keeps_the_large_from_starving(policy: Policy, starves: bool) -> None:
    """A hundred tokens of work are worth 100 ms of waiting; without ageing they wait for the stream to end."""
    large = request(999, [Sized(101, 1)], arrival=1)
    run = serve(stream_of_small_ones(large), policy, limits(max_num_seqs=1))
    passed_by = (run.table["admitted"] < run.table.loc[999, "admitted"]).sum()
    assert (passed_by == 200) if starves else (10 < passed_by < 120)


def test_the_encoder_works_in_the_same_order() -> None:
    """Both are active, 1 has less left: it is encoded first, and prefilled first where the budget is short."""
    desk = Desk("shortest_encoder_first", limits(encoder_max_num_items=1, max_num_batched_tokens=8))
    desk.submit(request(0, [Sized(5, 1), Sized(5, 1)], text=7), request(1, [Sized(6, 1)], text=7))
    assert [desk.step().encode for _ in range(3)] == [((1, 0),), ((0, 0),), ((0, 1),)]


# Modality classes


def test_text_before_light_before_heavy() -> None:
    heavy, light, video = [Sized(5000, 1)], [Sized(2000, 1), Sized(2000, 1)], [Sized(10, 1, modality="video")]
    asked = [request(0, heavy), request(1, video), request(2, light), request(3)]
    assert order("modality_classes", *asked) == [3, 2, 0, 1]


def test_a_class_that_ages_faster_catches_up() -> None:
    """Heavy gains a point a second on text, four points behind: after 4 s it is level, and came first."""
    heavy, text = request(0, [Sized(5000, 1)]), request(1)
    assert order("modality_classes", heavy, text, at=4 * SECOND - 1) == [1, 0]
    assert order("modality_classes", heavy, text, at=4 * SECOND) == [0, 1]
    assert order("modality_classes", text._replace(id=0), heavy._replace(id=1), at=4 * SECOND) == [0, 1]
    assert order("modality_classes", text._replace(id=0), heavy._replace(id=1), at=4 * SECOND + 1) == [1, 0]


@pytest.mark.parametrize("first", ["heavy", "text"])
def test_classes_say_when_they_change_their_minds(first: str) -> None:
    """To the nanosecond: until then the same order, from then on another one."""
    heavy, text = request(0, [Sized(5000, 1)], arrival=7), request(1, arrival=11)
    if first == "text":
        heavy, text = heavy._replace(id=1, arrival=11), text._replace(id=0, arrival=7)
    policy = ModalityClasses()
    desk = Desk(policy, limits(max_num_seqs=1), now=20)
    desk.submit(heavy, text)
    when = policy.stable_until(desk.builder())
    assert order(policy, heavy, text, at=when - 1)[0] == text.id
    assert order(policy, heavy, text, at=when)[0] == heavy.id


def test_a_class_keeps_what_is_not_set() -> None:
    assert ModalityClasses.model_validate({"heavy": {"weight": 1}}).heavy == Heavy(weight=1, ageing=2)


def test_equal_ageing_never_changes_the_order() -> None:
    even = {"weight": 1, "ageing": 1}
    policy = ModalityClasses.model_validate({"text": even, "light": even, "heavy": even})
    desk = Desk(policy, limits(max_num_seqs=1))
    desk.submit(request(0, [Sized(5000, 1)]), request(1))
    assert policy.stable_until(desk.builder()) == FOREVER


# Deadlines


def test_the_earliest_deadline_goes_first() -> None:
    """The long prompt may take 4 s, the short ones that come up to 3 s later go first."""
    short = [request(id, arrival=id * SECOND) for id in (1, 2, 4)]
    assert order("slo_aware", request(0, text=3000), *short, at=4 * SECOND) == [1, 2, 0, 4]


def test_who_is_late_keeps_its_place_or_goes_last() -> None:
    late, punctual = request(0), request(1, arrival=SECOND)
    for choice, expected in (("first", [0, 1]), ("last", [1, 0])):
        policy = SloAware(late=choice)
        assert order(policy, late, punctual, at=SECOND) == [0, 1]
        assert order(policy, late, punctual, at=SECOND + 1) == expected


def test_deadlines_say_when_they_pass() -> None:
    desk = Desk("slo_aware", limits(max_num_seqs=1), now=20)
    desk.submit(request(0, arrival=5), request(1, text=3000, arrival=10))
    assert SloAware().stable_until(desk.builder()) == FOREVER
    assert SloAware(late="last").stable_until(desk.builder()) == 5 + SECOND + 1


def test_a_short_prompt_passes_a_long_one_that_is_being_prefilled() -> None:
    desk = Desk("slo_aware", limits(max_num_batched_tokens=1000))
    desk.submit(request(0, text=3000))
    assert desk.step().prefill == ((0, 1000),)
    desk.submit(request(1, text=600))
    assert desk.step().prefill == ((1, 600), (0, 400))


# Bounded bypass


def test_a_blocked_head_is_skipped() -> None:
    """sglang#22831: the head needs 90 of 80 free KV tokens, the next one 5; without bypass it waits for the head."""
    asked = [request(0, text=20, output=5), request(1, text=90), request(2, text=5)]
    admitted = {}
    for policy in (BoundedBypass(), BoundedBypass(max_bypasses=0)):
        desk = Desk(policy, limits(num_kv_blocks=104, block_size=1))
        desk.submit(*asked)
        admitted[policy.max_bypasses] = [r.id for r in desk.draft().admitted]
    assert admitted == {8: [0, 2], 0: [0]}


def small_ones_around_a_large_one(count: int) -> list[Request]:
    """Two small requests fill half of the KV cache; the large one needs all of it, and more small ones come forever."""
    small = [request(id, text=40, output=10, arrival=id * 4 * MS) for id in range(1, count)]
    return [request(0, text=40, output=10), request(999, text=95, arrival=1), *small]


@pytest.mark.parametrize("most", [0, 1, 3, 8])
def test_no_more_than_so_many_pass(most: int) -> None:
    """Bypasses are requests that came later and started earlier; without a bound this head would wait for all."""
    server = limits(num_kv_blocks=100, block_size=1)
    run = serve(small_ones_around_a_large_one(40), BoundedBypass(max_bypasses=most), server)
    head = run.table.loc[999]
    passed = (run.table["arrival"] > head["arrival"]) & (run.table["admitted"] < head["admitted"])
    assert passed.sum() == run.requests[999].num_overtaken == most


def test_nobody_passes_one_that_has_waited_too_long() -> None:
    server, asked = limits(num_kv_blocks=100, block_size=1), small_ones_around_a_large_one(40)
    free = serve(asked, BoundedBypass(max_bypasses=1000), server)
    bound = serve(asked, BoundedBypass(max_bypasses=1000, max_wait=0.05), server)
    assert free.requests[999].num_overtaken == 39
    head = bound.table.loc[999]
    passed = (bound.table["arrival"] > head["arrival"]) & (bound.table["admitted"] < head["admitted"])
    assert 0 < passed.sum() < 20 and bound.table.loc[passed, "admitted"].max() <= 0.05


def test_rows_and_the_gate_block_as_blocks_do() -> None:
    """Request 1 has no rows beside 0, and 3 no encoder budget left behind 0 and 2."""
    tight = limits(encoder_cache_rows=5, encoder_max_num_items=2, admission_gate=True)
    desk = Desk("bounded_bypass", tight)
    desk.submit(
        request(0, [Sized(1, 2)]), request(1, [Sized(1, 4)]), request(2, [Sized(1, 2)]), request(3, [Sized(1, 1)])
    )
    assert [r.id for r in desk.draft().admitted] == [0, 2]


# Decode first


def test_chunks_fill_what_the_decodes_leave_of_the_chunk_size() -> None:
    desk = Desk(DecodeFirst(chunk_size=10), limits())
    desk.submit(request(0, text=4, output=9), request(1, text=4, output=9))
    assert desk.step().prefill == ((0, 4), (1, 4))
    desk.submit(request(2, text=13), request(3, text=6))
    steps = [desk.step() for _ in range(3)]
    assert [step.prefill for step in steps] == [((2, 8),), ((2, 5), (3, 3)), ((3, 3),)]
    assert all(step.decodes == (0, 1) for step in steps)


def test_a_prompt_that_may_not_be_cut_exceeds_the_chunk_size_only_alone() -> None:
    desk = Desk(DecodeFirst(chunk_size=10), limits(chunked_prefill=False))
    desk.submit(request(0, text=6), request(1, text=15), request(2, text=4), request(3, text=5))
    assert [desk.step().prefill for _ in range(3)] == [((0, 6),), ((1, 15),), ((2, 4), (3, 5))]


def test_no_stall_between_two_tokens_is_longer_than_a_chunk() -> None:
    """The longest iteration of an answer while a long prompt comes in, at 10 us a token."""
    asked = [request(0, text=4, output=60), request(1, text=4000, arrival=MS)]
    gaps = {}
    for policy in ("footprint", DecodeFirst(chunk_size=100)):
        run = serve(asked, policy, limits(), backend=SmallBackend(prefill_token=10_000))
        gaps[isinstance(policy, str)] = run.itl.values[run.itl.weights > 0].max()
    assert gaps == {True: 41 * MS, False: 1 * MS + 99 * 10_000}


# Admission out of turn


def test_admission_takes_anybody_from_the_queue() -> None:
    """And those before it remember; who stands behind was not passed."""
    desk = Desk("fcfs", limits())
    states = desk.submit(*(request(id) for id in range(4)))
    builder = desk.builder()
    assert builder.admit(states[2]) and builder.admit(states[0])
    desk.state.begin(builder.plan)
    assert [r.id for r in desk.state.waiting] == [1, 3]
    assert [r.num_overtaken for r in states] == [1, 1, 0, 0]
    assert [r.order for r in states] == [1, -1, 0, -1]
