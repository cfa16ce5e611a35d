// Distributions of TTFT, ITL, TPOT and E2E, or their tails; the percentile under the pointer is read off.

const CDF = { left: 44, right: 12, top: 24, bottom: 36, height: 230 };
let tailOnly = false;

function showCdfs(runs) {
  choice(
    document.getElementById("tail"),
    [
      [false, "All"],
      [true, "Slowest fifth"],
    ],
    tailOnly,
    (value) => {
      tailOnly = value;
      showCdfs(runs);
    },
  );
  const boxes = Object.entries(REPORT.latencies).map(([name, words]) => cdfPlot(runs, name, words));
  document.getElementById("cdfs").replaceChildren(...boxes.map(({ box }) => box));
  for (const { draw } of boxes) draw();
}

function cdfPlot(runs, name, words) {
  const { canvas, box } = plotBox(words),
    some = runs.filter((run) => run.cdfs[name][0].length);
  canvas.addEventListener("mousemove", (event) => tip(canvas, event, readOff(canvas, event, some, name)));
  canvas.addEventListener("mouseleave", (event) => tip(canvas, event, ""));
  return { box, draw: () => drawCdf(canvas, some, name, words) };
}

/** Linear, or logarithmic where the latencies differ much. */
function cdfScales(width, some, name) {
  const [floor, roof] = tailOnly ? [0.8, 1] : [0, 1];
  const lows = some.map((run) => quantile(run.cdfs[name], Math.max(floor, 0.005))),
    highs = some.map((run) => run.cdfs[name][0].at(-1));
  let low = Math.min(...lows),
    high = Math.max(...highs);
  const log = low > 0 && high / low > 20;
  if (log) [low, high] = [low / 1.15, high * 1.15];
  else [low, high] = [low < high / 3 ? 0 : low * 0.98, high * 1.04 || 1];
  const x = scale(low, high, CDF.left, width - CDF.right, log);
  return { x, y: scale(floor, roof + (roof - floor) * 0.02, CDF.height - CDF.bottom, CDF.top) };
}

function drawCdf(canvas, some, name, words) {
  const { ink, width, height } = sheet(canvas, CDF.height);
  title(ink, words, CDF.left, 14, `share of ${name === "itl" ? "gaps" : "requests"} at or below`, width - CDF.right);
  if (!some.length) return say(ink, "nothing to show", width, height);
  const { x, y } = cdfScales(width, some, name);
  axisX(ink, x, CDF.top, height - CDF.bottom, "ms");
  axisY(ink, y, CDF.left, width - CDF.right, 5);
  ink.save();
  ink.beginPath();
  ink.rect(CDF.left, CDF.top - 2, width - CDF.left - CDF.right, height - CDF.top - CDF.bottom + 3);
  ink.clip();
  some.forEach((run, place) => curve(ink, run, run.cdfs[name], x, y, some.length - place));
  ink.restore();
  for (const at of new Set(
    some.flatMap((run) => run.objectives.filter((one) => one.name === name).map((one) => one.bound)),
  )) {
    if (at >= x.low && at <= x.high) bound(ink, x(at), CDF.top, x(at), height - CDF.bottom, `SLO ${number(at)}`);
  }
}

function say(ink, words, width, height) {
  ink.fillStyle = colour("faint");
  ink.textAlign = "center";
  ink.fillText(words, width / 2, height / 2);
}

/** Steps; earlier runs are wider and lie below, so that those that cover each other all show. */
function curve(ink, run, [values, shares], x, y, above) {
  ink.strokeStyle = colour(run.colour);
  ink.lineWidth = 1.2 + 0.5 * Math.min(above, 4);
  ink.setLineDash(run.dashes);
  ink.beginPath();
  ink.moveTo(x(Math.max(values[0], x.low)), y(shares[0]));
  for (let i = 1; i < values.length; i++) {
    ink.lineTo(x(Math.max(values[i], x.low)), y(shares[i - 1]));
    ink.lineTo(x(Math.max(values[i], x.low)), y(shares[i]));
  }
  ink.stroke();
  ink.setLineDash([]);
}

const quantile = ([values, shares], share) => values[Math.min(values.length - 1, lastAtMost(shares, share) + 1)];

function readOff(canvas, event, some, name) {
  if (!some.length) return "";
  const { y } = cdfScales(canvas.clientWidth, some, name),
    share = y.invert(pointer(canvas, event).y);
  if (share < y.low || share > 1) return "";
  return [
    `p${(share * 100).toFixed(1)}`,
    ...some.map((run) => `${run.label}: ${number(quantile(run.cdfs[name], share))} ms`),
  ].join("\n");
}
