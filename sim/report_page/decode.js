// Reads what the page carries: JSON, and in it columns as compressed binary numbers (written by sim/report_pack.py).

const REPORT = JSON.parse(document.getElementById("report").textContent);
const ARRAYS = { int8: Int8Array, int16: Int16Array, int32: Int32Array, float64: Float64Array };

/** One column as an array of numbers. */
async function column(packed) {
  const bytes = Uint8Array.from(atob(packed.data), (letter) => letter.charCodeAt(0));
  const inflated = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const values = new ARRAYS[packed.type](await new Response(inflated).arrayBuffer());
  return packed.delta ? summed(values) : values;
}

/** Columns by their names. */
async function columns(packed) {
  const names = Object.keys(packed);
  const arrays = await Promise.all(names.map((name) => column(packed[name])));
  return Object.fromEntries(names.map((name, index) => [name, arrays[index]]));
}

/** Running sums, as numbers that hold any time. */
function summed(differences) {
  const sums = new Float64Array(differences.length);
  let sum = 0;
  for (let i = 0; i < differences.length; i++) sums[i] = sum += differences[i];
  return sums;
}
