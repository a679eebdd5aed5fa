const rows = data.receivers.length, columns = data.senders.length;
const LINES = 40, LISTED = 12;
const visible = unpack(data.visible);
for (const matrix of data.matrices) matrix.values = shares(matrix);

const byId = id => document.getElementById(id);
const number = value => value.toPrecision(3);

// One pixel for each pair, to be drawn larger.
function picture(matrix) {
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  const image = new ImageData(columns, rows);
  for (let n = 0; n < rows * columns; n++)
    image.data.set(visible[n] ? [...colour(matrix.values[n]), 255] : [217, 217, 217, 255], 4 * n);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

let chosen = 0, receiver = 0;
const CELL = Math.max(3, Math.min(18, Math.floor(560 / Math.max(rows, columns))));
const FONT = `${Math.min(12, CELL - 1)}px system-ui, sans-serif`;
const named = CELL >= 8;

function margins(context) {
  if (!named) return [0, 0];
  context.font = FONT;
  const widest = labels => Math.ceil(Math.max(...labels.map(label => context.measureText(label).width))) + 6;
  return [widest(data.receivers), widest(data.senders)];
}

function drawMatrix() {
  const canvas = byId("matrix"), context = canvas.getContext("2d"), scale = window.devicePixelRatio || 1;
  const [left, top] = margins(context), width = left + CELL * columns, height = top + CELL * rows;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.width = `${width}px`;
  context.scale(scale, scale);
  context.imageSmoothingEnabled = false;
  context.drawImage(picture(data.matrices[chosen]), left, top, CELL * columns, CELL * rows);
  if (named) {
    context.font = FONT;
    context.fillStyle = "#222";
    context.textBaseline = "middle";
    context.textAlign = "right";
    data.receivers.forEach((label, i) => context.fillText(label, left - 4, top + CELL * (i + 0.5)));
    context.textAlign = "left";
    data.senders.forEach((label, j) => {
      context.save();
      context.translate(left + CELL * (j + 0.5), top - 4);
      context.rotate(-Math.PI / 2);
      context.fillText(label, 0, 0);
      context.restore();
    });
  }
  context.strokeStyle = "#222";
  context.lineWidth = 2;
  context.strokeRect(left, top + CELL * receiver, CELL * columns, CELL);
}

function pairAt(event) {
  const canvas = byId("matrix"), [left, top] = margins(canvas.getContext("2d"));
  const j = Math.floor((event.offsetX - left) / CELL), i = Math.floor((event.offsetY - top) / CELL);
  return i >= 0 && j >= 0 && i < rows && j < columns ? [i, j] : null;
}

function say(i, j) {
  const matrix = data.matrices[chosen], n = i * columns + j;
  const value = visible[n] ? number(matrix.values[n] * matrix.top) : "not visible";
  byId("value").textContent = `${data.receivers[i]} (${i}) ← ${data.senders[j]} (${j}): ${value}`;
}

// Pairs that may be attended, the largest first; of one receiver, or of all.
function largest(count, of) {
  const values = data.matrices[chosen].values, found = [];
  for (let n = of === undefined ? 0 : of * columns; n < (of === undefined ? rows : of + 1) * columns; n++)
    if (visible[n]) found.push(n);
  return found.sort((a, b) => Math.abs(values[b]) - Math.abs(values[a])).slice(0, count);
}

function drawLines() {
  const svg = byId("arcs"), matrix = data.matrices[chosen], box = svg.getBoundingClientRect();
  svg.style.height = `${Math.max(byId("left").offsetHeight, byId("right").offsetHeight)}px`;
  const middle = part => part.offsetTop - part.parentNode.offsetTop + part.offsetHeight / 2;
  const from = middle(byId("left").children[receiver]);
  const lines = largest(LINES, receiver).reverse().map(n => {
    const share = matrix.values[n], line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    const to = middle(byId("right").children[n % columns]);
    const set = { x1: 0, y1: from, x2: box.width, y2: to, stroke: `rgb(${colour(2 / 3 * (Math.sign(share) || 1))})` };
    set["stroke-width"] = 0.4 + 4.6 * Math.abs(share);
    set["stroke-opacity"] = 0.15 + 0.8 * Math.abs(share);
    for (const key in set) line.setAttribute(key, set[key]);
    return line;
  });
  svg.replaceChildren(...lines);
  [...byId("left").children].forEach((part, i) => part.setAttribute("aria-current", i === receiver));
}

function listLargest() {
  const matrix = data.matrices[chosen];
  byId("largest").replaceChildren(...largest(LISTED).map(n => {
    const row = document.createElement("tr"), i = Math.floor(n / columns), j = n % columns;
    for (const text of [`${data.receivers[i]} (${i})`, `${data.senders[j]} (${j})`, number(matrix.values[n] * matrix.top)])
      row.appendChild(document.createElement("td")).textContent = text;
    return row;
  }));
}

function receive(i) {
  receiver = i;
  drawMatrix();
  drawLines();
}

// The receiver, in the middle of the part of the tokens that is seen.
function show(i) {
  receive(i);
  const lines = byId("lines"), part = byId("left").children[i];
  lines.scrollTop = part.offsetTop - lines.offsetTop - lines.clientHeight / 2;
}

function choose(index) {
  chosen = index;
  [...byId("thumbs").children].forEach((part, n) => part.setAttribute("aria-selected", n === index));
  byId("name").textContent = `${data.matrices[index].name}, scale ±${number(data.matrices[index].top)}`;
  listLargest();
  receive(receiver);
}

data.matrices.forEach((matrix, index) => {
  const button = document.createElement("button");
  button.type = "button";
  button.setAttribute("role", "option");
  button.append(picture(matrix), matrix.name);
  button.addEventListener("click", () => choose(index));
  byId("thumbs").append(button);
});
data.receivers.forEach((label, i) => {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = label;
  for (const event of ["mouseenter", "focus"]) button.addEventListener(event, () => receive(i));
  byId("left").append(button);
});
byId("right").append(...data.senders.map(label => Object.assign(document.createElement("span"), { textContent: label })));
byId("matrix").addEventListener("mousemove", event => {
  const pair = pairAt(event);
  if (pair) say(...pair);
});
byId("matrix").addEventListener("click", event => {
  const pair = pairAt(event);
  if (pair) show(pair[0]);
});
choose(0);
show(Math.floor((largest(rows * columns).find(n => Math.floor(n / columns) !== n % columns) ?? 0) / columns));
