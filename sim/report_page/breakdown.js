// The mean parts of the TTFT, and what shared the iterations of late tokens: one bar a run.

function showBreakdown(runs) {
  const total = (run) => Object.values(run.parts).reduce((sum, part) => sum + part, 0);
  const most = Math.max(...runs.map(total), 1e-9);
  const used = Object.keys(REPORT.parts).filter((part) => runs.some((run) => run.parts[part] > 0));
  const bars = runs.map((run) =>
    stacked(
      run,
      used.map((part) => [REPORT.parts[part], PART_COLOURS[part], run.parts[part]]),
      most,
      "ms",
    ),
  );
  document
    .getElementById("parts")
    .replaceChildren(...bars, key(used.map((part) => [REPORT.parts[part], PART_COLOURS[part]])));
}

function showLate(runs, pick) {
  document.getElementById("late").replaceChildren(...runs.map((run) => lateOf(run, pick)));
}

/** [name, colour, amount] as one bar, as long as its sum is of `most`. */
function stacked(run, parts, most, unit) {
  const sum = parts.reduce((before, [, , amount]) => before + amount, 0);
  return element(
    "div",
    { class: "objective" },
    element("span", {}, swatch(run.colour), run.label),
    track(parts, most, unit),
    element("span", { class: "number" }, `${number(sum)} ${unit}`),
  );
}

function track(parts, most, unit) {
  const pieces = parts.map(([name, colourName, amount]) =>
    element("div", {
      style: `width:${(amount / most) * 100}%;background:var(--${colourName})`,
      title: `${name}: ${number(amount)} ${unit}`,
    }),
  );
  return element("div", { class: "track stack" }, ...pieces);
}

function lateOf(run, pick) {
  const { bound: limit, objective, causes, culprits } = run.late,
    parts = Object.entries(causes);
  const sum = parts.reduce((before, [, gaps]) => before + gaps, 0);
  const heading = element("h3", { style: "margin-top:0" }, swatch(run.colour), run.label);
  if (!sum)
    return element(
      "div",
      {},
      heading,
      element("p", { class: "hint" }, limit === null ? "No gap is known." : `No gap longer than ${number(limit)} ms.`),
    );
  const what = objective ? "the ITL SLO" : "the 99th percentile";
  const which = `${count(sum, "gap")} longer than ${number(limit)} ms (${what})`;
  const words = `${which}, by what shared the iteration with the decodes:`;
  const bars = track(
    parts.map(([cause, gaps]) => [cause, CAUSES[cause], gaps]),
    sum,
    "gaps",
  );
  return element(
    "div",
    {},
    heading,
    element("p", { class: "hint" }, words),
    bars,
    key(parts.filter(([, gaps]) => gaps).map(([cause, gaps]) => [`${cause}: ${number(gaps)}`, CAUSES[cause]])),
    culpritsTable(run, culprits, pick),
  );
}

function culpritsTable(run, culprits, pick) {
  if (!culprits.length) return "";
  const lines = culprits.map(({ request, encoding, prefilling }) => {
    const [head, body] = [request, [encoding, prefilling].map(number)];
    return element(
      "tr",
      { class: "pick", onclick: () => pick(run.index, head) },
      element("td", {}, String(head)),
      ...body.map((cell) => element("td", {}, cell)),
    );
  });
  const heading = ["for request", "gaps beside its encoding", "beside its prefill"].map((words) =>
    element("th", {}, words),
  );
  return element(
    "table",
    { style: "margin-top:8px" },
    element("thead", {}, element("tr", {}, ...heading)),
    element("tbody", {}, ...lines),
  );
}
