// The page of a spec alone.

const VERDICTS = {
  proved: ["holds", "No group of these sizes breaks it."],
  refuted: ["broken", "A group breaks it."],
  "not refuted": ["open", "No group was found that breaks it, and it is not proved."],
  undecided: ["open", "It cannot be decided for one group alone."],
};

const OF_COUNTS = [
  { key: "group_size", head: "group size", show: count },
  { key: "reward_groups", head: "reward groups", about: "distinct groups of rewards" },
  { key: "advantage_groups", head: "advantage groups", about: "distinct groups of advantages: what a policy gradient can tell apart" },
  { key: "groups_without_signal", head: "dead groups", show: rate, about: "groups whose advantages are all equal, at the rates of the policy" },
  { key: "spread", head: "spread", show: number, about: "max - min of the advantage in a group, mean over groups" },
];

function reportPage({ found, source, rendered, pages }) {
  const board = chartBoard();
  const { explanation } = found;
  const defined = new Map(explanation.definitions.map((row) => [row.name, row.meaning]));
  const sections = [
    ["glance", "At a glance", glance()],
    ["says", "What it says", says()],
    ["findings", "Findings", findings()],
    ["guarantees", "Guarantees", explanation.guarantees.length ? guarantees() : null],
    ["groups", "Groups that can be told apart", groups()],
    ["components", "What each component can earn", components()],
    ["run", "Over the run", overRun()],
    ["limits", "What this page cannot know", limits()],
  ];
  return { board, sections, subject: found.about.split("\n"), chips: [el("code", {}, found.fingerprint)] };

  function glance() {
    const last = found.counts.at(-1);
    const proved = found.verdicts.filter((verdict) => verdict.status === "proved").length;
    const refuted = found.verdicts.filter((verdict) => verdict.status === "refuted").length;
    const tile = (what, value, about) => el("div", { class: "tile", "data-key": what }, el("dt", {}, what), el("dd", {}, value), el("p", { class: "about" }, about));
    return el(
      "dl",
      { class: "tiles" },
      tile("Findings", count(found.findings.length), found.findings.length ? [...new Set(found.findings.map((one) => one.code))].join(", ") : "Nothing that usually goes wrong"),
      found.verdicts.length ? tile("Guarantees proved", `${proved} of ${found.verdicts.length}`, refuted ? `${refuted} broken by a group` : "None is broken by a group that was tried") : null,
      tile("Told apart", shareOf(last), `${atLeast(last, last.advantage_groups)} of ${atLeast(last, last.reward_groups)} groups of ${last.group_size}`),
      last.signal ? tile("Dead groups", exact(last.signal.groups_without_signal, rate(last.signal.groups_without_signal)), `of groups of ${last.group_size}: all advantages are equal`) : null,
      tile("Components", count(found.earnings.length), found.earnings.map((one) => one.name).join(", ")),
    );
  }

  function shareOf({ advantage_groups: told, reward_groups: all, exact: known }) {
    return known ? exact(told / all, rate(told / all)) : NONE;
  }

  function atLeast(row, value) {
    return `${row.exact ? "" : "at least "}${count(value)}`;
  }

  function says() {
    const stated = ["outcome", "keep", "advantage"].filter((name) => defined.has(name));
    const rest = explanation.definitions.filter((row) => !stated.includes(row.name));
    const code = (value) => el("code", {}, value === "" ? NONE : value);
    const texts = (heads, rows, name) => table(heads.map(([key, head]) => ({ head, words: true, value: (row) => row[key], cell: (row) => code(row[key]) })), rows, { name });
    return [
      pairs([...stated.map((name) => [name, code(defined.get(name))]), ["needs of its trainer", explanation.needs.join(", ") || "its columns alone"]]),
      el("h3", {}, "Columns"),
      texts([["name", "name"], ["level", "one for each"], ["domain", "values"], ["missing", "missing"], ["measured_by", "measured by"]], explanation.columns, "columns"),
      explanation.state.length ? [el("h3", {}, "State"), texts([["name", "name"], ["of_each", "of each"], ["range", "range"], ["begins_at", "begins at"], ["after_a_batch", "after a batch"]], explanation.state, "state")] : null,
      el("details", { class: "fold" }, el("summary", {}, "The text of the spec"), textOf("spec", source)),
      rest.length ? el("details", { class: "fold" }, el("summary", {}, "Every definition that is used"), texts([["name", "name"], ["meaning", "meaning"]], rest, "definitions")) : null,
    ];
  }

  function findings() {
    if (!found.findings.length) return el("p", { class: "nothing" }, "Nothing to say.");
    return found.findings.map((one, i) =>
      el(
        "article",
        { class: `remark ${one.severity}`, "data-code": one.code },
        el("header", {}, el("span", { class: `severity ${one.severity}` }, one.severity), el("code", {}, one.code)),
        el("p", { class: "message" }, words(sentence(one.message)), "."),
        one.help ? el("p", {}, el("strong", {}, "Help: "), words(one.help), ".") : null,
        el("details", { class: "fold" }, el("summary", {}, "Where"), quoted(rendered[i])),
        pages[one.code] ? el("details", { class: "fold" }, el("summary", {}, "Why, and what to write instead"), quoted(pages[one.code])) : null,
      ),
    );
  }

  function guarantees() {
    const must = new Map(explanation.guarantees.map((row) => [row.name, row.must_hold]));
    return found.verdicts.map((verdict) => {
      const [kind, means] = VERDICTS[verdict.status];
      const items = verdict.items === undefined ? "" : `, lists of up to ${several(verdict.items, "item")}`;
      const tried = verdict.groups ? `${several(verdict.groups, "group")} of ${verdict.sizes.join(", ")} tried${items}` : "no group tried";
      const group = verdict.counterexample;
      return el(
        "article",
        { class: `remark verdict ${kind}`, "data-name": verdict.name },
        el("header", {}, el("span", { class: `severity ${kind}` }, verdict.status), el("strong", {}, verdict.name)),
        el("p", {}, el("code", {}, must.get(verdict.name))),
        el("p", { class: "about" }, means, " ", words(sentence(tried)), ".", verdict.reason ? [" ", words(sentence(verdict.reason)), "."] : null),
        group ? counterexample(group, verdict.name) : null,
      );
    });
  }

  function counterexample(group, name) {
    const own = Object.entries(group.shaped).filter(([of, values]) => JSON.stringify(values) !== JSON.stringify(group.columns[of]));
    const cells = [
      ...Object.entries(group.columns),
      ...own.map(([of, values]) => [of in group.columns ? `${of} (shaped)` : of, values]),
      ["advantage", group.advantages],
    ];
    const columns = [
      { head: "rollout", value: (i) => i, show: String },
      ...cells.map(([head, values]) => ({ head, value: (i) => values[i], show: items })),
      { head: "", words: true, value: (i) => (group.breaking.includes(i) ? "breaks it" : ""), cell: (i) => (group.breaking.includes(i) ? el("span", { class: "mark bad" }, "breaks it") : "") },
    ];
    const rows = group.advantages.map((_, i) => i);
    const at = Object.entries(group.group).map(([of, value]) => `${of} ${number(value)}`);
    return [
      el("p", { class: "about" }, `The smallest group that breaks it${at.length ? `, at ${at.join(", ")}` : ""}:`),
      table(columns, rows, { name: `a group that breaks ${name}` }),
    ];
  }

  function items(value) {
    return Array.isArray(value) ? `[${value.map(items).join(", ")}]` : number(value);
  }

  function groups() {
    const rows = found.counts.map((row) => ({ ...row.signal, ...row }));
    const shares = Object.keys(rows.at(-1).shares ?? {});
    const early = explanation.needs.some((need) => ["step", "total_steps", "progress"].includes(need));
    const columns = [
      ...columnsOf(OF_COUNTS, rows).map((column) => (column.show ? column : { ...column, cell: (row) => exact(row[column.key], atLeast(row, row[column.key])) })),
      { head: "told apart", about: "advantage groups, of the reward groups", value: (row) => (row.exact ? row.advantage_groups / row.reward_groups : null), show: rate },
      ...shares.map((name) => ({ head: `share of ${name}`, about: "its part of the advantage's variance", value: (row) => row.shares?.[name], show: rate })),
    ];
    const x = rows.map((row) => row.group_size);
    const series = [
      { label: "reward groups", colour: "a", values: rows.map((row) => row.reward_groups) },
      { label: "advantage groups", colour: "b", values: rows.map((row) => row.advantage_groups) },
    ];
    const [swept] = found.swept;
    const charts = [
      rows.length > 1 ? board.add({ title: "Distinct groups", about: "of rewards, and of the advantages that are left of them", axis: "rollouts in a group", x, series, show: count, low: 0 }) : null,
      swept
        ? board.add({
            title: "Dead groups by success rate",
            about: `groups of ${swept.group_size} whose advantages are all equal, if all that can have a rate has the same`,
            axis: "success rate",
            x: found.swept.map((row) => row.rate),
            series: [{ label: null, colour: "a", values: found.swept.map((row) => row.groups_without_signal) }],
            show: rate,
            rate: true,
            xrate: true,
          })
        : null,
    ];
    return [
      el("p", { class: "about" }, "All groups that the domains allow are counted. Two groups with the same advantages train the same way, whatever their rewards.", early ? " The spec changes over the run: these are of its beginning." : null),
      el("div", { class: "charts" }, charts),
      table(columns, rows, { name: "distinct groups" }),
    ];
  }

  function components() {
    const last = found.counts.at(-1).signal?.shares ?? null;
    const code = (key) => (row) => el("code", {}, row[key] ?? NONE);
    const end = (value, none) => (value === null || value === undefined ? none : number(value));
    const columns = [
      { head: "component", words: true, value: (row) => row.name },
      { head: "gate", words: true, about: "it counts only where this holds", value: (row) => row.when, cell: code("when") },
      { head: "values", words: true, value: (row) => row.values, cell: (row) => el("span", {}, el("code", {}, row.values), row.missing ? " or missing" : null) },
      { head: "weight", words: true, value: (row) => row.weight, cell: code("weight") },
      { head: "at least", about: "no rollout earns less: weight times value", value: (row) => row.low, cell: (row) => exact(row.low, end(row.low, "unbounded")) },
      { head: "at most", about: "no rollout earns more: weight times value", value: (row) => row.high, cell: (row) => exact(row.high, end(row.high, "unbounded")) },
    ];
    if (last !== null) {
      const size = found.counts.at(-1).group_size;
      columns.push({
        head: "share",
        about: `its part of the advantage's variance in groups of ${size}`,
        value: (row) => last[row.name],
        cell: (row) => el("span", { class: "meter" }, meter(last[row.name], "a"), exact(last[row.name], rate(last[row.name]))),
      });
    }
    return table(columns, found.earnings, { name: "earnings" });
  }

  function overRun() {
    if (found.unknown) return el("p", { class: "about" }, words(sentence(found.unknown)), ".");
    if (!found.over_run.length) return null;
    const names = [...new Set(found.over_run.map((row) => row.name))];
    const rowsOf = (name) => found.over_run.filter((row) => row.name === name);
    const first = rowsOf(names[0]);
    const byStep = first.every((row) => row.step !== null);
    const x = first.map((row) => (byStep ? row.step : row.progress));
    const lines = (low, high) =>
      names.flatMap((name, i) => {
        const [least, most] = [low, high].map((key) => rowsOf(name).map((row) => row[key]));
        const colour = COLOURS[i % COLOURS.length];
        if (least.every((value, at) => value === most[at] || value === 0)) return [{ label: name, colour, values: most }];
        return [{ label: `${name}, at most`, colour, values: most }, { label: `${name}, at least`, colour, width: 1, values: least }];
      });
    const chart = (title, about, series) => board.add({ title, about, axis: byStep ? "step" : "progress of the run", x, xrate: !byStep, series, show: number, low: 0 });
    const changes = (low, high) => names.some((name) => new Set(rowsOf(name).map((row) => `${row[low]} ${row[high]}`)).size > 1);
    const charts = [
      changes("weight_low", "weight_high") ? chart("Weights", "of each component", lines("weight_low", "weight_high")) : null,
      chart("Earnings", "what no rollout exceeds: weight times value", lines("low", "high")),
    ];
    return [el("p", { class: "about" }, "The pointer reads the numbers. Drag to zoom: ", zoomOutButton(board), "."), el("div", { class: "charts" }, charts)];
  }

  function limits() {
    const sizes = found.counts.map((row) => row.group_size).join(", ");
    const items = found.counts.find((row) => row.items !== null)?.items;
    const said = [
      "How often each group occurs in training. Dead groups and shares are of a policy with stated rates, or with all values equally likely.",
      `Groups of other sizes than ${sizes}: counts and verdicts are of these.`,
      ...(items === undefined ? [] : [`Lists of more than ${several(items, "item")}.`]),
      "Whether the columns measure what is wanted: no rollout was looked at. Nothing here is a forecast of a run.",
      ...found.notes.map((note) => `Not checked: ${note}.`),
    ];
    return el("ul", { class: "limits" }, said.map((one) => el("li", {}, words(one))));
  }
}

const COLOURS = ["a", "b", "right", "wrong", "tied"];
