// Elements are made from text alone: nothing that stands in a record is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

/** `element("a", {href: "#x"}, "text", child)`; attributes that are null or false are left out. */
function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
function shape(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

/** A table that scrolls inside its own box; `rows` hold text or elements, the first of a row is its heading. */
function table(heads, rows, label) {
  const head = element("tr", {}, heads.map((text) => element("th", { scope: "col" }, text)));
  const body = rows.map((cells) =>
    element("tr", {}, cells.map((cell, at) => (at ? element("td", {}, cell) : element("th", { scope: "row" }, cell)))),
  );
  const made = element("table", {}, element("thead", {}, head), element("tbody", {}, body));
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, made);
}

/** A list of names and values; pairs without a value are left out. */
function pairs(entries) {
  const kept = entries.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return element("dl", {}, kept.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

/** A number with at most `digits` significant digits, in the shorter of its two forms. */
function digits(number, digits = 4) {
  if (typeof number !== "number") return String(number);
  if (Number.isInteger(number) && Math.abs(number) < 1e7) return String(number);
  const size = Math.abs(number);
  return size !== 0 && (size < 1e-3 || size >= 1e6)
    ? number.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e")
    : String(Number(number.toPrecision(digits)));
}

/** What a value of a record or configuration looks like. */
function shown(value) {
  if (value === null) return "none";
  if (Array.isArray(value)) return value.map(shown).join(", ");
  if (typeof value === "object") return JSON.stringify(value);
  return typeof value === "number" ? digits(value, 6) : String(value);
}
