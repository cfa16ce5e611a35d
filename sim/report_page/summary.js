// Who kept the objectives, and all figures side by side.

const NAMES = { ttft: "TTFT", tpot: "TPOT", itl: "ITL", e2el: "E2E" };

function showSummary(runs) {
  document.getElementById("sources").replaceChildren(...sources(runs));
  document.getElementById("objectives").replaceChildren(...runs.flatMap(objectivesOf), ...runs.flatMap(notesOf));
  const [heading, ...others] = REPORT.table;
  document.getElementById("figures").replaceChildren(...table([heading[0], ...heading[1]], others.map(([name, cells]) => [name, ...cells])));
  document.getElementById("published").replaceChildren(...REPORT.published.flatMap(publication));
}

function sources(runs) {
  return [...new Set(runs.map((run) => run.source))].map((source) => element("div", {}, source));
}

function objectivesOf(run) {
  const heading = element("h3", {}, swatch(run.colour), run.label, run.verdict === "finished" ? "" : element("span", { class: "warn" }, ` ${run.verdict}`));
  if (!run.objectives.length) return [heading, element("p", { class: "hint" }, "The scenario has no objectives (slo).")];
  const bars = run.objectives.map(({ name, bound, share }) => bar(`${NAMES[name]} ≤ ${number(bound)} ms`, share, run.colour));
  if (run.attainment !== null) bars.push(bar("all but ITL together", run.attainment, run.colour));
  return [heading, ...bars];
}

/** ITL counts gaps, everything else requests. */
function bar(words, share, colourName) {
  const filled = element("div", { style: `width:${(share ?? 0) * 100}%;background:var(--${colourName})` });
  return element("div", { class: "objective" }, words, element("div", { class: "track" }, filled), element("span", { class: "number" }, percent(share)));
}

function notesOf(run) {
  const blocked = Object.entries(run.blockers).map(([id, reason]) => `request ${id} ${reason}`);
  return [...run.notes, ...blocked].map((note) => element("div", { class: "hint" }, `${run.label}: ${note}`));
}

/** Head and body; the first cell of a line is its name. */
function table(heading, lines) {
  const cells = (tag, line) => line.map((cell) => element(tag, {}, cell));
  const body = lines.map((line) => element("tr", {}, ...cells("td", line)));
  return [element("thead", {}, element("tr", {}, ...cells("th", heading))), element("tbody", {}, ...body)];
}

function publication({ title: words, heading, rows }) {
  return [element("h3", {}, `Published: ${words}`), element("div", { class: "wide" }, element("table", {}, ...table(heading, rows)))];
}
