/* Drawings as the network knows digits: 28 × 28 numbers from 0 to 1, the strokes in the middle 20 × 20. */

export const SIDE = 28;
const INNER = 20;

/** A drawing, white on black, cut out, made as large as the digits the network knows, and centred by its mass. */
export function centred(image) {
  const { data, width, height } = image;
  let [left, top, right, bottom] = [width, height, -1, -1];
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++)
      if (data[4 * (y * width + x)] > 40) {
        left = Math.min(left, x);
        right = Math.max(right, x);
        top = Math.min(top, y);
        bottom = Math.max(bottom, y);
      }
  if (right < 0) return new Float32Array(SIDE * SIDE);
  const scale = Math.max(right - left + 1, bottom - top + 1) / INNER;
  const small = new Float32Array(SIDE * SIDE);
  const [middleX, middleY] = [(left + right + 1) / 2, (top + bottom + 1) / 2];
  const at = (place, middle) => middle + (place - SIDE / 2) * scale;
  for (let y = 0; y < SIDE; y++)
    for (let x = 0; x < SIDE; x++)
      small[y * SIDE + x] = mean(image, at(x, middleX), at(y, middleY), at(x + 1, middleX), at(y + 1, middleY));
  return shifted(small, ...toTheMiddle(small));
}

/** Of the pixels whose middles lie in a rectangle; of a tiny one, that of its middle. */
function mean({ data, width, height }, left, top, right, bottom) {
  const [firstX, firstY] = [Math.round(left), Math.round(top)];
  const [endX, endY] = [Math.max(Math.round(right), firstX + 1), Math.max(Math.round(bottom), firstY + 1)];
  let sum = 0;
  for (let y = Math.max(firstY, 0); y < Math.min(endY, height); y++)
    for (let x = Math.max(firstX, 0); x < Math.min(endX, width); x++) sum += data[4 * (y * width + x)];
  return sum / (255 * (endX - firstX) * (endY - firstY));
}

function toTheMiddle(pixels) {
  let [sum, sumX, sumY] = [0, 0, 0];
  pixels.forEach((value, i) => {
    sum += value;
    sumX += value * ((i % SIDE) + 0.5);
    sumY += value * (Math.floor(i / SIDE) + 0.5);
  });
  return [Math.round(SIDE / 2 - sumX / sum), Math.round(SIDE / 2 - sumY / sum)];
}

/** Moved by so many pixels to the right and down. */
export function shifted(pixels, right, down) {
  const found = new Float32Array(pixels.length);
  for (let y = 0; y < SIDE; y++)
    for (let x = 0; x < SIDE; x++) {
      const [fromX, fromY] = [x - right, y - down];
      if (fromX >= 0 && fromX < SIDE && fromY >= 0 && fromY < SIDE) found[y * SIDE + x] = pixels[fromY * SIDE + fromX];
    }
  return found;
}
