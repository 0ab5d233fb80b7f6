// One loop: see which screen the address is of, ask what it needs, draw it, wait.

import { become, h, words } from "./dom.js";
import { clock } from "./model.js";
import { ask, enter, Refused } from "./net.js";
import { menu, screens } from "./screens.js";

const EVERY = 2000; // milliseconds between questions; a hidden tab asks nothing
const REST = 4; // and so many times as long as the last answers took,
const LONGEST = 10000; // but no longer than this: what an agent says that hung is old
const LATE = 3000; // an answer that takes longer: what is on the screen is old meanwhile
const part = { drops: "traffic", policy: "policies" }; // of which entry of the menu a screen is
const main = document.getElementById("screen"), live = document.getElementById("live"), field = document.querySelector("#find input");
let turn = 0, timer = 0, late = 0, heard = 0; // heard: when the agent last answered all that a screen needs
let told = false; // what is shown is that nothing is known
let round = new AbortController();
let drawn = { key: "", values: [] };

/** decoded is a part of an address, which somebody may have typed. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** where is what the address says. */
function where() {
  const hash = location.hash;
  const [path, search] = hash.replace(/^#\/?/, "").split("?");
  const [kind, ...rest] = path.split("/");
  return { hash, kind, name: decoded(rest.join("/")), query: new URLSearchParams(search ?? "") };
}

function say(mark, text, old = false) {
  told = mark === "bad" && !old;
  become(live, h("span", { class: `live ${mark}`, id: "live", role: "status" }, text));
  document.body.classList.toggle("old", old);
}

/** silence says since when nothing is known, and greys what was known then. */
const silence = (old) => say("bad", heard ? `no answer since ${clock(heard)}` : "no answer", old);

/** optional asks what a screen can do without, if there is an agent. */
const optional = (q, most) => ask(q, most).catch((e) => (e.status === 401 || e.status === 0 ? Promise.reject(e) : undefined));

/** look asks what a screen needs. silent: the status, which comes first, says that the agent is. */
async function look(screen, at, asked, status, silent, most) {
  if (silent && asked.some((q) => !["status", "kinds"].includes(q) && !q.startsWith("?"))) throw new Refused(502, status.problems[0].what);
  const answers = await Promise.all(asked.map((q) => (q === "status" ? status : !q.startsWith("?") ? ask(q, most) : silent ? undefined : optional(q.slice(1), most))));
  const question = screen.more?.(at);
  return [...answers, question ? await ask(question, most) : undefined];
}

async function show(again = false) {
  clearTimeout(timer);
  clearTimeout(late);
  round.abort(); // nobody waits for the screen before any more
  round = new AbortController();
  const mine = ++turn;
  const at = where(), screen = screens[at.kind] ?? screens[""], began = performance.now();
  const most = { signal: round.signal, seconds: screen.once ? 150 : 30 };
  let well = false;
  nav(at.kind);
  if (document.activeElement !== field || !again && at.kind !== "containers") field.value = at.kind === "containers" ? at.query.get("find") ?? "" : "";
  if (screen.once) say("", "asking");
  else late = setTimeout(() => silence(!told), LATE);
  try {
    const asked = screen.needs.map((q) => (typeof q === "function" ? q(at) : q));
    const status = await ask("status", most); // while an agent hangs, nothing else waits for it
    well = !status.problems?.some((p) => p.code === "agent-silent");
    const answers = await look(screen, at, asked, status, !well, most);
    if (mine !== turn || at.hash !== location.hash) return; // another screen is wanted by now
    clearTimeout(late);
    draw(screen, { ...at, more: answers.at(-1) }, asked, answers);
    if (well) heard = Date.now(), say("ok", "live");
    else silence(false); // what is shown is why
  } catch (e) {
    if (mine !== turn) return;
    clearTimeout(late);
    if (!(e instanceof Refused)) throw e;
    fail(e, again, screen, well);
  }
  if (!screen.once && !document.hidden) timer = setTimeout(() => show(true), Math.min(LONGEST, Math.max(EVERY, REST * (performance.now() - began))));
}

/** draw draws what is not drawn yet. */
function draw(screen, at, asked, answers) {
  const key = at.hash, width = main.clientWidth - 2 * parseFloat(getComputedStyle(main).paddingLeft);
  const values = [...answers, width];
  if (key === drawn.key && values.every((v, i) => v === drawn.values[i])) return;
  const begin = performance.now();
  const data = Object.fromEntries(asked.map((q, i) => [q.replace(/^\?/, "").split("?")[0], answers[i]]));
  const now = h("main", { id: "screen", tabindex: "-1", "data-at": key }, screen.draw(data, { ...at, width }));
  if (drawn.key.split("?")[0] === key.split("?")[0]) become(main, now);
  else {
    main.replaceChildren(...now.childNodes);
    main.dataset.at = key;
    if (drawn.key) main.focus({ preventScroll: true }), window.scrollTo(0, 0);
  }
  drawn = { key, values };
  document.title = `${at.name || screen.title || "grapevine"} · grapevine`;
  performance.measure("draw", { start: begin, detail: at.kind });
}

/** fail says why there is no answer; well: the agent answers, and has none to this. */
function fail(e, again, screen, well = false) {
  if (e.status === 401) say("bad", "not signed in");
  else if (well && !again) say("ok", "live");
  else silence(again && !told);
  if (again && e.status !== 401) return; // what was known stays on the screen
  drawn = { key: "", values: [] };
  main.replaceChildren(h("section.panel.health.bad", { role: "alert" }, h("div.verdict", {}, h("h1", {}, e.status === 401 ? "Open the address anew" : `No answer${screen.title ? ` for ${screen.title}` : ""}`), h("p", {}, words(e.message)))));
}

function nav(kind) {
  become(document.getElementById("nav"), h("nav", { id: "nav", "aria-label": "Screens" }, menu.map((k) =>
    h("a", { href: `#/${k}`, "aria-current": (k === kind || k === `${kind}s` || k === part[kind]) && "page" }, screens[k].title))));
}

document.addEventListener("submit", (e) => {
  e.preventDefault();
  const form = new FormData(e.target);
  const go = e.target.dataset.do === "trace"
    ? `#/trace?from=${encodeURIComponent(form.get("from").trim())}&to=${encodeURIComponent(form.get("to").trim())}`
    : `#/containers?find=${encodeURIComponent(form.get("find").trim())}`;
  if (location.hash === go) show();
  else location.hash = go;
});
document.addEventListener("keydown", (e) => {
  if (e.key !== "/" || e.ctrlKey || e.metaKey || e.target.closest("input, textarea")) return;
  e.preventDefault();
  field.focus();
});
let typing = 0;
field.addEventListener("input", (e) => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    const text = e.target.value.trim();
    if (!text && where().kind !== "containers") return;
    history.replaceState(null, "", `#/containers${text ? `?find=${encodeURIComponent(text)}` : ""}`);
    show();
  }, 150);
});
window.addEventListener("hashchange", async () => {
  if (!location.hash.startsWith("#/")) await begin();
  else show();
});
let resized = 0;
window.addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => show(true), 150);
});
document.addEventListener("visibilitychange", () => document.hidden || show(true));

async function begin() {
  try {
    await enter();
  } catch (e) {
    if (!(e instanceof Refused)) throw e;
    return fail(e, false, {});
  }
  return show();
}
begin();
