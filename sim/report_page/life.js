// One request from its arrival to its last token: what it waited for, and why a token was late.

const GAPS = { left: 62, right: 14, top: 18, bottom: 36, height: 190 };
const STRIPE = { top: 24, height: 22 };
const LIFE_LANES = LANES.slice(0, 1);

class Life {
  constructor(pick, timeline) {
    this.pick = pick;
    this.timeline = timeline;
    this.bar = document.getElementById("life-bar");
    this.gapsCanvas = document.getElementById("gaps");
    this.gapsCanvas.addEventListener("mousemove", (event) => this.hover(event));
    this.gapsCanvas.addEventListener("mouseleave", (event) => tip(this.gapsCanvas, event, ""));
    this.gapsCanvas.addEventListener("click", (event) => this.click(event));
  }

  show(run, id) {
    Object.assign(this, { run, id, place: run.placeOf.get(id) });
    document.getElementById("life").hidden = false;
    document.getElementById("request").textContent = `${id}, ${run.label}`;
    const tokens = run.tokens(this.place);
    this.gaps = tokens.slice(1).map((token, index) => ({ ...token, gap: token.time - tokens[index].time, number: index + 2 }));
    this.told = this.gaps.reduce((worst, one) => (!worst || one.gap > worst.gap ? one : worst), null);
    this.draw();
  }

  draw() {
    document.getElementById("life-story").replaceChildren(...this.story());
    this.drawBar();
    this.drawGaps();
    document.getElementById("gap-story").replaceChildren(...this.gapStory());
  }

  moment(name) {
    const after = this.run.requests[name][this.place];
    return after < 0 ? null : this.run.requests.arrival[this.place] + after;
  }

  story() {
    const { run, place } = this, { requests } = run, items = requests.num_items[place], status = requests.statuses[requests.status[place]];
    const asked = `${count(requests.prompt_tokens[place], "prompt token")}${items ? ` with ${count(items, "item")} of ${number(requests.encoder_tokens[place])} encoder tokens` : ""}, ${count(requests.output_tokens[place], "token")} of answer`;
    const told = [element("p", {}, `Arrived at ${seconds(requests.arrival[place])}: ${asked}. ${status === "finished" ? "" : `It is ${status}: ${requests.reasons[this.id] ?? ""}.`}`)];
    if (requests.num_preemptions[place]) told.push(element("p", {}, `It was preempted: ${count(requests.num_preemptions[place], "time")}.`));
    if (run.ttft(place) >= 0) told.push(this.firstToken());
    return told;
  }

  /** Where the TTFT went, the largest part first. */
  firstToken() {
    const { run, place } = this, { requests } = run, ttft = run.ttft(place), limit = run.objectives.find((one) => one.name === "ttft")?.bound;
    const verdict = limit === undefined ? "" : ttft > limit * 1e3 ? `, later than the SLO of ${number(limit)} ms` : `, within the SLO of ${number(limit)} ms`;
    const parts = Object.keys(REPORT.parts).filter((part) => requests[part][place] > 0).sort((a, b) => requests[b][place] - requests[a][place]);
    const words = parts.map((part) => `${REPORT.parts[part].split(":")[0]} ${ms(requests[part][place])}`).join(", ");
    return element("p", {}, element("b", {}, `First token after ${ms(ttft)}`), `${verdict}: ${words}.`);
  }

  end() {
    return this.moment("finish") ?? this.run.end;
  }

  engine() {
    const own = [...this.run.rowsShared("prefilling", this.id), ...this.gaps.map((one) => one.row).filter((row) => row >= 0)];
    return own.length ? this.run.rows.engine[own[0]] : 0;
  }

  /** What happened to it, above what the engine did meanwhile. */
  drawBar() {
    const { run } = this, start = run.requests.arrival[this.place], span = [start, Math.max(this.end(), start + 1)];
    const margin = (span[1] - span[0]) * 0.01, shift = STRIPE.top + STRIPE.height;
    const { ink, width } = sheet(this.bar, shift + timelineHeight(LIFE_LANES) + 6);
    const x = scale(span[0] - margin, span[1] + margin, LANE.left, width - LANE.right);
    this.stripes(ink, x, span);
    this.meanwhile(ink, x, shift, width);
  }

  stripes(ink, x, [start, end]) {
    const own = [
      ["preparation", "grey", [[start, this.moment("prepared") ?? end]]],
      ["queue", "dark-grey", [[this.moment("prepared") ?? end, this.moment("admitted") ?? end]]],
      ["waiting", "sand", [[this.moment("admitted") ?? end, this.moment("first_token") ?? end]]],
      ["own encoding", "orange", this.spans("encoding", "encode")],
      ["own prefill", "blue", this.spans("prefilling")],
      ["decoding", "green", [[this.moment("first_token") ?? end, end]]],
    ].map(([words, colourName, spans]) => [words, colourName, spans.filter(([from, to]) => to > from)]).filter(([, , spans]) => spans.length);
    let left = x.from;
    for (const [words, colourName, spans] of own) {
      ink.fillStyle = colour(colourName);
      for (const [from, to] of spans) ink.fillRect(x(from), STRIPE.top, Math.max(1, x(to) - x(from)), STRIPE.height);
      ink.fillRect(left, 6, 10, 9);
      ink.fillStyle = colour("faint");
      ink.textAlign = "left";
      ink.fillText(words, left + 14, 14);
      left += ink.measureText(words).width + 30;
    }
  }

