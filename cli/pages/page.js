"use strict";
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 1080;  // of every picture, in its own units
const place = (id) => document.getElementById(id);
// An element of an SVG picture.
function element(name, attributes = {}, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
// Rows of cells under a head.
function table(head, rows) {
  const made = document.createElement("table");
  for (const [cells, kind] of [[head, "th"], ...rows.map((row) => [row, "td"])]) {
    const row = made.insertRow();
    for (const cell of cells) row.append(Object.assign(document.createElement(kind), {textContent: cell}));
  }
  return made;
}
