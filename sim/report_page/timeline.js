// The timeline: lanes of a whole run, to zoom into and to pick iterations from.

/** The timeline with its buttons; `pick(row)` is told of a click. */
class Timeline {
  constructor(canvas, pick) {
    this.canvas = canvas;
    this.pick = pick;
    this.engine = 0;
    this.drag = null;
    canvas.addEventListener("mousedown", (event) => {
      this.drag = { from: pointer(canvas, event).x, to: null };
    });
    canvas.addEventListener("mousemove", (event) => this.move(event));
    window.addEventListener("mouseup", (event) => this.release(event));
    canvas.addEventListener("mouseleave", (event) => tip(canvas, event, ""));
    canvas.addEventListener("dblclick", () => this.show(this.run));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    const buttons = {
      earlier: () => this.shift(-0.5),
      later: () => this.shift(0.5),
      closer: () => this.zoom(0.5),
      wider: () => this.zoom(2),
      all: () => this.show(this.run),
    };
    for (const [id, act] of Object.entries(buttons)) document.getElementById(id).addEventListener("click", act);
  }

  /** All of a run. */
  show(run) {
    if (run !== this.run) this.engine = 0;
    this.run = run;
    this.picked = null;
    this.window = [0, run.end];
    this.draw();
  }

  draw() {
    const { run } = this;
    const options = run.engines.length > 1 ? run.engines.map((name, engine) => [engine, name]) : [];
    choice(document.getElementById("engines"), options, this.engine, (engine) => {
      this.engine = engine;
      this.draw();
    });
    this.x = drawLanes(this.canvas, run, this.engine, this.window, LANES);
    const [from, to] = this.window.map((time) => (time / 1e6).toFixed(3));
    document.getElementById("window").textContent = `${from} s to ${to} s`;
    this.mark();
  }

  /** The picked iteration and what is being dragged over. */
  mark() {
    const ink = this.canvas.getContext("2d"),
      top = laneTop(0),
      bottom = laneTop(LANES.length - 1) + LANE.height;
    if (this.picked !== null) {
      const { start, taken } = this.run.rows,
        from = this.x(start[this.picked]),
        to = this.x(start[this.picked] + taken[this.picked]);
      if (to >= this.x.from && from <= this.x.to)
        rule(
          ink,
          (from + to) / 2,
          top,
          (from + to) / 2,
          bottom,
          colour("purple"),
          [],
          Math.max(1.5, Math.min(to - from, 3)),
        );
    }
    if (this.drag && this.drag.to !== null) {
      ink.fillStyle = colour("blue");
      ink.globalAlpha = 0.18;
      ink.fillRect(this.drag.from, top, this.drag.to - this.drag.from, bottom - top);
      ink.globalAlpha = 1;
    }
  }

  look(from, to) {
    const least = 50,
      middle = (from + to) / 2,
      half = Math.max(to - from, least) / 2;
    this.window = [Math.max(0, middle - half), Math.min(this.run.end, middle + half)];
    if (this.window[1] - this.window[0] < least) this.window = [Math.max(0, this.run.end - least), this.run.end];
    this.draw();
  }

  zoom(factor, around = (this.window[0] + this.window[1]) / 2) {
    const [from, to] = this.window;
    this.look(around - (around - from) * factor, around + (to - around) * factor);
  }

  shift(share) {
    const [from, to] = this.window,
      by = Math.max(-from, Math.min((to - from) * share, this.run.end - to));
    this.look(from + by, to + by);
  }

  move(event) {
    const { x } = pointer(this.canvas, event);
    if (this.drag && (this.drag.to !== null || Math.abs(x - this.drag.from) > 4)) {
      this.drag.to = Math.max(this.x.from, Math.min(x, this.x.to));
      this.draw();
      return;
    }
    const row = this.rowUnder(x);
    tip(this.canvas, event, row === null ? "" : rowInWords(this.run, row));
  }

  release(event) {
    if (!this.drag) return;
    const { from, to } = this.drag;
    this.drag = null;
    if (to !== null) return this.look(this.x.invert(Math.min(from, to)), this.x.invert(Math.max(from, to)));
    const row = this.rowUnder(pointer(this.canvas, event).x);
    if (row !== null) this.choose(row);
  }

  choose(row) {
    this.picked = row;
    this.draw();
    this.pick(row);
  }

  rowUnder(pixel) {
    if (!this.run?.numRows || pixel < this.x.from || pixel > this.x.to) return null;
    const time = this.x.invert(pixel),
      row = this.run.rowAt(this.engine, time),
      [first] = this.run.rowsOf(this.engine);
    return row < first || time > this.run.rows.start[row] + this.run.rows.taken[row] ? null : row;
  }

  wheel(event) {
    if (!event.shiftKey && !event.ctrlKey) return;
    event.preventDefault();
    const turned = event.deltaY || event.deltaX; // with Shift held the wheel turns sideways
    this.zoom(turned > 0 ? 1.25 : 0.8, this.x.invert(pointer(this.canvas, event).x));
  }

  key(event) {
    const acts = {
      ArrowLeft: () => this.shift(-0.25),
      ArrowRight: () => this.shift(0.25),
      "+": () => this.zoom(0.5),
      "-": () => this.zoom(2),
      Escape: () => this.show(this.run),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }
}
