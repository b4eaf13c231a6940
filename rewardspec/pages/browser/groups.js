// Rollouts of groups that unfold: a group, its rollouts, and the text of each.

// rows: of a remark or of a comparison, several groups one after another. texts: as `pages/texts.py` makes them.
function groupList(rows, texts, headOfB = null) {
  const groups = new Map();
  for (const row of rows) {
    const key = `${row.step} ${row.group}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  return [...groups.values()].map((own) => oneGroup(own, texts, headOfB));
}

function oneGroup(rows, texts, headOfB) {
  const [first] = rows;
  const right = rows.filter((row) => row.right).length;
  const whole = first.group_size ?? rows.length;
  const size = whole > rows.length ? `${count(rows.length)} of ${several(whole, "rollout")}` : several(whole, "rollout");
  const said = [size, ...("right" in first ? [`${right} right`] : [])];
  const made = el(
    "details",
    { class: "group" },
    el("summary", {}, el("strong", {}, `step ${first.step}, group ${first.group}`), el("span", { class: "about" }, said.join(", "))),
  );
  made.addEventListener("toggle", () => made.open && made.childElementCount === 1 && made.append(inGroup(rows, texts, headOfB)));
  return made;
}

function inGroup(rows, texts, headOfB) {
  const most = Math.max(...rows.flatMap((row) => [row.advantage, row.advantage_b ?? 0]).map(Math.abs)) || 1;
  const sorted = [...rows].sort((a, b) => b.advantage - a.advantage);
  const prompts = new Set(rows.map((row) => texts.of[idOf(row)]?.prompt ?? null));
  const common = prompts.size === 1 ? [...prompts][0] : null;
  return el(
    "div",
    { class: "inside" },
    common === null ? null : textOf("prompt", texts.texts[common]),
    el("div", { class: "rollouts" }, sorted.map((row) => rollout(row, texts, most, headOfB, common === null))),
  );
}

function rollout(row, texts, most, headOfB, hasPrompt) {
  const mark = { true: ["right", "good"], false: ["wrong", "bad"] }[String(row.right)];
  const values = Object.entries(row.rewards).map(([name, value]) => el("span", { class: "value" }, `${name} `, exact(value, number(value))));
  const made = el(
    "details",
    { class: "rollout" },
    el(
      "summary",
      {},
      el("span", { class: "advantage", title: "the advantage" }, bar(row.advantage, most), exact(row.advantage, number(row.advantage))),
      headOfB === null
        ? null
        : el("span", { class: "advantage", title: `the advantage under ${headOfB}` }, bar(row.advantage_b, most, "b"), exact(row.advantage_b, number(row.advantage_b))),
      mark ? el("span", { class: `mark ${mark[1]}` }, mark[0]) : null,
      el("span", { class: "values" }, values, row.length === undefined ? null : el("span", { class: "value" }, "length ", exact(row.length, count(row.length)))),
    ),
  );
  made.addEventListener("toggle", () => {
    if (!made.open || made.childElementCount > 1) return;
    const own = texts.of[idOf(row)] ?? {};
    made.append(
      el(
        "div",
        { class: "inside" },
        el("p", { class: "about" }, `rollout ${row.rollout} of step ${row.step}`, row.file ? `, ${row.file}:${row.row}` : null),
        hasPrompt && own.prompt !== undefined ? textOf("prompt", texts.texts[own.prompt]) : null,
        own.completion === undefined ? el("p", { class: "about" }, "The log has no text of it.") : textOf("completion", texts.texts[own.completion]),
      ),
    );
  });
  return made;
}

// As `key` in `pages/texts.py`.
function idOf(row) {
  return row.file === undefined ? `${row.step} ${row.rollout}` : `${row.file}:${row.row}`;
}

// A text as it is; of a long one the beginning and the end, and how much lies between.
function textOf(what, { text, end, cut, length }) {
  const head = el("div", { class: "head" }, what, el("span", { class: "about" }, several(length, "character")));
  const rest = cut ? [el("p", { class: "cut" }, `${several(cut, "character")} of ${count(length)} are left out here`), quoted(end)] : [];
  return el("div", { class: `text ${what}` }, head, quoted(text), rest);
}

// An advantage as a bar to the right of its middle, or to the left.
function bar(value, most, which = "a") {
  const drawn = el("i");
  const part = Math.min(1, Math.abs(value) / most) * 50;
  drawn.style.width = `${part}%`;
  drawn.style[value < 0 ? "right" : "left"] = "50%";
  return el("span", { class: `bar ${which}`, "aria-hidden": "true" }, drawn);
}
