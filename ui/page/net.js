// What is asked of `grapevine ui`, in the session that the address's token was exchanged for.

const KEY = "grapevine";
const known = new Map(); // by question: {tag, value}

/** Refused is an answer that is an error, in words. */
export class Refused extends Error {
  constructor(status, why) {
    super(why);
    this.status = status;
  }
}

/** enter exchanges the token of the address, if there is one, and takes it out of the address. */
export async function enter() {
  const token = location.hash.slice(1);
  if (!/^[A-Z2-7]{20,}$/.test(token)) return;
  history.replaceState(null, "", location.pathname + "#/");
  const { session } = await say("session", { method: "POST", headers: { Authorization: `Bearer ${token}` } });
  sessionStorage.setItem(KEY, session);
}

/** ask returns an answer; the very same value as before, if it has not changed. It waits so many seconds, or until the signal. */
export async function ask(question, { signal, seconds }) {
  const have = known.get(question);
  const headers = { Authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}` };
  if (have) headers["If-None-Match"] = have.tag;
  return say(`v1/${question}`, { headers, signal: AbortSignal.any([signal, AbortSignal.timeout(1000 * seconds)]) }, have, question);
}

async function say(path, request, have, question) {
  let response, value;
  try {
    response = await fetch(path, { ...request, cache: "no-store", credentials: "omit" });
    if (response.status === 304 && have) return have.value;
    value = await response.json();
  } catch {
    if (response && !response.ok) value = {};
    else throw new Refused(0, "`grapevine ui` does not answer: it has ended, or the tunnel to it has. Start it again, and open what it prints.");
  }
  if (!response.ok) throw new Refused(response.status, value.error ?? `the answer is ${response.status}`);
  if (question) {
    known.delete(question);
    known.set(question, { tag: response.headers.get("ETag"), value });
    if (known.size > 40) known.delete(known.keys().next().value); // each search is a question of its own
  }
  return value;
}
