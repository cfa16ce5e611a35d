// Axes, scales and tips of plots on a canvas.

const FONT = "11px system-ui, 'Segoe UI', sans-serif";

/** The canvas at the screen's resolution, cleared; sizes are in CSS pixels. */
function sheet(canvas, height) {
  const ratio = window.devicePixelRatio || 1,
    width = canvas.parentElement.clientWidth;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const ink = canvas.getContext("2d");
  ink.setTransform(ratio, 0, 0, ratio, 0, 0);
  ink.clearRect(0, 0, width, height);
  ink.font = FONT;
  return { ink, width, height };
}

/** From data to pixels, and back with `invert`. */
function scale(low, high, from, to, log = false) {
  const place = log ? Math.log : (value) => value;
  const a = place(low),
    b = place(high) === a ? a + 1 : place(high);
  const map = (value) => from + ((place(value) - a) / (b - a)) * (to - from);
  map.invert = (pixel) => {
    const value = a + ((pixel - from) / (to - from)) * (b - a);
    return log ? Math.exp(value) : value;
  };
  return Object.assign(map, { low, high, from, to, log });
}

/** Round numbers along a scale, about `wanted` of them. */
function ticks({ low, high, log }, wanted) {
  if (log) return logTicks(low, high, wanted);
  const rough = (high - low) / wanted,
    power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

function logTicks(low, high, wanted) {
  const decades = Math.log10(high / low),
    steps = decades > wanted ? [1] : decades > wanted / 2.5 ? [1, 3] : [1, 2, 5];
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const step of steps) found.push(step * 10 ** power);
  }
  return found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
}

const plain = (value) => Number(value.toPrecision(6)).toLocaleString("en", { maximumFractionDigits: 6 });

/** Grid and numbers of a horizontal axis whose plot spans `top` to `bottom`. */
function axisX(ink, x, top, bottom, words, shown = plain) {
  ink.textAlign = "center";
  for (const value of ticks(x, Math.max(2, (x.to - x.from) / 80))) {
    rule(ink, x(value), top, x(value), bottom, colour("line"));
    ink.fillStyle = colour("ink");
    ink.fillText(shown(value), x(value), bottom + 14);
  }
  rule(ink, x.from, bottom, x.to, bottom, colour("axis"));
  ink.fillStyle = colour("faint");
  ink.fillText(words, (x.from + x.to) / 2, bottom + 29);
}

/** Grid and numbers of a vertical axis. */
function axisY(ink, y, left, right, wanted = 4, shown = plain) {
  ink.textAlign = "right";
  for (const value of ticks(y, wanted)) {
    rule(ink, left, y(value), right, y(value), colour("line"));
    ink.fillStyle = colour("ink");
    ink.fillText(shown(value), left - 6, y(value) + 4);
  }
}

function rule(ink, x1, y1, x2, y2, style, dashes = [], width = 1) {
  ink.save();
  ink.strokeStyle = style;
  ink.lineWidth = width;
  ink.setLineDash(dashes);
  ink.beginPath();
  ink.moveTo(x1, y1);
  ink.lineTo(x2, y2);
  ink.stroke();
  ink.restore();
}

/** A dashed line at a bound, with words beside it. */
function bound(ink, x1, y1, x2, y2, words) {
  rule(ink, x1, y1, x2, y2, colour("ink"), [5, 3]);
  const upright = x1 === x2,
    [x, y] = upright ? [x1 + 4, y2 - 6] : [x2 - 2, y1 - 4];
  ink.textAlign = upright ? "left" : "right";
  ink.lineJoin = "round";
  ink.lineWidth = 3;
  ink.strokeStyle = colour("paper"); // so that it can be read above data
  ink.strokeText(words, x, y);
  ink.fillStyle = colour("ink");
  ink.fillText(words, x, y);
}

/** Names by colours in one line that ends at `right`. */
function keyLine(ink, entries, right, y) {
  ink.textAlign = "left";
  for (const [words, colourName] of [...entries].reverse()) {
    right -= ink.measureText(words).width;
    ink.fillStyle = colour("faint");
    ink.fillText(words, right, y);
    ink.fillStyle = colour(colourName);
    ink.fillRect(right - 14, y - 8, 10, 9);
    right -= 28;
  }
}

function title(ink, words, x, y, aside = "", right = 0) {
  ink.fillStyle = colour("ink");
  ink.textAlign = "left";
  ink.font = `600 ${FONT.replace("11px", "12px")}`;
  ink.fillText(words, x, y);
  ink.font = FONT;
  if (aside) {
    ink.fillStyle = colour("faint");
    ink.textAlign = "right";
    ink.fillText(aside, right, y);
  }
}

/** Shows `words` beside the pointer, or nothing. */
function tip(canvas, event, words) {
  const box = canvas.parentElement.querySelector(".tip");
  box.hidden = !words;
  if (!words) return;
  box.textContent = words;
  const { x, y } = pointer(canvas, event),
    width = canvas.clientWidth;
  box.style.left = `${x + 14 + box.offsetWidth > width ? Math.max(0, x - 14 - box.offsetWidth) : x + 14}px`;
  box.style.top = `${Math.max(0, y - box.offsetHeight - 8)}px`;
}

function pointer(canvas, event) {
  const place = canvas.getBoundingClientRect();
  return { x: event.clientX - place.left, y: event.clientY - place.top };
}

/** A canvas of its own in a box with a tip. */
function plotBox(label) {
  const canvas = element("canvas", { "aria-label": label });
  return { canvas, box: element("div", { class: "plot" }, canvas, element("div", { class: "tip", hidden: "" })) };
}
