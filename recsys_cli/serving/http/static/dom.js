// Elements from data. Text is inserted as text only: titles are untrusted.

export const byId = (id) => document.getElementById(id);

/** Create an element with properties, attributes (`class`, `role`, names with a hyphen), listeners (`on...`) and children. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  if (tag === "button") made.type = "button";
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name.includes("-") || name === "role" || name === "class") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children.flat().filter((child) => child));
  return made;
}

/** Title of an item, or its id. */
export const label = (item) => item.title || String(item.id);

/** Feature values of an item for people; numbers have the name of their feature. */
export const valuesOf = (item) => Object.entries(item.features).flatMap(([name, values]) =>
  values.map((value) => (value.trim() && Number.isFinite(Number(value)) ? `${name} ${value}` : value)));

/** "1 item", "2 items". */
export const counted = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
