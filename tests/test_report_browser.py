"""The report in a headless Chromium: it loads without errors, zooms, and tells the life of a request."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_report import POOLS, TIGHT, written

from sim.report_data import content
from sim.report_page import page
from sim.report_runs import ReportedRun, read_runs
from sim.token_times import gaps_by_request

selenium = pytest.importorskip("selenium", reason="no selenium")
from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (BROWSER and DRIVER), reason="no chromium and chromium-driver: .ci/run installs them"
)

FLAGS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900", "--hide-scrollbars")
PATIENCE = 60  # seconds, on a busy machine
COUNT_COLOURS = """
const canvas = document.getElementById(arguments[0]), seen = new Set();
const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
pixels.forEach((pixel) => seen.add(pixel));
return seen.size;
"""
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def opened(driver: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens the report of folders; whatever was written to the console by the end is an error."""

    def show(*folders: Path) -> list[ReportedRun]:
        runs = read_runs(folders)
        path = tmp_path / "page.html"
        path.write_text(page(content(runs)), encoding="utf-8")
        driver.get(path.as_uri())
        WebDriverWait(driver, PATIENCE).until(
            lambda d: d.execute_script("return document.documentElement.dataset.ready")
        )
        return runs

    yield show
    assert driver.get_log("browser") == []


def text(driver: Any, id: str) -> str:
    return str(driver.find_element(By.ID, id).text)


def window(driver: Any) -> tuple[float, float]:
    start, end = re.findall(r"([\d.]+) s", text(driver, "window"))
    return float(start), float(end)


def on_timeline(driver: Any, x: float) -> tuple[Any, int]:
    """The canvas, in sight, and the offset from its middle that a share of its width is."""
    canvas = driver.find_element(By.ID, "timeline")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    return canvas, round((x - 0.5) * canvas.size["width"])


def press(driver: Any, by: str, where: str) -> None:
    """In the middle of the window, away from what stays at its top."""
    found = driver.find_element(by, where)
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", found)
    found.click()


def drawn(driver: Any, id: str) -> int:
    """How many colours a canvas shows."""
    return int(driver.execute_script(COUNT_COLOURS, id))


def find(driver: Any, id: int) -> None:
    script = "const f = document.getElementById('find'); f.value = arguments[0]; f.dispatchEvent(new Event('change'))"
    driver.execute_script(script, str(id))


def milliseconds(words: str) -> float:
    found = re.search(r"after ([\d.,]+) ms", words)
    assert found, words
    return float(found[1].replace(",", ""))


def test_all_parts_are_drawn(driver: Any, opened: Open, tmp_path: Path) -> None:
    folders = [written(tmp_path / kind, **{"policy.kind": kind}) for kind in ("fcfs", "footprint")]
    runs = opened(*folders)
    assert "TTFT p99 (ms)" in text(driver, "figures") and f"{runs[0].summary['p99_ttft_ms']:,.1f}" in text(
        driver, "figures"
    )
    assert len(driver.find_elements(By.CSS_SELECTOR, "#cdfs canvas")) == 4
    assert min(drawn(driver, "timeline"), drawn(driver, "requests")) > 10
    assert len(driver.find_elements(By.CSS_SELECTOR, "#legend button")) == 2


def test_dragging_zooms_and_a_double_click_shows_all(driver: Any, opened: Open, tmp_path: Path) -> None:
    opened(written(tmp_path / "run"))
    whole = window(driver)
    canvas, left = on_timeline(driver, 0.3)
    ActionChains(driver).move_to_element_with_offset(canvas, left, 0).click_and_hold().move_by_offset(
        200, 0
    ).release().perform()
    start, end = window(driver)
    width = canvas.size["width"] - 62 - 14  # what timeline.js leaves beside its lanes
    assert start == pytest.approx(whole[1] * (0.3 * canvas.size["width"] - 62) / width, rel=0.02)
    assert end - start == pytest.approx(whole[1] * 200 / width, rel=0.02)
    press(driver, By.ID, "wider")
    assert window(driver)[1] - window(driver)[0] > 1.5 * (end - start)
    ActionChains(driver).move_to_element_with_offset(canvas, 0, 0).double_click().perform()
    assert window(driver) == whole


