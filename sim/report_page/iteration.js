// An iteration in words: what it carried, how long it took, and whose it was.

const MOST_NAMED = 12;

function rowInWords(run, row) {
  const { rows } = run,
    many = rows.count[row],
    first = run.iterations[row];
  const heading =
    many > 1
      ? `${number(many)} iterations from ${number(first)} on, ${ms(rows.taken[row] / many)} each`
      : `iteration ${number(first)}: ${ms(rows.taken[row])}`;
  const carried = [
    rows.num_decodes[row] ? count(rows.num_decodes[row], "decode") : "",
    rows.num_prefill_tokens[row] ? `${number(rows.num_prefill_tokens[row])} prefill tokens` : "",
    rows.encoder_tokens[row]
      ? `${number(rows.encoder_tokens[row])} encoder tokens of ${count(rows.num_items[row], "item")}`
      : "",
  ].filter(Boolean);
  const [running, waiting, blocks] = ["num_running", "num_waiting", "kv_blocks_used"].map((name) =>
    number(rows[name][row]),
  );
  const where = `${running} running, ${waiting} waiting, ${blocks} KV blocks`;
  return [heading, `at ${seconds(rows.start[row])}`, carried.join("\n"), where].filter(Boolean).join("\n");
}

/** The whole story of an iteration, requests as buttons. */
function iterationStory(run, row, pick) {
  const { rows } = run,
    taken = rows.taken[row],
    rest = taken - rows.encode[row] - rows.host[row];
  const parts = [
    ["encoding", rows.encode[row]],
    ["the language model", rest],
    ["the host", rows.host[row]],
  ].filter(([, time]) => time > 0);
  const times = parts.map(([words, time]) => `${words} ${ms(time / rows.count[row])}`).join(", ");
  const story = [
    element("p", {}, element("b", {}, rowInWords(run, row).split("\n").slice(0, 2).join(" ")), `: ${times}.`),
  ];
  for (const [which, words] of [
    ["encoding", "Encoder tokens"],
    ["prefilling", "Prefill tokens"],
  ]) {
    const shared = run.sharing(which, row);
    if (shared.length)
      story.push(element("p", {}, `${words} of request `, ...named(shared, (id) => pick(run.index, id)), "."));
  }
  if (rows.num_decodes[row])
    story.push(element("p", {}, `${count(rows.num_decodes[row], "request")} decoded, and each waited for all of it.`));
  return story;
}

function named(shared, pick) {
  const told = shared
    .slice(0, MOST_NAMED)
    .flatMap(([id, tokens], index) => [
      index ? ", " : "",
      element("button", { class: "link", type: "button", onclick: () => pick(id) }, String(id)),
      ` (${number(tokens)})`,
    ]);
  return shared.length > MOST_NAMED ? [...told, ` and ${shared.length - MOST_NAMED} more`] : told;
}
