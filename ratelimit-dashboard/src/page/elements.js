// Elements, made without HTML: what comes from the service is only ever text.

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.filter((child) => child !== undefined && child !== null));
  return made;
}

/** Writes only what is new, so that screen readers are not told the same again. */
export function say(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

let last = 0;

/** An id for an element that another one names. */
export const id = (of) => `${of}-${++last}`;

export const mayAct = document.querySelector('meta[name=access]').content === 'act';
