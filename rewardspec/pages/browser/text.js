// Elements and text. Every text of the page passes `visible`, and becomes a text node: none is read as HTML.

const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;

// A character that has no glyph, or that turns the text around, as Python escapes it.
function escaped(char) {
  const code = char.codePointAt(0);
  const [mark, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${mark}${code.toString(16).padStart(digits, "0")}`;
}

function visible(text) {
  return String(text).replace(UNSEEN, (char) => (char === "\n" || char === "\t" ? char : escaped(char)));
}

// An element. attributes: as of HTML; `on` has listeners, by event. children: texts, elements; null is none.
function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    } else if (value !== null && value !== false) {
      made.setAttribute(name, value === true ? "" : visible(value));
    }
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) {
      made.append(child instanceof Node ? child : document.createTextNode(visible(child)));
    }
  }
  return made;
}

// Our own sentences, in which `names` in backticks are code.
function words(text) {
  return String(text).split(/`([^`]*)`/).map((part, i) => (i % 2 ? el("code", {}, part) : part));
}

// A long text of others in which what cannot be seen is shown by its number, and set apart from what was written so.
function quoted(text) {
  const made = el("pre", { class: "quoted", dir: "auto" });
  let from = 0;
  for (const found of String(text).matchAll(UNSEEN)) {
    if (found[0] === "\n" || found[0] === "\t") continue;
    made.append(text.slice(from, found.index), el("span", { class: "unseen" }, escaped(found[0])));
    from = found.index + found[0].length;
  }
  made.append(text.slice(from));
  return made;
}

const NONE = "–";

function number(value) {
  if (value === null || value === undefined) return NONE;
  if (typeof value !== "number") return String(value);
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(2);
  if (size >= 100) return value.toLocaleString("en-US", { maximumFractionDigits: size < 1000 ? 1 : 0 });
  return String(Number(value.toPrecision(3)));
}

function rate(value) {
  return value === null || value === undefined ? NONE : `${(100 * value).toFixed(1)}%`;
}

function count(value) {
  return value === null || value === undefined ? NONE : value.toLocaleString("en-US");
}

function plain(value) {
  return value === null || value === undefined ? NONE : typeof value === "string" ? value : JSON.stringify(value);
}

function several(n, what) {
  return `${count(n)} ${what}${n === 1 ? "" : "s"}`;
}

// A value in a cell, with all of its digits for those who point at it.
function exact(value, shown) {
  const whole = value === null || value === undefined ? null : plain(value);
  return el("span", { title: whole === shown || whole === null ? null : whole, "data-value": whole }, shown);
}
