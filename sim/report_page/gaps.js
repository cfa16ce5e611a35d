// The gaps between one request's tokens, and why a token was late.

const GAPS = { left: 62, right: 14, top: 18, bottom: 36, height: 190 };
const REASONS = {
  encode: "its iteration encoded items",
  prefill: "its iteration prefilled prompts",
  "encode and prefill": "its iteration encoded items and prefilled prompts",
  "decodes alone": "its iteration only decoded",
};

class Gaps {
  constructor(pick, timeline) {
    this.pick = pick;
    this.timeline = timeline;
    this.canvas = document.getElementById("gaps");
    this.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.canvas.addEventListener("mouseleave", (event) => tip(this.canvas, event, ""));
    this.canvas.addEventListener("click", (event) => this.click(event));
  }

  /** Of a request, told of its longest. */
  show(run, place) {
    const tokens = run.tokens(place);
    this.run = run;
    this.all = tokens
      .slice(1)
      .map((token, index) => ({ ...token, gap: token.time - tokens[index].time, number: index + 2 }));
    this.longest = this.all.reduce((worst, one) => (!worst || one.gap > worst.gap ? one : worst), null);
    this.told = this.longest;
    this.draw();
  }

  draw() {
    this.plot();
    document.getElementById("gap-story").replaceChildren(...this.story());
  }

  plot() {
    const { ink, width, height } = sheet(this.canvas, GAPS.height);
    if (!this.all.length)
      return say(
        ink,
        this.run.segments.request ? "no second token" : "the times of its tokens are not known",
        width,
        height,
      );
    const limit = this.run.objectives.find((one) => one.name === "itl")?.bound ?? null,
      most = this.longest.gap / 1e3;
    const start = this.all[0].time - this.all[0].gap;
    this.x = scale(start / 1e6, this.all.at(-1).time / 1e6, GAPS.left, width - GAPS.right);
    this.y = scale(
      0,
      (limit !== null && limit < most * 3 ? Math.max(limit, most) : most) * 1.1,
      height - GAPS.bottom,
      GAPS.top,
    );
    axisX(ink, this.x, GAPS.top, height - GAPS.bottom, "time (s)");
    axisY(ink, this.y, GAPS.left, width - GAPS.right);
    this.legend(ink, width);
    for (const one of this.all) this.stem(ink, one);
    if (limit !== null && limit < this.y.high)
      bound(ink, this.x.from, this.y(limit), this.x.to, this.y(limit), `SLO ${number(limit)} ms`);
  }

  legend(ink, width) {
    ink.fillStyle = colour("faint");
    ink.textAlign = "left";
    ink.fillText("gap (ms), by what shared its iteration", GAPS.left, 11);
    keyLine(ink, Object.entries(CAUSES), width - GAPS.right, 11);
  }

  stem(ink, one) {
    const at = this.x(one.time / 1e6),
      top = this.y(one.gap / 1e3);
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
  story() {
    const one = this.told,
      { run } = this;
    if (!one) return [];
    const sorted = this.all.map(({ gap }) => gap).sort((a, b) => a - b),
      median = sorted[sorted.length >> 1];
    const words = `Token ${number(one.number)} came after ${ms(one.gap)}; half of its gaps are at most ${ms(median)}.`;
    if (one.row < 0)
      return [element("p", {}, element("b", {}, words), " It came from a prefill again, after a preemption.")];
    const pauses =
      one.gap > (run.rows.taken[one.row] / run.rows.count[one.row]) * 1.5
        ? " Part of the gap went by before that iteration."
        : "";
    const show = element("button", { type: "button", onclick: () => this.seek(one) }, "Show on the timeline");
    return [
      element("p", {}, element("b", {}, words), ` Why: ${REASONS[run.cause(one.row)]}.${pauses} `, show),
      ...iterationStory(run, one.row, this.pick),
    ];
  }

  seek({ row }) {
    const { rows } = this.run,
      around = Math.max(rows.taken[row] * 6, 1e5),
      { timeline } = this;
    timeline.engine = rows.engine[row];
    timeline.look(rows.start[row] - around, rows.start[row] + rows.taken[row] + around);
    timeline.choose(row);
    document.getElementById("over-time").scrollIntoView({ block: "start" });
  }

  nearest(event) {
    if (!this.all?.length) return null;
    const time = this.x.invert(pointer(this.canvas, event).x) * 1e6;
    return this.all.reduce((best, one) => (Math.abs(one.time - time) < Math.abs(best.time - time) ? one : best));
  }

  hover(event) {
    const one = this.nearest(event);
    tip(
      this.canvas,
      event,
      one ? `token ${one.number}: ${ms(one.gap)}\n${one.row < 0 ? "after a preemption" : this.run.cause(one.row)}` : "",
    );
  }

  click(event) {
    const one = this.nearest(event);
    if (!one) return;
    this.told = one;
    this.draw();
  }
}