  /** Its own iterations before the first token; `part` of each, or all that is not encoding. */
  spans(which, part) {
    const { rows } = this.run, first = this.moment("first_token") ?? Infinity;
    return this.run.rowsShared(which, this.id).filter((row) => rows.start[row] < first).map((row) => {
      const split = rows.start[row] + Math.min(rows.encode[row], rows.taken[row]), end = rows.start[row] + rows.taken[row];
      return part === "encode" ? [rows.start[row], split > rows.start[row] ? split : end] : [split, end];
    });
  }

  meanwhile(ink, x, shift, width) {
    if (!this.run.numRows) return;
    const apart = document.createElement("canvas"), box = { clientWidth: width };
    Object.defineProperty(apart, "parentElement", { value: box });
    drawLanes(apart, this.run, this.engine(), [x.low, x.high], LIFE_LANES);
    ink.drawImage(apart, 0, shift, width, timelineHeight(LIFE_LANES));
  }

  drawGaps() {
    const { ink, width, height } = sheet(this.gapsCanvas, GAPS.height);
    if (!this.gaps.length) return say(ink, this.run.segments.request ? "no second token" : "the times of its tokens are not known", width, height);
    const limit = this.run.objectives.find((one) => one.name === "itl")?.bound ?? null, most = this.told.gap / 1e3;
    const start = this.gaps[0].time - this.gaps[0].gap;
    this.x = scale(start / 1e6, this.gaps.at(-1).time / 1e6, GAPS.left, width - GAPS.right);
    this.y = scale(0, (limit !== null && limit < most * 3 ? Math.max(limit, most) : most) * 1.1, height - GAPS.bottom, GAPS.top);
    axisX(ink, this.x, GAPS.top, height - GAPS.bottom, "time (s)");
    axisY(ink, this.y, GAPS.left, width - GAPS.right);
    this.legend(ink, width);
    for (const one of this.gaps) this.stem(ink, one);
    if (limit !== null && limit < this.y.high) bound(ink, this.x.from, this.y(limit), this.x.to, this.y(limit), `SLO ${number(limit)} ms`);
  }

  legend(ink, width) {
    ink.fillStyle = colour("faint");
    ink.textAlign = "left";
    ink.fillText("gap (ms), by what shared its iteration", GAPS.left, 11);
    keyLine(ink, Object.entries(CAUSES), width - GAPS.right, 11);
  }

  stem(ink, one) {
    const at = this.x(one.time / 1e6), top = this.y(one.gap / 1e3);
    const style = colour(this.colourOf(one));
    rule(ink, at, this.y.from, at, top, style, [], one === this.told ? 3 : 1.6);
    if (one !== this.told) return;
    ink.fillStyle = style;
    ink.beginPath();
    ink.arc(at, top, 4, 0, 7);
    ink.fill();
  }

  colourOf(one) {
    return one.row < 0 ? "purple" : CAUSES[this.run.cause(one.row)];
  }

  /** Why the chosen token came when it came. */
  gapStory() {
    const one = this.told, { run } = this;
    if (!one) return [];
    const sorted = this.gaps.map(({ gap }) => gap).sort((a, b) => a - b), median = sorted[sorted.length >> 1];
    const words = `Token ${number(one.number)} came after ${ms(one.gap)}; half of its gaps are at most ${ms(median)}.`;
    if (one.row < 0) return [element("p", {}, element("b", {}, words), " It came from a prefill again, after a preemption.")];
    const reasons = { "encode": "its iteration encoded items", "prefill": "its iteration prefilled prompts", "encode and prefill": "its iteration encoded items and prefilled prompts", "decodes alone": "its iteration only decoded" };
    const pauses = one.gap > run.rows.taken[one.row] / run.rows.count[one.row] * 1.5 ? " Part of the gap went by before that iteration." : "";
    const show = element("button", { type: "button", onclick: () => this.seek(one) }, "Show on the timeline");
    return [element("p", {}, element("b", {}, words), ` Why: ${reasons[run.cause(one.row)]}.${pauses} `, show), ...iterationStory(run, one.row, this.pick)];
  }

  seek({ row }) {
    const { rows } = this.run, around = Math.max(rows.taken[row] * 6, 1e5), { timeline } = this;
    timeline.engine = rows.engine[row];
    timeline.look(rows.start[row] - around, rows.start[row] + rows.taken[row] + around);
    timeline.choose(row);
    document.getElementById("over-time").scrollIntoView({ block: "start" });
  }

  nearest(event) {
    if (!this.gaps?.length) return null;
    const time = this.x.invert(pointer(this.gapsCanvas, event).x) * 1e6;
    return this.gaps.reduce((best, one) => (Math.abs(one.time - time) < Math.abs(best.time - time) ? one : best));
  }

  hover(event) {
    const one = this.nearest(event);
    tip(this.gapsCanvas, event, one ? `token ${one.number}: ${ms(one.gap)}\n${one.row < 0 ? "after a preemption" : this.run.cause(one.row)}` : "");
  }

  click(event) {
    const one = this.nearest(event);
    if (!one) return;
    this.told = one;
    this.draw();
  }
}
