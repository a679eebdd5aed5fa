const [rows, columns] = data.grid, patches = rows * columns;
const CELL = Math.max(8, Math.floor(300 / Math.max(rows, columns))), SMALL = Math.max(4, Math.floor(180 / Math.max(rows, columns)));

const image = document.getElementById("image"), where = document.getElementById("where");
image.width = CELL * columns;
image.height = CELL * rows;
const picture = new Image();
let chosen = Math.floor(rows / 2) * columns + Math.floor(columns / 2);

const maps = data.maps.map(map => {
  const figure = document.createElement("figure"), canvas = document.createElement("canvas");
  const caption = document.createElement("figcaption");
  canvas.width = SMALL * columns;
  canvas.height = SMALL * rows;
  caption.textContent = `${map.name}, ±${map.top.toPrecision(2)}`;
  figure.append(canvas, caption);
  document.getElementById("maps").append(figure);
  canvas.addEventListener("mousemove", event => {
    const j = cellOf(event, SMALL);
    if (j >= 0) caption.textContent = `${map.name}: ${(values[chosen * patches + j] * map.top).toPrecision(3)}`;
  });
  canvas.addEventListener("mouseleave", () => { caption.textContent = `${map.name}, ±${map.top.toPrecision(2)}`; });
  const values = shares(map);
  return { canvas, values };
});

function cellOf(event, size) {
  const row = Math.floor(event.offsetY / size), column = Math.floor(event.offsetX / size);
  return row >= 0 && column >= 0 && row < rows && column < columns ? row * columns + column : -1;
}

function outline(context, size) {
  const row = Math.floor(chosen / columns), column = chosen % columns;
  for (const [style, width] of [["white", 4], ["black", 2]]) {
    context.strokeStyle = style;
    context.lineWidth = width;
    context.strokeRect(column * size + 1, row * size + 1, size - 2, size - 2);
  }
}

function draw() {
  const context = image.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(picture, 0, 0, image.width, image.height);
  outline(context, CELL);
  where.textContent = `patch in row ${Math.floor(chosen / columns) + 1}, column ${chosen % columns + 1}`;
  for (const { canvas, values } of maps) {
    const small = canvas.getContext("2d");
    for (let j = 0; j < patches; j++) {
      small.fillStyle = `rgb(${colour(values[chosen * patches + j])})`;
      small.fillRect((j % columns) * SMALL, Math.floor(j / columns) * SMALL, SMALL, SMALL);
    }
    outline(small, SMALL);
  }
}

function choose(patch) {
  if (patch >= 0 && patch < patches) chosen = patch;
  draw();
}

image.addEventListener("click", event => choose(cellOf(event, CELL)));
image.addEventListener("keydown", event => {
  const column = chosen % columns;
  const steps = { ArrowUp: -columns, ArrowDown: columns, ArrowLeft: column ? -1 : 0, ArrowRight: column < columns - 1 ? 1 : 0 };
  if (event.key in steps) {
    event.preventDefault();
    choose(chosen + steps[event.key]);
  }
});
picture.onload = draw;
picture.src = data.image;