def test_a_click_on_the_timeline_tells_of_an_iteration(driver: Any, opened: Open, tmp_path: Path) -> None:
    [told] = opened(written(tmp_path / "run"))
    end = float(told.iterations["end"].max())
    busiest = told.iterations.loc[told.iterations["encoder_tokens"].idxmax()]
    share = (busiest["start"] + busiest["end"]) / 2 / end
    canvas = driver.find_element(By.ID, "timeline")
    canvas, offset = on_timeline(driver, (62 + share * (canvas.size["width"] - 76)) / canvas.size["width"])
    ActionChains(driver).move_to_element_with_offset(canvas, offset, 0).click().perform()
    assert text(driver, "iteration").startswith("iteration ")
    asked = [line for line in text(driver, "iteration").splitlines() if line.startswith("Encoder tokens of request")]
    assert asked
    press(driver, By.CSS_SELECTOR, "#iteration button.link")
    assert text(driver, "request").split(",")[0] in asked[0]


@pytest.mark.parametrize("scenario", [TIGHT, POOLS], ids=["one engine", "pools"])
def test_the_life_of_a_request_is_the_runs(driver: Any, opened: Open, tmp_path: Path, scenario: str) -> None:
    """First token and longest gap as the tables and the tokens' times have them."""
    changes = {} if scenario == TIGHT else {"workload.num_requests": 30}
    [told] = opened(written(tmp_path / "run", scenario, **changes))
    ids, gaps = gaps_by_request(_again(scenario, changes))
    for request in told.requests.loc[told.requests["output_tokens"] > 1, "request_id"].head(12):
        find(driver, int(request))
        row = told.requests.set_index("request_id").loc[request]
        assert milliseconds(text(driver, "life-story")) == pytest.approx(row["ttft"] * 1e3, rel=0.006)
        longest = np.max(gaps[ids == request]) / 1e6
        assert milliseconds(text(driver, "gap-story")) == pytest.approx(longest, rel=0.01), request
    assert drawn(driver, "life-bar") > 5 and drawn(driver, "gaps") > 5


def _again(scenario: str, changes: dict[str, Any]) -> Any:
    from sim import run

    return run(scenario, set=changes)


def test_requests_are_picked_from_table_and_plot(driver: Any, opened: Open, tmp_path: Path) -> None:
    [told] = opened(written(tmp_path / "run"))
    press(driver, By.CSS_SELECTOR, "#latest tr.pick")
    slowest = int(told.requests.loc[told.requests["ttft"].idxmax(), "request_id"])
    assert text(driver, "request").startswith(f"{slowest},")
    press(driver, By.XPATH, "//span[@id='measures']/button[text()='E2E']")
    press(driver, By.CSS_SELECTOR, "#latest tr.pick")
    last = int(told.requests.loc[told.requests["e2el"].idxmax(), "request_id"])
    assert text(driver, "request").startswith(f"{last},")
    press(driver, By.XPATH, "//*[text()='Show on the timeline']")
    assert text(driver, "iteration") != ""


def test_light_and_dark_are_other_pixels(driver: Any, opened: Open, tmp_path: Path) -> None:
    opened(written(tmp_path / "run"))
    shots = []
    for _ in range(2):
        body = driver.find_element(By.TAG_NAME, "body")
        shots.append((body.value_of_css_property("background-color"), driver.get_screenshot_as_png()))
        press(driver, By.ID, "theme")
    assert shots[0][0] != shots[1][0] and shots[0][1] != shots[1][1]


def test_odd_runs_are_told_too(driver: Any, opened: Open, tmp_path: Path) -> None:
    stalled = written(tmp_path / "stalled", "scenarios/deadlock.yaml", **{"policy.kind": "fcfs"})
    bare = written(tmp_path / "bare", **{"measure.iterations": False})
    opened(stalled, bare)
    assert "the run is stalled" in text(driver, "notes") and "request 0 waits for" in text(driver, "notes")
    for id in (0, 2):
        find(driver, id)
        assert "It is stalled" in text(driver, "life-story")
    press(driver, By.CSS_SELECTOR, "#legend button:nth-child(2)")
    press(driver, By.CSS_SELECTOR, "#latest tr.pick")
    assert "First token after" in text(driver, "life-story")
