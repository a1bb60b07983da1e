// Requests to the server of this page, and to no other.

let token = sessionStorage.getItem("token");

export function setToken(value) {
  token = value;
  sessionStorage.setItem("token", value);
}

/** Error of a request with its HTTP status, 0 without an answer. */
const failure = (message, status) => Object.assign(new Error(message), { status });

async function request(method, path, body) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (token) headers.Authorization = `Bearer ${token}`;
  const response = await fetch(path, { method, headers, body: JSON.stringify(body) }).catch(() => null);
  if (response === null) throw failure("The server does not answer. Is recsys serve still running?", 0);
  const content = await response.json().catch(() => null);
  if (!response.ok) throw failure(reasonOf(response.status, content), response.status);
  return content;
}

function reasonOf(status, content) {
  if (status === 401) return "This server needs an access token.";
  if (status === 429) return "The server is busy. Try again in a second.";
  if (!content?.error) return `The server answered with status ${status}.`;
  const hint = content.hint?.startsWith("/") ? "" : content.hint; // a path of the documentation is for programs
  return hint ? `${content.error} (${hint})` : content.error;
}

const itemOf = ({ item, title, features, feedback }) => ({ id: item, title, features: features ?? {}, feedback });
const entryOf = (raw) => ({ item: itemOf(raw), score: raw.score, because: raw.because ?? [] });
const WORDS = [["the anonymous user has", "this user has"], [" of items in train", ""], ["give item ids as the history", "add titles that the user likes"]];
/** A note of the server, which speaks to programs, for people. */
const noteOf = (text) => WORDS.reduce((note, [theirs, ours]) => note?.replace(theirs, ours), text);
const answerOf = (raw) => ({ ...raw, note: noteOf(raw.note), items: raw.items.map(entryOf) });

/** Path with encoded segment and query; undefined values are left out. */
function url(path, id, values = {}) {
  const given = Object.entries(values).filter(([, value]) => value !== undefined);
  return path + encodeURIComponent(String(id)) + (given.length ? `?${new URLSearchParams(given)}` : "");
}

export const bundles = async () => (await request("GET", "bundles")).bundles;
export const examples = async (k) => (await request("GET", url("users", "", { k }))).users;
export const recommend = async (query) => answerOf(await request("POST", "recommend", query));
export const similar = async (id, bundle) => answerOf(await request("GET", url("similar/", id, { k: 5, bundle })));
export const search = async (text, bundle) =>
  (await request("GET", url("items", "", { search: text, k: 8, bundle }))).items.filter((one) => !one.hidden).map(itemOf);
export async function userOf(id, bundle) {
  const found = await request("GET", url("users/", id, { k: 50, bundle }));
  return { ...found, history: found.history.map(itemOf) };
}
export const like = (user, item) => request("POST", "feedback", { events: [{ user, item }] });
export const unlike = (user, item) => request("DELETE", url("feedback", "", { user, item }));
