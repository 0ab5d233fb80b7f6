// What several screens are made of.

import { h } from "./dom.js";
import { hue, short, stateOf } from "./model.js";

export const MOST = 300; // rows of a list; who wants more names what is wanted
export const to = (kind, id, text) => h("a", { href: `#/${kind}/${encodeURIComponent(id)}` }, text);
export const grape = (data, network) => h("i", { class: `grape n${hue(data.networks, network)}` });
export const network = (data, name) => [grape(data, name), to("network", name, short(name))];
export const hostLink = (data, name) => {
  const n = data.nodes.find((n) => n.name === name);
  return n ? to("host", n.id, name) : name;
};
export const state = (node) => {
  const { mark, text } = stateOf(node);
  return h("span.state", { class: mark }, text);
};
export const command = (text) => h("p.command", {}, "On the command line: ", h("code", {}, text));
export const several = (list) => list.flatMap((x, i) => (i ? [", ", x] : [x]));
export const none = (what) => [h("h1", {}, what), h("p", {}, "It may have gone. ", h("a", { href: "#/" }, "Back to all of it"), ".")];

/** ask is a question with what it is about; what is empty is left out. */
export const ask = (question, about) => {
  const q = new URLSearchParams(Object.entries(about).filter(([, value]) => value != null && value !== "")).toString();
  return q ? `${question}?${q}` : question;
};
