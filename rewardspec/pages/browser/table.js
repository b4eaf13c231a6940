// A table that sorts by any column, and shows long ones a part at a time.

const ROWS_AT_ONCE = 50;

// columns: {head, about, value: row => what is sorted by, show: value => text, cell: row => element, words: not numbers}
function table(columns, rows, { name }) {
  let order = null; // as they come
  let shown = ROWS_AT_ONCE;
  const body = el("tbody");
  const heads = columns.map((column, at) => {
    const button = el("button", { type: "button", title: column.about ?? null, on: { click: () => sort(at) } }, column.head);
    return el("th", { scope: "col", class: column.words ? "words" : null, "aria-sort": "none" }, button);
  });
  const more = el("button", { type: "button", class: "more", on: { click: () => ((shown *= 4), fill()) } });

  function sort(at) {
    const down = order === null || order.at !== at ? !columns[at].words : !order.down;
    order = { at, down };
    fill();
  }

  function fill() {
    let found = rows;
    if (order !== null) {
      const value = columns[order.at].value;
      found = [...rows].sort((a, b) => (order.down ? -1 : 1) * compared(value(a), value(b)) || 0);
      const there = (row) => value(row) !== null && value(row) !== undefined;
      found = [...found.filter(there), ...found.filter((row) => !there(row))];
    }
    body.replaceChildren(
      ...found.slice(0, shown).map((row) =>
        el("tr", {}, columns.map((column) => el("td", { class: column.words ? "words" : null }, cell(column, row)))),
      ),
    );
    heads.forEach((head, at) => {
      const own = order !== null && order.at === at;
      head.setAttribute("aria-sort", own ? (order.down ? "descending" : "ascending") : "none");
    });
    more.hidden = rows.length <= shown;
    more.textContent = `show more: ${count(Math.min(shown, rows.length))} of ${count(rows.length)} rows are shown`;
  }

  fill();
  const made = el("table", { "aria-label": name }, el("thead", {}, el("tr", {}, heads)), body);
  return el("div", { class: "table" }, el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, made), more);
}

function cell(column, row) {
  if (column.cell) return column.cell(row);
  const value = column.value(row);
  return exact(value, column.show ? column.show(value) : plain(value));
}

function compared(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

// Rows without a head for each: what, and a value.
function pairs(rows) {
  return el("dl", { class: "pairs" }, rows.map(([what, value]) => el("div", {}, el("dt", {}, what), el("dd", {}, value))));
}
