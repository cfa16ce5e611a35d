// A run as the page works with it: its columns decoded, with what can be looked up in them.

/** Index of the last entry that is at most `value`, in rising numbers; -1 before the first. */
function lastAtMost(values, value, low = 0, high = values.length) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

class RunModel {
  static async of(told, index) {
    const model = Object.assign(new RunModel(), told, { index });
    model.requests = await columns(told.requests.columns);
    model.requests.statuses = told.requests.statuses;
    model.requests.reasons = told.requests.reasons;
    model.rows = await columns(told.rows);
    model.segments = await columns(told.segments);
    model.encoding = await columns(told.members.encoding ?? {});
    model.prefilling = await columns(told.members.prefilling ?? {});
    model.prepare();
    return model;
  }

  prepare() {
    const { rows, requests } = this;
    this.size = requests.id.length;
    this.colour = COLOURS[this.index % COLOURS.length];
    this.dashes = DASHES[this.index % DASHES.length];
    this.placeOf = new Map(Array.from(requests.id, (id, place) => [id, place]));
    this.numRows = rows.start ? rows.start.length : 0;
    this.steps = new Float64Array(this.numRows + 1); // decode steps before each row
    this.iterations = new Float64Array(this.numRows + 1); // iterations of its engine before each row
    this.engineStarts = [];
    for (let row = 0; row < this.numRows; row++) this.step(row);
    this.engineStarts.push(this.numRows);
    this.end = this.lastMoment();
    this.worstGaps = this.findWorstGaps();
  }

  step(row) {
    const { rows } = this;
    const isFirst = row === 0 || rows.engine[row] !== rows.engine[row - 1];
    if (isFirst) {
      while (this.engineStarts.length <= rows.engine[row]) this.engineStarts.push(row);
      this.iterations[row] = 0;
    }
    this.iterations[row + 1] = this.iterations[row] + rows.count[row];
    this.steps[row + 1] = this.steps[row] + (rows.num_decodes[row] > 0 ? rows.count[row] : 0);
  }

  /** First row of an engine, and the one after its last. */
  rowsOf(engine) {
    const starts = this.engineStarts;
    return [starts[engine] ?? this.numRows, starts[engine + 1] ?? this.numRows];
  }

  lastMoment() {
    let last = 1;
    const { rows, requests } = this;
    for (let row = 0; row < this.numRows; row++) last = Math.max(last, rows.start[row] + rows.taken[row]);
    for (let place = 0; place < this.size; place++)
      last = Math.max(last, requests.arrival[place] + Math.max(0, requests.finish[place]));
    return last;
  }

  /** The row of an engine that is under way at a time, or the one before it. */
  rowAt(engine, time) {
    const [first, end] = this.rowsOf(engine);
    return lastAtMost(this.rows.start, time, first, end);
  }

  /** TTFT in microseconds, -1 where there was none. */
  ttft(place) {
    return this.requests.first_token[place];
  }

  e2el(place) {
    return this.requests.first_token[place] < 0 ? -1 : this.requests.finish[place];
  }

  worstGap(place) {
    return this.worstGaps[place];
  }

  /** Tokens of a request in order: when each came, and the row it came from (-1: from a prefill). */
  tokens(place) {
    const told = [],
      { segments } = this,
      id = this.requests.id[place];
    if (!segments.request) return told;
    for (let i = lastAtMost(segments.request, id - 0.5) + 1; segments.request[i] === id; i++) {
      told.push({ time: segments.time[i], row: -1 });
      this.eachStep(segments.step[i], segments.count[i], (time, row) => told.push({ time, row }));
    }
    return told;
  }

  /** Decode steps one by one: in a row of many iterations they are evenly apart. */
  eachStep(step, howMany, visit) {
    const { rows } = this;
    let row = lastAtMost(this.steps, step);
    for (let left = howMany; left > 0; row++) {
      if (!(rows.num_decodes[row] > 0)) continue;
      const begin = Math.max(0, step - this.steps[row]),
        each = rows.taken[row] / rows.count[row];
      for (let i = begin; i < rows.count[row] && left > 0; i++, left--) visit(rows.start[row] + each * (i + 1), row);
    }
  }

  /** The longest gap of each request in microseconds; -1 where it has none. */
  findWorstGaps() {
    const worst = new Float64Array(this.size).fill(-1),
      { segments } = this;
    let before = -1,
      owner = -1;
    for (let i = 0; i < (segments.request?.length ?? 0); i++) {
      const place = this.placeOf.get(segments.request[i]);
      if (place === owner) worst[place] = Math.max(worst[place], segments.time[i] - before);
      owner = place;
      before = segments.time[i];
      this.eachStep(segments.step[i], segments.count[i], (time) => {
        if (time - before > worst[place]) worst[place] = time - before;
        before = time;
      });
    }
    return worst;
  }

  /** What an iteration did besides decoding. */
  cause(row) {
    const encodes = this.rows.encoder_tokens[row] > 0 || this.rows.encode[row] > 0;
    const prefills = this.rows.num_prefill_tokens[row] > 0;
    return encodes && prefills ? "encode and prefill" : encodes ? "encode" : prefills ? "prefill" : "decodes alone";
  }

  /** [request, tokens] of those whose items a row encoded, or whose prompts it prefilled. */
  sharing(which, row) {
    const told = [],
      { row: rows, request, tokens } = this[which];
    if (!rows) return told;
    for (let i = lastAtMost(rows, row - 0.5) + 1; rows[i] === row; i++) told.push([request[i], tokens[i]]);
    return told;
  }

  /** Rows in which a request's items were encoded, or its prompt prefilled. */
  rowsShared(which, id) {
    const { row: rows, request } = this[which],
      found = [];
    for (let i = 0; i < (rows?.length ?? 0); i++) if (request[i] === id) found.push(rows[i]);
    return found;
  }
}
