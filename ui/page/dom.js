// Elements. Whatever is text becomes a text node: a container's name is somebody else's words.

const SVG = "http://www.w3.org/2000/svg";

/**
 * h makes an element; false, null and undefined among its children and attributes are left out.
 * @param {string} tag "div", "a.act"; of SVG with "svg:" in front
 * @param {Record<string, any>} attributes
 * @param {...any} children nodes, text, or lists of them
 */
export function h(tag, attributes = {}, ...children) {
  const [name, ...classes] = tag.replace("svg:", "").split(".");
  const e = tag.startsWith("svg:") ? document.createElementNS(SVG, name) : document.createElement(name);
  if (classes.length) e.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value == null) continue;
    if (key === "class") e.setAttribute("class", [...classes, value].join(" "));
    else e.setAttribute(key, value === true ? "" : String(value));
  }
  e.append(...children.flat(Infinity).filter((c) => c !== false && c != null).map((c) => (c instanceof Node ? c : String(c))));
  return e;
}

/**
 * become makes an element what another is, and touches only what differs: focus, selection, and what is
 * folded out stay while the page is asked anew.
 */
export function become(old, now) {
  for (const { name } of [...old.attributes]) if (!now.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const { name, value } of now.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const wanted = [...now.childNodes];
  wanted.forEach((w, i) => {
    const have = old.childNodes[i];
    if (!have) old.append(w);
    else if (have.nodeName !== w.nodeName || have.nodeType !== w.nodeType) have.replaceWith(w);
    else if (have instanceof Element) become(have, w);
    else if (have.nodeValue !== w.nodeValue) have.nodeValue = w.nodeValue;
  });
  while (old.childNodes.length > wanted.length) old.lastChild.remove();
}

/** words are text in which commands stand in backticks. */
export function words(text) {
  return text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));
}

/** table is rows of cells under headings; a row is an element or a list of cells. */
export function table(headings, rows, attributes = {}) {
  return h("div.wide", { tabindex: "0", role: "group", "aria-label": "table" }, h("table", attributes,
    h("thead", {}, h("tr", {}, headings.map((t) => h("th", { scope: "col" }, t)))),
    h("tbody", {}, rows.map((row) => (row instanceof Node ? row : h("tr", {}, row.map((cell) => h("td", {}, cell))))))));
}

/** facts are terms and what they are; those without are left out. */
export function facts(list) {
  return h("dl", {}, list.filter(([, value]) => value != null && value !== false && value !== "" && !(Array.isArray(value) && !value.length))
    .map(([term, ...value]) => [h("dt", {}, term), h("dd", {}, value)]));
}

/** panel is a part of a screen. */
export function panel(title, ...children) {
  return h("section.panel", {}, title && h("h2", {}, title), children);
}
