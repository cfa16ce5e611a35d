// What iterations carried over time, and what was occupied: a lane each, drawn for any window.

const LANE = { left: 62, right: 14, height: 62, gap: 26, top: 8, foot: 34 };
const LANES = [
  { title: "What the time goes into", kind: "share" },
  {
    title: "Prefill tokens per iteration",
    column: "num_prefill_tokens",
    colour: "blue",
    limit: "max_num_batched_tokens",
  },
  { title: "Decodes per iteration", column: "num_decodes", colour: "green", limit: "max_num_seqs" },
  {
    title: "Encoder tokens per iteration",
    column: "encoder_tokens",
    colour: "orange",
    limit: "encoder_max_num_tokens",
  },
  { title: "Iteration duration (ms)", column: "duration", colour: "ink", objective: "itl" },
  { title: "KV blocks used", column: "kv_blocks_used", colour: "sky", limit: "num_kv_blocks" },
  { title: "Encoder-cache rows held", column: "encoder_rows_held", colour: "orange", limit: "encoder_cache_rows" },
  { title: "Requests waiting", column: "num_waiting", colour: "vermilion" },
];
const SHARES = [
  ["encode", "orange"],
  ["prefill, with or without decodes", "blue"],
  ["decodes alone", "green"],
  ["host", "grey"],
];

/** Sums over the pixels of a window, by the time that each iteration takes of each. */
function binned(run, engine, [from, to], width) {
  const bins = { busy: new Float64Array(width), shares: SHARES.map(() => new Float64Array(width)), lanes: {} };
  for (const { column } of LANES)
    if (column) bins.lanes[column] = { sum: new Float64Array(width), most: new Float64Array(width) };
  const [first, end] = run.rowsOf(engine),
    { start, taken } = run.rows,
    each = (to - from) / width;
  for (let row = Math.max(first, run.rowAt(engine, from)); row < end && start[row] < to; row++) {
    const begin = Math.max(start[row], from),
      finish = Math.min(start[row] + taken[row], to);
    const last = Math.min(width - 1, Math.floor((finish - from) / each));
    for (let pixel = Math.max(0, Math.floor((begin - from) / each)); pixel <= last; pixel++) {
      const part = Math.min(finish, from + each * (pixel + 1)) - Math.max(begin, from + each * pixel);
      if (part > 0) addTo(bins, run.rows, row, pixel, part);
    }
  }
  return bins;
}

function addTo(bins, rows, row, pixel, part) {
  bins.busy[pixel] += part;
  const encode = rows.encode[row] / rows.taken[row],
    host = rows.host[row] / rows.taken[row],
    rest = Math.max(0, 1 - encode - host);
  const shares = [encode, rows.num_prefill_tokens[row] ? rest : 0, rows.num_prefill_tokens[row] ? 0 : rest, host];
  shares.forEach((share, index) => {
    bins.shares[index][pixel] += share * part;
  });
  for (const column in bins.lanes) {
    const value = column === "duration" ? rows.taken[row] / rows.count[row] / 1e3 : rows[column][row];
    const lane = bins.lanes[column],
      most = column === "duration" ? rows.longest[row] / 1e3 : value;
    lane.sum[pixel] += value * part;
    if (most > lane.most[pixel]) lane.most[pixel] = most;
  }
}

const laneTop = (index) => LANE.top + 16 + index * (LANE.height + LANE.gap);
const timelineHeight = (lanes) => laneTop(lanes.length - 1) + LANE.height + LANE.foot;

/** Draws lanes of a window into a canvas; returns the scale of time. */
function drawLanes(canvas, run, engine, span, lanes) {
  const { ink, width, height } = sheet(canvas, timelineHeight(lanes));
  const x = scale(span[0], span[1], LANE.left, width - LANE.right),
    pixels = Math.max(1, Math.round(x.to - x.from));
  if (!run.numRows) {
    say(ink, "the run kept no iterations (measure.iterations)", width, height);
    return x;
  }
  const bins = binned(run, engine, span, pixels),
    each = (span[1] - span[0]) / pixels;
  lanes.forEach((lane, index) => {
    const top = laneTop(index),
      isLast = index === lanes.length - 1;
    if (lane.kind === "share") shareLane(ink, bins, x, top, each);
    else valueLane(ink, bins, lane, limitOf(run, engine, lane), x, top);
    if (isLast) axisX(ink, scale(span[0] / 1e6, span[1] / 1e6, x.from, x.to), top, top + LANE.height, "time (s)");
    else rule(ink, x.from, top + LANE.height, x.to, top + LANE.height, colour("axis"));
  });
  return x;
}

function shareLane(ink, bins, x, top, each) {
  title(ink, LANES[0].title, x.from, top - 8);
  keyLine(ink, SHARES, x.to, top - 8);
  const heights = new Float64Array(bins.busy.length);
  SHARES.forEach(([, colourName], index) => {
    ink.fillStyle = colour(colourName);
    bins.shares[index].forEach((share, pixel) => {
      const size = (share / each) * LANE.height;
      ink.fillRect(x.from + pixel, top + LANE.height - heights[pixel] - size, 1, size);
      heights[pixel] += size;
    });
  });
  axisY(ink, scale(0, 100, top + LANE.height, top), x.from, x.from, 2, (value) => `${value} %`);
}

/** Solid: means; pale: the largest of each pixel. */
function valueLane(ink, bins, lane, limit, x, top) {
  const { sum, most } = bins.lanes[lane.column],
    highest = most.reduce((a, b) => Math.max(a, b), 0) || 1;
  const near = limit !== null && limit <= highest * 4,
    roof = near ? Math.max(highest, limit) : highest;
  const y = scale(0, roof * 1.08, top + LANE.height, top);
  const aside = limit === null ? "" : `${lane.objective ? "SLO" : "limit"} ${number(limit)}${near ? "" : " (above)"}`;
  title(ink, lane.title, x.from, top - 8, aside, x.to);
  axisY(ink, y, x.from, x.to, 2);
  ink.fillStyle = colour(lane.colour);
  ink.globalAlpha = 0.28;
  most.forEach((value, pixel) => ink.fillRect(x.from + pixel, y(value), 1, y.from - y(value)));
  ink.globalAlpha = 1;
  sum.forEach((value, pixel) => {
    const mean = bins.busy[pixel] ? value / bins.busy[pixel] : 0;
    ink.fillRect(x.from + pixel, y(mean), 1, y.from - y(mean));
  });
  if (near) rule(ink, x.from, y(limit), x.to, y(limit), colour("ink"), [5, 3]);
}

function limitOf(run, engine, { column, limit, objective }) {
  if (objective) return run.objectives.find((one) => one.name === objective)?.bound ?? null;
  const limits = run.limits[engine];
  if (column === "encoder_tokens" && limits.encoder_budget_unit !== "encoder_tokens") return null;
  const value = limit ? limits[limit] : null;
  return typeof value === "number" ? value : null;
}
