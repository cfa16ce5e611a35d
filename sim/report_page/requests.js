// All requests of a run by their arrival: click one to see its life.

const SCATTER = { left: 62, right: 14, top: 16, bottom: 36, height: 300 };
const MEASURES = [
  ["ttft", "TTFT"],
  ["e2el", "E2E"],
  ["worstGap", "Longest gap"],
];
const MOST_LISTED = 10;

class Requests {
  constructor(canvas, pick) {
    this.canvas = canvas;
    this.pick = pick;
    this.measure = "ttft";
    canvas.addEventListener("mousemove", (event) => this.hover(event));
    canvas.addEventListener("mouseleave", (event) => tip(canvas, event, ""));
    canvas.addEventListener("click", (event) => this.click(event));
    document.getElementById("find").addEventListener("change", (event) => {
      const id = Number(event.target.value);
      if (event.target.value !== "" && this.run.placeOf.has(id)) pick(this.run.index, id);
    });
  }

  show(run, chosen) {
    this.run = run;
    this.chosen = chosen;
    this.draw();
  }

  /** The objective of the measure, in microseconds. */
  get limit() {
    const name = this.measure === "worstGap" ? "itl" : this.measure;
    const found = this.run.objectives.find((one) => one.name === name);
    return found ? found.bound * 1e3 : null;
  }

  values() {
    return Array.from({ length: this.run.size }, (_, place) => this.run[this.measure](place));
  }

  draw() {
    choice(document.getElementById("measures"), MEASURES, this.measure, (value) => {
      this.measure = value;
      this.draw();
    });
    const values = this.values(),
      some = values.filter((value) => value > 0);
    const { ink, width, height } = sheet(this.canvas, SCATTER.height);
    this.list(values);
    if (!some.length) return say(ink, "nothing to show", width, height);
    const extent = (pick, start) => some.reduce((a, b) => pick(a, b), start);
    const low = extent(Math.min, Infinity),
      high = extent(Math.max, 0),
      log = high / low > 20;
    this.y = scale(
      log ? low / 1.2 / 1e3 : 0,
      (high / 1e3) * (log ? 1.2 : 1.05),
      height - SCATTER.bottom,
      SCATTER.top,
      log,
    );
    this.x = scale(0, this.run.end / 1e6, SCATTER.left, width - SCATTER.right);
    axisX(ink, this.x, SCATTER.top, height - SCATTER.bottom, "arrival (s)");
    axisY(ink, this.y, SCATTER.left, width - SCATTER.right, 6);
    ink.textAlign = "left";
    ink.fillStyle = colour("faint");
    ink.fillText(`${MEASURES.find(([name]) => name === this.measure)[1]} (ms)`, SCATTER.left, 10);
    this.points(ink, values);
    const limit = this.limit === null ? null : this.limit / 1e3;
    if (limit !== null && limit > this.y.low && limit < this.y.high)
      bound(ink, this.x.from, this.y(limit), this.x.to, this.y(limit), `SLO ${number(limit)} ms`);
  }

  points(ink, values) {
    const { run, limit } = this,
      good = colour("blue"),
      bad = colour("vermilion");
    const radius = run.size > 3000 ? 1.6 : 2.4;
    ink.globalAlpha = run.size > 3000 ? 0.55 : 0.8;
    values.forEach((value, place) => {
      if (value <= 0) return;
      ink.fillStyle = limit !== null && value > limit ? bad : good;
      ink.beginPath();
      ink.arc(this.x(run.requests.arrival[place] / 1e6), this.y(value / 1e3), radius, 0, 7);
      ink.fill();
    });
    ink.globalAlpha = 1;
    const place = run.placeOf.get(this.chosen);
    if (place === undefined || values[place] <= 0) return;
    ink.strokeStyle = colour("ink");
    ink.lineWidth = 2;
    ink.beginPath();
    ink.arc(this.x(run.requests.arrival[place] / 1e6), this.y(values[place] / 1e3), 6, 0, 7);
    ink.stroke();
  }

  /** The latest requests, and what they waited for most. */
  list(values) {
    const { run } = this,
      places = values.map((_, place) => place).filter((place) => values[place] > 0);
    places.sort((a, b) => values[b] - values[a] || a - b);
    const lines = places.slice(0, MOST_LISTED).map((place) => {
      const id = run.requests.id[place],
        cells = [String(id), ms(values[place]), number(run.requests.num_items[place]), mostOf(run, place)];
      const style = id === this.chosen ? "pick chosen" : "pick";
      return element(
        "tr",
        { class: style, onclick: () => this.pick(run.index, id) },
        ...cells.map((cell, index) => element("td", index === 3 ? { class: "text" } : {}, cell)),
      );
    });
    const words = ["request", MEASURES.find(([name]) => name === this.measure)[1], "items", "TTFT went mostly into"];
    const heading = words.map((word, index) => element("th", index === 3 ? { class: "text" } : {}, word));
    document
      .getElementById("latest")
      .replaceChildren(element("thead", {}, element("tr", {}, ...heading)), element("tbody", {}, ...lines));
  }

  nearest(event) {
    if (!this.x) return null;
    const { x, y } = pointer(this.canvas, event);
    let best = null,
      least = 14 ** 2;
    this.values().forEach((value, place) => {
      if (value <= 0) return;
      const away = (this.x(this.run.requests.arrival[place] / 1e6) - x) ** 2 + (this.y(value / 1e3) - y) ** 2;
      if (away < least) [best, least] = [place, away];
    });
    return best;
  }

  hover(event) {
    const place = this.nearest(event);
    tip(this.canvas, event, place === null ? "" : this.inWords(place));
  }

  inWords(place) {
    const { run } = this;
    const latencies = `TTFT ${ms(run.ttft(place))}, E2E ${ms(run.e2el(place))}`;
    const items = `${count(run.requests.num_items[place], "item")}, mostly ${mostOf(run, place)}`;
    return [`request ${run.requests.id[place]}`, latencies, items].join("\n");
  }

  click(event) {
    const place = this.nearest(event);
    if (place !== null) this.pick(this.run.index, this.run.requests.id[place]);
  }
}

/** The largest part of a request's TTFT. */
function mostOf(run, place) {
  const parts = Object.keys(REPORT.parts);
  return REPORT.parts[
    parts.reduce((best, part) => (run.requests[part][place] > run.requests[best][place] ? part : best))
  ].split(":")[0];
}
