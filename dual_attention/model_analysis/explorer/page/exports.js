// Views as files: pictures, and the numbers on the screen. Nothing leaves this machine.

const MOST_NUMBERS = 4e6;

function save(name, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function fileName(map, ending) {
  return `${map.title.replace(/[^\w.]+/g, "-")}.${ending}`;
}

function savePicture(view) {
  view.canvas.toBlob((blob) => save(fileName(view.map, "png"), blob));
}

const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);

// Pairs in view, a line each: places, tokens and value.
function csvOf(view) {
  const { r0, r1, c0, c1 } = view.window, { map, labels } = view;
  if ((r1 - r0) * (c1 - c0) > MOST_NUMBERS) throw new Error("CSV: too many pairs are in view; make the map larger first");
  const lines = ["receiver,receiver_token,sender,sender_token,value"], row = new Float32Array(c1 - c0);
  for (let i = r0; i < r1; i++) {
    map.fill(i, i + 1, c0, c1, row);
    for (let j = c0; j < c1; j++) {
      const value = row[j - c0];
      if (value === value) lines.push([i, quoted(labels.receivers[i]), j, quoted(labels.senders[j]), value].join(","));
    }
  }
  return `${lines.join("\n")}\n`;
}

function saveNumbers(view) {
  save(fileName(view.map, "csv"), new Blob([csvOf(view)], { type: "text/csv" }));
}

const MOST_FIELDS = 40000;

// Pairs in view as a drawing of squares, with tokens above and at the left, for papers.
function svgOf(view) {
  const { r0, r1, c0, c1 } = view.window, { map, labels, look } = view, size = 12, left = 90, top = 90;
  if ((r1 - r0) * (c1 - c0) > MOST_FIELDS) throw new Error("SVG: too many pairs are in view; make the map larger first, or save a PNG");
  const escaped = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
  const width = left + (c1 - c0) * size, height = top + (r1 - r0) * size, row = new Float32Array(c1 - c0);
  const ink = look.theme === "dark" ? "#eceae5" : "#1d1c1a", ground = look.theme === "dark" ? "#16171a" : "#fbfaf8";
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}">`,
    `<title>${escaped(map.title)}</title><rect width="100%" height="100%" fill="${ground}"/>`,
    `<g font-family="sans-serif" font-size="${size * 0.8}" fill="${ink}">`,
  ];
  for (let j = c0; j < c1; j++) {
    parts.push(`<text transform="translate(${left + (j - c0 + 0.75) * size},${top - 4}) rotate(-90)">${escaped(labels.senders[j])}</text>`);
  }
  for (let i = r0; i < r1; i++) {
    const y = top + (i - r0) * size;
    parts.push(`<text x="${left - 4}" y="${y + size * 0.75}" text-anchor="end">${escaped(labels.receivers[i])}</text>`);
  }
  parts.push('</g><g shape-rendering="crispEdges">');
  for (let i = r0; i < r1; i++) {
    map.fill(i, i + 1, c0, c1, row);
    for (let j = c0; j < c1; j++) {
      if (row[j - c0] !== row[j - c0]) continue;
      const place = `x="${left + (j - c0) * size}" y="${top + (i - r0) * size}"`;
      parts.push(`<rect ${place} width="${size}" height="${size}" fill="rgb(${colourOf(row[j - c0], map, look)})"/>`);
    }
  }
  return `${parts.join("\n")}\n</g></svg>\n`;
}

function saveDrawing(view) {
  save(fileName(view.map, "svg"), new Blob([svgOf(view)], { type: "image/svg+xml" }));
}
