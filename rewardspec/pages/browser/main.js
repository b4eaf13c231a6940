// The frame of a page: title, contents, sections, and the switch of its colours.

const PAGES = { replay: replayPage, report: reportPage };

function main() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { board, sections, subject, chips } = PAGES[data.kind](data);
  const there = sections.filter(([, , content]) => content !== null);
  const header = el(
    "header",
    { class: "top" },
    el("div", { class: "line" }, el("p", { class: "kind" }, data.heading), themeSwitch(() => board.draw())),
    el("h1", {}, data.title),
    subject.map((line) => el("p", { class: "subject" }, line)),
    el("p", { class: "chips" }, chips),
    el("nav", { "aria-label": "Sections" }, there.map(([id, title]) => el("a", { href: `#${id}` }, title))),
  );
  const parts = there.map(([id, title, content]) => el("section", { id }, el("h2", {}, title), content));
  const footer = el("footer", {}, `Written by rewardspec ${data.version}. This file asks no network for anything; its numbers are JSON, in the element `, el("code", {}, "#data"), ".");
  document.body.append(el("main", {}, header, parts, footer));
  return board.draw();
}

main();
