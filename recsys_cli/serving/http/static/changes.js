// Differences of two lists: new items, moves and items that are gone.

const key = (entry) => String(entry.item.id);

/** Return a change per entry ("new", or ranks up among the common items, negative for down) and the gone entries but the liked ones. */
export function compare(before, after, liked) {
  if (!before) return { changes: [], gone: [] };
  const now = new Set(after.map(key));
  const stayed = before.map(key).filter((id) => now.has(id)); // a rank left by a liked item is no move
  const common = after.map(key).filter((id) => stayed.includes(id));
  const changes = after.map(key).map((id) => (stayed.includes(id) ? stayed.indexOf(id) - common.indexOf(id) : "new"));
  return { changes, gone: before.filter((entry) => !now.has(key(entry)) && !liked.has(key(entry))) };
}

/** Return the changes in a sentence; empty without changes. */
export function sentence({ changes, gone }) {
  const number = (test) => changes.filter(test).length;
  const parts = [[number((one) => one === "new"), "new"], [number((one) => one > 0), "moved up"], [number((one) => one < 0), "moved down"], [gone.length, "gone"]];
  return parts.filter(([count]) => count).map(([count, text]) => `${count} ${text}`).join(", ");
}
