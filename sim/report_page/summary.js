// Who kept the objectives, and all figures side by side.

const NAMES = { ttft: "TTFT", tpot: "TPOT", itl: "ITL", e2el: "E2E" };

function showSummary(runs) {
  document.getElementById("sources").replaceChildren(...sources(runs));
  document.getElementById("objectives").replaceChildren(...objectives(runs), notes(runs));
  const [heading, ...others] = REPORT.table;
  document.getElementById("figures").replaceChildren(
    ...table(
      [heading[0], ...heading[1]],
      others.map(([name, cells]) => [name, ...cells]),
    ),
  );
  document.getElementById("published").replaceChildren(...REPORT.published.flatMap(publication));
}

function sources(runs) {
  return [...new Set(runs.map((run) => run.source))].map((source) => element("div", {}, source));
}

/** Each objective with a bar a run: the share that keeps it. */
function objectives(runs) {
  const bars = new Map();
  for (const run of runs) {
    for (const [words, share] of sharesOf(run)) bars.set(words, [...(bars.get(words) ?? []), bar(run, share)]);
  }
  if (!bars.size) return [element("p", { class: "hint" }, "The scenario has no objectives (slo).")];
  return [...bars].flatMap(([words, some]) => [element("h3", {}, words), ...some]);
}

function sharesOf(run) {
  const told = run.objectives.map(({ name, bound, share }) => [
    `${NAMES[name]} ≤ ${number(bound)} ms, of all ${name === "itl" ? "gaps" : "requests"}`,
    share,
  ]);
  return run.attainment === null ? told : [...told, ["Every objective but the ITL's", run.attainment]];
}

function bar(run, share) {
  const filled = element("div", { style: `width:${(share ?? 0) * 100}%;background:var(--${run.colour})` });
  return element(
    "div",
    { class: "objective" },
    element("span", {}, swatch(run.colour), run.label),
    element("div", { class: "track" }, filled),
    element("span", { class: "number" }, percent(share)),
  );
}

/** What else there is to know; what is true of all runs is said once. */
function notes(runs) {
  const told = new Map();
  for (const run of runs) {
    const blocked = Object.entries(run.blockers).map(([id, reason]) => `request ${id} ${reason}`);
    const ended = run.verdict === "finished" ? [] : [`the run is ${run.verdict}`];
    for (const note of [...ended, ...run.notes, ...blocked]) told.set(note, [...(told.get(note) ?? []), run.label]);
  }
  const whose = (labels) => (labels.length === runs.length ? "" : `${labels.join(", ")}: `);
  return element(
    "div",
    { id: "notes" },
    ...[...told].map(([note, labels]) => element("p", { class: "hint" }, whose(labels) + note)),
  );
}

/** Head and body; the first cell of a line is its name. */
function table(heading, lines) {
  const cells = (tag, line) => line.map((cell) => element(tag, {}, cell));
  const body = lines.map((line) => element("tr", {}, ...cells("td", line)));
  return [element("thead", {}, element("tr", {}, ...cells("th", heading))), element("tbody", {}, ...body)];
}

function publication({ title: words, heading, rows }) {
  return [
    element("h3", {}, `Published: ${words}`),
    element("div", { class: "wide" }, element("table", {}, ...table(heading, rows))),
  ];
}
