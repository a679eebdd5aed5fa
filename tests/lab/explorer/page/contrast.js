// Contrast of two colours, as WCAG 2 defines it: from 1 to 21.

/** @type {(colour: number[]) => number} */
function luminance(colour) {
  const [red, green, blue] = colour.map((part) => part / 255).map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** @type {(one: number[], other: number[]) => number} */
export function contrast(one, other) {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}
