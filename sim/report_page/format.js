// Words, numbers and colours that all parts of the page share.

const COLOURS = ["blue", "vermilion", "green", "purple", "orange", "sky", "black"]; // of runs, in order
const DASHES = [[], [7, 3], [2, 2], [8, 3, 2, 3]];
const PART_COLOURS = {
  preparation: "grey",
  queue_wait: "dark-grey",
  reservation_wait: "purple",
  encoder_budget_wait: "vermilion",
  encode: "orange",
  transfer: "sky",
  prefill: "blue",
  other: "sand",
};
const CAUSES = { encode: "orange", prefill: "blue", "encode and prefill": "vermilion", "decodes alone": "green" };

/** A colour of the theme that is on. */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Three digits, or all of a large number. */
function number(value) {
  const size = Math.abs(value);
  if (size >= 100 || value === Math.round(value)) return Math.round(value).toLocaleString("en");
  return size >= 10 ? value.toFixed(1) : Number(value.toPrecision(3)).toString();
}

const ms = (micros) => `${number(micros / 1e3)} ms`;
const seconds = (micros) => `${(micros / 1e6).toFixed(3)} s`;
const percent = (share) => (share === null ? "-" : `${(share * 100).toFixed(1)} %`);
const count = (many, one) => `${number(many)} ${one}${many === 1 ? "" : "s"}`;

/** An element with attributes, and texts or elements inside. */
function element(tag, attributes = {}, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") made.style.cssText = value;
    else made.setAttribute(name, value);
  }
  made.append(...inside);
  return made;
}

const swatch = (name) => element("span", { class: "swatch", style: `background:var(--${name})` });

/** A legend: names by colours. */
function key(entries) {
  const told = entries.map(([name, colourName]) => element("span", {}, swatch(colourName), name));
  return element("div", { class: "key" }, ...told);
}

/** Buttons of which one is pressed. */
function choice(place, options, chosen, choose) {
  const buttons = options.map(([value, words]) =>
    element("button", { type: "button", "aria-pressed": value === chosen, onclick: () => choose(value) }, words),
  );
  place.replaceChildren(...buttons);
}
