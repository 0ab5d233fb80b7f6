// What this host's switch drops: who sent it, where to, why, and what to do.

import { h, panel, words } from "./dom.js";
import { policyOf } from "./model.js";
import { command, to } from "./parts.js";

/** end is who or where to, as a link if it is a container that is known. */
const end = (text, id, is) => (is ? to("container", id ?? text, is === text ? text : `${is} (${text})`) : text);
const ends = (d) => (d.who || d.whereTo) && h("p.way", {}, end(d.who || "somebody", d.endpoint, d.whoIs), " → ", end(d.whereTo || "somewhere", undefined, d.whereToIs));

/** rows are drops with a bar each: how much of the most frequent one. */
function rows(list, most, folded = false) {
  const todo = (d) => (folded ? h("details.todo", {}, h("summary", {}, "To do"), words(d.do)) : h("p.todo", {}, "To do: ", words(d.do)));
  return list.map((d) => h("li.bar", { class: d.class === "alien" ? "alien" : "meant" }, h("span", {}, d.why, policyOf(d.rule ?? "") && [" ", to("policy", policyOf(d.rule), "the policy")]), h("b", { title: "packets" }, d.packets.toLocaleString("en")),
    h("progress", { max: most, value: d.packets, "aria-label": `${d.reason}: packets` }), ends(d), d.do && todo(d)));
}

/** drops is a panel of the worst, or of those that belong to somebody. */
export function drops(data, list = data.drops, title = `Dropped by ${data.status.name}'s switch`) {
  const some = (list ?? []).slice(0, 6);
  return panel(title, some.length === 0 ? h("p.dim", {}, "Nothing that matters.") : h("ul.plain", {}, rows(some, Math.max(...some.map((d) => d.packets)), list === data.drops)),
    h("p.command", {}, (list?.length ?? 0) > some.length && [h("a", { href: "#/drops" }, `${list.length - some.length} more`), ". "], "On the command line: ", h("code", {}, "grapevine drops")));
}

/** dropsOf are those that have the container as one of their ends. */
export function dropsOf(data, c) {
  const mine = new Set(c.places.flatMap((p) => [...p.addrs, p.id]));
  return (data.drops ?? []).filter((d) => mine.has(d.who) || mine.has(d.whereTo) || mine.has(d.endpoint));
}

export const dropped = {
  title: "Drops", needs: ["status", "networks", "drops"],
  draw(data) {
    const of = (kind) => data.drops.filter((d) => (d.class === "alien") === kind), most = Math.max(1, ...data.drops.map((d) => d.packets));
    return [h("h1", {}, `What ${data.status.name}'s switch drops`), h("p.dim", {}, "The switch counts by flow: what drops says who and where to as exactly as it knows. A firewall's drops never come here: those are in ", h("a", { href: "#/traffic?only=unanswered" }, "connections without an answer"), "."),
      [["Nobody honest sends this", of(true)], ["Isolation at work", of(false)]].map(([title, list]) => panel(title, list.length ? h("ul.plain", {}, rows(list, most)) : h("p.dim", {}, "Nothing."))), command("grapevine drops")];
  },
};
