// The page of a run under one spec, or under two.

function replayPage({ found, together, texts, changes, sources, suggestions, notes }) {
  const names = found.specs.map((spec) => spec.name);
  const board = chartBoard();
  const under = (part, name) => found[part].filter((row) => row.spec === name);
  const side = (name) => "ab"[names.indexOf(name)];
  const label = labelsOf(found.specs, changes);
  const specChip = (name) => el("span", { class: `chip ${side(name)}`, title: name }, label.get(name));
  const specColumn = { head: "spec", words: true, value: (row) => row.spec, cell: (row) => specChip(row.spec) };
  const withSpec = (columns) => (names.length > 1 ? [specColumn, ...columns] : columns);
  const first = under("steps", names[0]);
  const stepCount = together?.steps ?? first.length;
  const total = (key) => first.reduce((sum, row) => sum + row[key], 0);

  const sections = [
    ["glance", "At a glance", glance()],
    ["audit", "Audit", audit()],
    ["steps", "Over the run", steps()],
    ["components", "Components", components()],
    ["by", "By value", found.by.length ? table(withSpec(columnsOf(OF_VALUES, found.by)), found.by, { name: "groups by value" }) : null],
    ["difference", "B in place of A", found.difference ? difference() : null],
    ["suggestions", "Suggestions", suggestions === null ? null : suggested()],
    ["specs", names.length > 1 ? "Specs" : "Spec", specs()],
    ["limits", "What this page cannot know", limits()],
  ];
  const subject = [
    `${several(total("rollouts"), "rollout")} in ${several(total("groups"), "group")} and ${several(stepCount, "step")}, read as ${found.format}.`,
  ];
  return { board, sections, subject, chips: found.specs.map((spec) => el("span", {}, specChip(spec.name), " ", el("code", {}, spec.fingerprint))) };

  function glance() {
    const kinds = OF_STEPS.filter(({ key }) => !["step", "rollouts", "groups", "groups_kept", "rollouts_without_signal", "total_std"].includes(key));
    const means = found.specs.map((spec) => spec.means);
    const rows = kinds.filter(({ key }) => means.some((one) => one[key] !== null && one[key] !== undefined));
    const tiles = rows.map((kind) =>
      el(
        "div",
        { class: "tile", "data-key": kind.key },
        el("dt", {}, kind.title),
        means.map((one, i) => el("dd", { class: names.length > 1 ? "ab"[i] : null }, exact(one[kind.key], kind.show(one[kind.key])))),
        el("p", { class: "about" }, sentence(kind.about)),
      ),
    );
    return [el("p", { class: "about" }, "Means over the groups of the run."), el("dl", { class: "tiles" }, tiles)];
  }

  function audit() {
    const column = (name) => {
      const remarks = under("audit", name);
      return el(
        "div",
        { class: "column" },
        names.length > 1 ? el("h3", {}, specChip(name)) : null,
        remarks.length ? remarks.map(remark) : el("p", { class: "nothing" }, "Nothing to remark."),
      );
    };
    return [
      el("p", { class: "about" }, "What is wrong in the rollouts that were logged, with the groups that show it best."),
      el("div", { class: "columns" }, names.map(column)),
    ];
  }

  function remark({ code, severity, message, rollouts }) {
    return el(
      "article",
      { class: `remark ${severity}`, "data-code": code },
      el("header", {}, el("span", { class: `severity ${severity}` }, severity), el("code", {}, code)),
      el("p", { class: "message" }, words(sentence(message)), "."),
      el("p", { class: "about" }, words(REMARKS[code] ?? "")),
      groupList(rollouts, texts),
    );
  }

  function steps() {
    const x = first.map((row) => row.step);
    const labels = together && first.map((row) => `${row.step} to ${row.last_step}`);
    const valuesOf = (name, key) => under("steps", name).map((row) => row[key]);
    const rangeOf = (name, key) => together && under("steps", name).map(({ low, high }) => [low[key], high[key]]);
    const dead = names.map((name) => {
      const split = valuesOf(name, "all_wrong").some((value) => value !== null);
      const kinds = split ? [["all_wrong", "wrong"], ["tied", "tied"], ["all_right", "right"]] : [["groups_without_signal", "tied"]];
      const series = kinds.map(([key, of]) => ({ label: kindOf(key).head, colour: of, values: valuesOf(name, key), range: rangeOf(name, key) }));
      const title = names.length > 1 ? `Groups without signal: ${label.get(name)}` : "Groups without signal";
      const about = `the part of groups whose advantages are all equal${split ? ", and why" : ""}`;
      return board.add({ title, about, axis: "step", x, labels, series, stacked: true, show: rate, rate: true });
    });
    const line = (key, more = {}) => {
      const { title, about, show } = kindOf(key);
      const series = names
        .map((name, i) => ({ label: names.length > 1 ? label.get(name) : null, colour: "ab"[i], width: names.length > 1 ? [3, 1.5][i] : 2, values: valuesOf(name, key), range: rangeOf(name, key) }))
        .filter(({ values }) => values.some((value) => value !== null)); // B is drawn over A, and both are seen
      return series.length ? board.add({ title, about, axis: "step", x, labels, series, show, rate: show === rate, ...more }) : null;
    };
    const charts = [
      ...dead,
      line("total"),
      line("right"),
      line("effective"),
      line("advantage_spread", { low: 0 }),
      line("live_size", { low: 0 }),
      line("batch_factor", { low: 0 }),
    ];
    const columns = columnsOf(OF_STEPS, found.steps).map((column) =>
      together && column.key === "step" ? { ...column, cell: (row) => exact(row.step, `${row.step} to ${row.last_step}`) } : column,
    );
    return [
      together && el("p", { class: "about" }, `Each point is ${count(together.each)} steps of ${count(together.steps)}: their mean over groups, on a band from the least to the greatest that one of them has. All steps: --format json.`),
      el("p", { class: "about" }, "The pointer reads the numbers. Drag over a chart to zoom all of them: ", zoomOutButton(board), "."),
      el("div", { class: "charts" }, charts),
      el(
        "details",
        { class: "fold" },
        el("summary", {}, together ? `Means of ${several(first.length, "part")} of ${several(stepCount, "step")}` : `All numbers of ${several(stepCount, "step")}`),
        table(withSpec(columns), found.steps, { name: "steps" }),
      ),
    ];
  }

  function components() {
    const columns = columnsOf(OF_COMPONENTS, found.components).map((column) =>
      column.key === "share" ? { ...column, cell: (row) => el("span", { class: "meter" }, meter(row.share, side(row.spec)), exact(row.share, rate(row.share))) } : column,
    );
    const [name, ...rest] = columns;
    return table(names.length > 1 ? [name, specColumn, ...rest] : columns, found.components, { name: "components" });
  }

  function difference() {
    const d = found.difference;
    const [a, b] = names;
    const told = [
      ["rollouts whose advantage changes", exact(d.changed, rate(d.changed))],
      ["rollouts whose advantage changes sign", exact(d.sign_flips, rate(d.sign_flips))],
      ["pairs of a group that both order alike", exact(d.same_order, rate(d.same_order))],
      ["groups that come alive", exact(d.revived, count(d.revived))],
      ["groups that die", exact(d.killed, count(d.killed))],
    ];
    const groups = groupList(d.rollouts, texts, label.get(b));
    return [
      pairs(told),
      groups.length ? el("h3", {}, "Groups that change most") : null,
      groups.length ? el("p", { class: "about" }, "Of each rollout the advantage under ", specChip(a), ", then under ", specChip(b), ".") : null,
      groups,
    ];
  }

  function suggested() {
    if (!suggestions.length) return el("p", { class: "nothing" }, `No change that was tried leaves fewer groups of ${names[0]} without signal and keeps all else.`);
    const columns = [
      { head: "change", words: true, value: (row) => row.change, cell: (row) => el("code", {}, row.change) },
      { head: "dead groups", value: (row) => row.groups_without_signal, show: rate },
      { head: "now", value: (row) => row.was, show: rate },
      { head: "guarantees kept", words: true, value: (row) => row.kept.join(", ") || NONE },
      { head: "remarks", words: true, value: (row) => row.remarks.join(", ") || NONE },
    ];
    return [
      table(columns, suggestions, { name: "suggestions" }),
      el("p", { class: "about" }, "None breaks a guarantee in groups of 2 and 3, or adds a remark. They were tried on these rollouts alone."),
    ];
  }

  function specs() {
    const columns = [
      { head: "", words: true, value: (row) => row.what, cell: (row) => el("code", {}, row.what) },
      ...names.map((name, i) => ({ head: label.get(name), words: true, value: (row) => row[["before", "after"][i]], cell: (row) => el("code", {}, row[["before", "after"][i]] ?? NONE) })),
    ];
    return [
      names.length > 1 ? (changes.length ? table(columns, changes, { name: "what differs" }) : el("p", { class: "nothing" }, "Both say the same.")) : null,
      el(
        "div",
        { class: "columns" },
        found.specs.map((spec, i) => {
          const { largest } = spec.logged;
          const said = [
            ["right is", spec.outcome === null ? "not declared: dead groups are not told apart" : el("code", {}, spec.outcome)],
            ["advantages of the log", largest === null ? "not logged" : el("span", {}, "within ", exact(largest, number(largest)), ` of its own, ${several(spec.logged.rollouts, "rollout")}`)],
            ...spec.notes.map((note) => ["note", note]),
          ];
          return el("div", { class: "column" }, names.length > 1 ? el("h3", {}, specChip(spec.name)) : null, pairs(said), sourceOf(label.get(spec.name), sources[i].text));
        }),
      ),
    ];
  }

  function limits() {
    const lost = found.lost.map((one) => el("li", {}, "Not in the log: ", words(one), "."));
    return el("ul", { class: "limits" }, NOT_KNOWN.map((one) => el("li", {}, one)), lost, notes.map((one) => el("li", {}, one)));
  }
}

// What the specs of a page are called: their names; where two are compared, with A and B before them. Two of one name
// that differ in one thing have that behind it.
function labelsOf(specs, changes) {
  if (specs.length === 1) return new Map([[specs[0].name, specs[0].name]]);
  const plain = ({ name, fingerprint }) => (name.endsWith(` (${fingerprint})`) ? name.slice(0, -fingerprint.length - 3) : name);
  const names = specs.map(plain);
  const [change] = changes.length === 1 && names[0] === names[1] ? changes : [null];
  const own = change === null ? ["", ""] : [change.before, change.after].map((text) => (text && text.length < 40 ? `: ${text}` : ""));
  return new Map(specs.map((spec, i) => [spec.name, `${"AB"[i]} ${names[i]}${own[i]}`]));
}

function meter(part, which) {
  const drawn = el("i");
  drawn.style.width = `${100 * (part ?? 0)}%`;
  return el("span", { class: `part ${which}`, "aria-hidden": "true" }, drawn);
}

function sourceOf(name, text) {
  return el("details", { class: "fold" }, el("summary", {}, `The text of ${name}`), textOf("spec", text));
}
