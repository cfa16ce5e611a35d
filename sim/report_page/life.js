// One request from its arrival to its last token: what was asked, what it waited for, what the engine did meanwhile.

const STRIPE = { top: 24, height: 22 };
const LIFE_LANES = LANES.slice(0, 1);

class Life {
  constructor(pick, timeline) {
    this.canvas = document.getElementById("life-bar");
    this.gaps = new Gaps(pick, timeline);
  }

  show(run, id) {
    Object.assign(this, { run, id, place: run.placeOf.get(id) });
    document.getElementById("life").hidden = false;
    document.getElementById("request").textContent = `${id}, ${run.label}`;
    this.gaps.show(run, this.place);
    this.drawOwn();
  }

  draw() {
    this.drawOwn();
    this.gaps.draw();
  }

  drawOwn() {
    document.getElementById("life-story").replaceChildren(...this.story());
    this.drawBar();
  }

  moment(name) {
    const after = this.run.requests[name][this.place];
    return after < 0 ? null : this.run.requests.arrival[this.place] + after;
  }

  story() {
    const { run, place } = this;
    const preempted = run.requests.num_preemptions[place];
    const told = [
      element("p", {}, `Arrived at ${seconds(run.requests.arrival[place])}: ${this.asked()}. ${this.ended()}`),
    ];
    if (preempted) told.push(element("p", {}, `It was preempted: ${count(preempted, "time")}.`));
    if (run.ttft(place) >= 0) told.push(this.firstToken());
    return told;
  }

  asked() {
    const { requests } = this.run;
    const [prompt, items, encoder, answer] = ["prompt_tokens", "num_items", "encoder_tokens", "output_tokens"].map(
      (name) => requests[name][this.place],
    );
    const pictures = items ? ` with ${count(items, "item")} of ${number(encoder)} encoder tokens` : "";
    return `${count(prompt, "prompt token")}${pictures}, ${count(answer, "token")} of answer`;
  }

  /** Where it did not end well: how it ended. */
  ended() {
    const { statuses, status, reasons } = this.run.requests;
    const words = statuses[status[this.place]];
    return words === "finished" ? "" : `It is ${words}: ${reasons[this.id] ?? ""}.`;
  }

  /** Where the TTFT went, the largest part first. */
  firstToken() {
    const { run, place } = this,
      { requests } = run,
      ttft = run.ttft(place),
      limit = run.objectives.find((one) => one.name === "ttft")?.bound;
    const verdict =
      limit === undefined
        ? ""
        : ttft > limit * 1e3
          ? `, later than the SLO of ${number(limit)} ms`
          : `, within the SLO of ${number(limit)} ms`;
    const parts = Object.keys(REPORT.parts)
      .filter((part) => requests[part][place] > 0)
      .sort((a, b) => requests[b][place] - requests[a][place]);
    const words = parts.map((part) => `${REPORT.parts[part].split(":")[0]} ${ms(requests[part][place])}`).join(", ");
    return element("p", {}, element("b", {}, `First token after ${ms(ttft)}`), `${verdict}: ${words}.`);
  }

  end() {
    return this.moment("finish") ?? this.run.end;
  }

  engine() {
    const own = [
      ...this.run.rowsShared("prefilling", this.id),
      ...this.gaps.all.map((one) => one.row).filter((row) => row >= 0),
    ];
    return own.length ? this.run.rows.engine[own[0]] : 0;
  }

  /** What happened to it, above what the engine did meanwhile. */
  drawBar() {
    const { run } = this,
      start = run.requests.arrival[this.place],
      span = [start, Math.max(this.end(), start + 1)];
    const margin = (span[1] - span[0]) * 0.01,
      shift = STRIPE.top + STRIPE.height;
    const { ink, width } = sheet(this.canvas, shift + timelineHeight(LIFE_LANES) + 6);
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
    ]
      .map(([words, colourName, spans]) => [words, colourName, spans.filter(([from, to]) => to > from)])
      .filter(([, , spans]) => spans.length);
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
    const { rows } = this.run,
      first = this.moment("first_token") ?? Infinity;
    return this.run
      .rowsShared(which, this.id)
      .filter((row) => rows.start[row] < first)
      .map((row) => {
        const split = rows.start[row] + Math.min(rows.encode[row], rows.taken[row]),
          end = rows.start[row] + rows.taken[row];
        return part === "encode" ? [rows.start[row], split > rows.start[row] ? split : end] : [split, end];
      });
  }

  meanwhile(ink, x, shift, width) {
    if (!this.run.numRows) return;
    const apart = document.createElement("canvas"),
      box = { clientWidth: width };
    Object.defineProperty(apart, "parentElement", { value: box });
    drawLanes(apart, this.run, this.engine(), [x.low, x.high], LIFE_LANES);
    ink.drawImage(apart, 0, shift, width, timelineHeight(LIFE_LANES));
  }
}
