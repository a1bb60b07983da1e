// Differences of two answers: new items, moves and items that are gone.

const key = (entry) => `${typeof entry.item.id}:${entry.item.id}`;

/** Return a change per item ("new", the number of ranks up, negative for down, 0) and the entries that are gone. */
export function compare(before, after, ignored = new Set()) {
  if (!before) return { changes: after.map(() => null), gone: [] };
  // Removing an item moves everything below it up: that alone is no change worth a mark.
  const stayed = new Set(after.map(key));
  const old = new Map(before.filter((entry) => stayed.has(key(entry))).map((entry, row) => [key(entry), row]));
  const kept = after.filter((entry) => old.has(key(entry)));
  const now = new Map(kept.map((entry, row) => [key(entry), row]));
  const changes = after.map((entry) => (old.has(key(entry)) ? old.get(key(entry)) - now.get(key(entry)) : "new"));
  const gone = before.filter((entry) => !stayed.has(key(entry)) && !ignored.has(String(entry.item.id)));
  return { changes, gone };
}

/** Return the changes in a sentence; empty without changes. */
export function sentence({ changes, gone }) {
  const parts = [
    [changes.filter((change) => change === "new").length, "new"],
    [changes.filter((change) => change > 0).length, "moved up"],
    [changes.filter((change) => change < 0).length, "moved down"],
    [gone.length, "gone"],
  ];
  return parts.filter(([number]) => number).map(([number, text]) => `${number} ${text}`).join(", ");
}
