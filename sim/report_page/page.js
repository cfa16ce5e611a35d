// Puts the page together: which run and which request are looked at, light and dark.

const page = { runs: [], run: null, request: null };

async function start() {
  applyTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  page.runs = await Promise.all(REPORT.runs.map((told, index) => RunModel.of(told, index)));
  page.timeline = new Timeline(document.getElementById("timeline"), showIteration);
  page.requests = new Requests(document.getElementById("requests"), pickRequest);
  page.life = new Life(pickRequest, page.timeline);
  showSummary(page.runs);
  drawAll();
  choose(0);
  document.getElementById("theme").addEventListener("click", () => {
    applyTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    redraw();
  });
  let waiting = 0;
  window.addEventListener("resize", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(redraw);
  });
  document.documentElement.dataset.ready = "true";
}

function applyTheme(theme) {
  document.documentElement.dataset.theme = theme;
  document.getElementById("theme").textContent = theme === "dark" ? "Light" : "Dark";
}

function drawAll() {
  showCdfs(page.runs);
  showBreakdown(page.runs);
  showLate(page.runs, pickRequest);
}

function redraw() {
  drawAll();
  page.timeline.draw();
  page.requests.draw();
  if (page.request !== null) page.life.draw();
}

/** The run that timeline and requests are of. */
function choose(index) {
  page.run = page.runs[index];
  page.request = null;
  const options = page.runs.map((run) => [run.index, element("span", {}, swatch(run.colour), run.label)]);
  choice(document.getElementById("legend"), options, index, choose);
  for (const place of document.querySelectorAll(".of-run"))
    place.textContent = page.runs.length > 1 ? `of ${page.run.label}` : "";
  document.getElementById("life").hidden = true;
  document.getElementById("iteration").replaceChildren();
  page.timeline.show(page.run);
  page.requests.show(page.run, null);
}

function pickRequest(index, id) {
  if (page.run.index !== index) choose(index);
  page.request = id;
  document.getElementById("find").value = id;
  page.requests.show(page.run, id);
  page.life.show(page.run, id);
  document.getElementById("life").scrollIntoView({ block: "nearest" });
}

function showIteration(row) {
  document.getElementById("iteration").replaceChildren(...iterationStory(page.run, row, pickRequest));
}

await start();
